"""Exercises and the check of their answers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, final

import numpy as np

from allometry._core.errors import InputError, require


@final
@dataclass(frozen=True)
class Exercise:
    """A question whose answer is computed, not stored.

    Args:
        question: The text, in Markdown.
        answer: Computes the right answer: a number, a list of numbers, a string or a truth value.
        hint: Shown after a wrong answer.
        solution: Python code that assigns `answer` with the package's own functions. It takes
            another route than `answer` wherever there is one.
        tolerance: Relative error that passes.
        absolute: Absolute error that passes.
    """

    question: str
    answer: Callable[[], Any]
    hint: str
    solution: str
    tolerance: float = 0.01
    absolute: float = 0.0


@final
@dataclass(frozen=True)
class Feedback:
    """The result of a check; true if the answer is right."""

    correct: bool
    text: str

    def __bool__(self) -> bool:
        return self.correct

    def __repr__(self) -> str:
        return self.text


def check(name: str, answer: Any) -> Feedback:
    """Check the answer of an exercise.

    Args:
        name: Lesson and number, such as `"flows.2"`.
        answer: A number, a list or array of numbers, a string or a truth value; `...` if you
            have none yet.

    Example:
        >>> import allometry as al
        >>> al.course.check("games.1", ...)
        No answer to games.1 yet: put it in place of the dots.
    """
    exercise = find(name)
    if answer is ...:
        return Feedback(False, f"No answer to {name} yet: put it in place of the dots.")
    right = exercise.answer()
    if isinstance(right, str | bool):
        good = str(answer).strip().lower() == str(right).lower()
    else:
        good = _close(name, answer, right, exercise)
    if good:
        return Feedback(True, f"{name}: correct.")
    return Feedback(False, f"{name}: not yet. Hint: {exercise.hint}")


def _close(name: str, answer: Any, right: Any, exercise: Exercise) -> bool:
    if hasattr(answer, "detach"):
        answer = answer.detach().numpy()
    try:
        given = np.asarray(getattr(answer, "value", answer), float)
    except (TypeError, ValueError):
        given = None
    wanted = np.asarray(right, float)
    if given is None or given.size != wanted.size:
        kind = "a number" if wanted.size == 1 else f"{wanted.size} numbers"
        raise InputError(f"The answer of {name} must be {kind}; got {answer!r}.")
    limit = exercise.absolute + exercise.tolerance * np.abs(wanted.ravel())
    return bool((np.abs(given.ravel() - wanted.ravel()) <= limit).all())


def solution(name: str) -> str:
    """A worked solution: Python code that ends with the `answer`."""
    return find(name).solution.strip()


def find(name: str) -> Exercise:
    """The exercise of a name such as `"flows.2"`."""
    table = exercises()
    require(name in table, "The name of an exercise", f"be one of {', '.join(table)}", name)
    return table[name]


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by name, in the order of the lessons."""
    from allometry.course.lesson import names

    home = "allometry.course.exercises"
    tables = {name: import_module(f"{home}.{name}").EXERCISES for name in names()}
    return {f"{k}.{i}": each for k, own in tables.items() for i, each in enumerate(own, 1)}
