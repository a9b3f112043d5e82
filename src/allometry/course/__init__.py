"""The course: lessons as notebooks, their charts and exercises.

Names load on first use (PEP 562): `al.course.check` needs no chart library.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allometry.course import charts, diagrams
    from allometry.course.exercise import Exercise, Feedback, check, solution
    from allometry.course.figure import Figure, Film
    from allometry.course.lesson import Lesson, names, notebook, read
    from allometry.course.size import amount

__all__ = [
    "Exercise",
    "Feedback",
    "Figure",
    "Film",
    "Lesson",
    "amount",
    "charts",
    "check",
    "diagrams",
    "names",
    "notebook",
    "read",
    "solution",
]

_HOME = {
    "Exercise": "exercise",
    "Feedback": "exercise",
    "Figure": "figure",
    "Film": "figure",
    "Lesson": "lesson",
    "amount": "size",
    "check": "exercise",
    "names": "lesson",
    "notebook": "lesson",
    "read": "lesson",
    "solution": "exercise",
}


def __getattr__(name: str) -> Any:
    if name in ("charts", "diagrams"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
