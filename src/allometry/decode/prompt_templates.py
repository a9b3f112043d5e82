"""Prompt templates for language models, and their comparison on a task.

A template maps a question to the text that a model should continue with the answer. The six
templates are the principles of Reynolds and McDonell (2021).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np

from allometry._core.errors import require
from allometry._core.estimate import Estimate, proportion

Template = Callable[[str], str]
Score = Callable[[str, str], float]
"""Log-probability in nats of an answer after a prompt."""

RESAMPLES = 2000


def direct(task: str, *, before: str = "", answer: str = ":") -> Template:
    r"""Direct specification: name the task, then the question.

    Example:
        >>> direct("Translate French to English")("chat")
        'Translate French to English\nchat:'
    """
    return lambda question: f"{before}{task}\n{question}{answer}"


def demonstration(
    examples: Sequence[tuple[str, str]], *, answer: str = ": ", between: str = "\n"
) -> Template:
    r"""Demonstration: solved examples, then the question in the same form.

    Example:
        >>> demonstration([("2+2", "4")])("1+2")
        '2+2: 4\n1+2: '
    """
    require(len(examples) > 0, "demonstration.examples", "hold at least one", len(examples))
    prefix = "".join(f"{q}{answer}{a}{between}" for q, a in examples)
    # A trailing blank is a separate token in most word vocabularies; it is kept as given.
    return lambda question: f"{prefix}{question}{answer}"


def proxy(who: str, *, says: str = "says", quote: str = '"') -> Template:
    r"""Memetic proxy: attribute the answer to a suitable speaker.

    Example:
        >>> proxy("A patient teacher")("What is a prime?")
        'What is a prime?\nA patient teacher says: "'
    """
    return lambda question: f"{question}\n{who} {says}: {quote}"


def opened(inner: Template, *, opening: str) -> Template:
    r"""Constraint: begin the answer, so that only answers of the intended form can follow.

    Example:
        >>> opened(direct("Capital of"), opening=" the city of")("France")
        'Capital of\nFrance: the city of'
    """
    return lambda question: inner(question) + opening


def serialised(inner: Template, *, steps: str = " Let us solve this step by step.") -> Template:
    r"""Serialised reasoning: ask for intermediate steps before the answer.

    Example:
        >>> serialised(direct("Solve"), steps=" First,")("1+2")
        'Solve\n1+2: First,'
    """
    return lambda question: inner(question) + steps


def metaprompt(ask: str, *, complete: Callable[[str], str], then: str = "\n") -> Template:
    r"""Metaprompt: the model first writes its own instruction for this question.

    Args:
        ask: Request for the instruction, placed after the question.
        complete: Continues a text with the model.
        then: Text between the instruction and the answer.

    Example:
        >>> metaprompt("To solve this,", complete=lambda text: " add.")("1+2")
        '1+2\nTo solve this, add.\n'
    """

    def fill(question: str) -> str:
        request = f"{question}\n{ask}"
        return request + complete(request) + then

    return fill


@final
class Item(NamedTuple):
    """A question with possible answers; the first one is right."""

    question: str
    answers: tuple[str, ...]


@final
class Variant(NamedTuple):
    """The result of one template, also relative to the first one."""

    name: str
    accuracy: Estimate
    """Share of items whose right answer has the highest score; Wilson's interval."""
    margin: Estimate
    """Mean of log p(right) - log p(best wrong), in nats."""
    gain: Estimate | None
    """Accuracy minus that of the first variant on the same items, by paired bootstrap."""


def compare(
    variants: Mapping[str, Template], items: Sequence[Item], score: Score, *, seed: int = 0
) -> list[Variant]:
    """Compare templates on one task, with intervals.

    Args:
        variants: Templates by name; the first is the reference.
        items: Questions with their answers, the right one first.
        score: Log-probability of an answer after a prompt, under any model.
        seed: Seed of the bootstrap.

    References: `reynolds2021`.
    """
    require(len(variants) > 0, "compare.variants", "name at least one template", 0)
    require(len(items) >= 2, "compare.items", "hold at least two", len(items))
    for item in items:
        require(len(item.answers) >= 2, "compare.items", "offer two answers or more", item.answers)
    margins = {name: _margins(fill, items, score) for name, fill in variants.items()}
    first = next(iter(margins.values()))
    out = []
    for name, own in margins.items():
        gain = None if own is first else _gain(own, first, seed)
        accuracy = proportion(sum(m > 0 for m in own), len(own))
        out.append(Variant(name, accuracy, _mean(own), gain))
    return out


def _margins(fill: Template, items: Sequence[Item], score: Score) -> list[float]:
    margins = []
    for item in items:
        prompt = fill(item.question)
        right, *wrong = (score(prompt, answer) for answer in item.answers)
        margins.append(right - max(wrong))
    return margins


def _mean(x: Sequence[float]) -> Estimate:
    n = len(x)
    mean = math.fsum(x) / n
    variance = math.fsum((v - mean) ** 2 for v in x) / (n - 1)
    return Estimate(mean, se=math.sqrt(variance / n), n=n, method="standard error of the mean")


def _gain(own: Sequence[float], first: Sequence[float], seed: int) -> Estimate:
    difference = (np.array(own) > 0).astype(float) - (np.array(first) > 0)
    n = len(difference)
    resamples = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    lo, hi = np.quantile(difference[resamples].mean(1), [0.025, 0.975])
    value = float(difference.mean())
    return Estimate(value, lo=float(lo), hi=float(hi), n=n, method="paired bootstrap")
