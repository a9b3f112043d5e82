"""Prompts as programs: six ways to put a task to a language model, and which works best.

A template is a function from a question to the text that a model should continue with the answer.
The six are the principles of Reynolds & McDonell.
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
    shown = "".join(f"{q}{answer}{a}{between}" for q, a in examples)
    # A trailing blank would be a token of its own for most vocabularies of words; kept as given.
    return lambda question: f"{shown}{question}{answer}"


def proxy(who: str, *, says: str = "says", quote: str = '"') -> Template:
    r"""Memetic proxy: let someone known for such answers speak.

    Example:
        >>> proxy("A patient teacher")("What is a prime?")
        'What is a prime?\nA patient teacher says: "'
    """
    return lambda question: f"{question}\n{who} {says}: {quote}"


def opened(inner: Template, *, opening: str) -> Template:
    r"""Constraint: begin the answer so that only answers of the wanted form can follow.

    Example:
        >>> opened(direct("Capital of"), opening=" the city of")("France")
        'Capital of\nFrance: the city of'
    """
    return lambda question: inner(question) + opening


def serialised(inner: Template, *, steps: str = " Let us solve this step by step.") -> Template:
    r"""Serialised reasoning: room to reason before the verdict.

    Example:
        >>> serialised(direct("Solve"), steps=" First,")("1+2")
        'Solve\n1+2: First,'
    """
    return lambda question: inner(question) + steps


def metaprompt(ask: str, *, complete: Callable[[str], str], then: str = "\n") -> Template:
    r"""Metaprompt: the model first writes its own instruction for this question.

    Args:
        ask: What asks for the instruction; the question stands before it.
        complete: Continues a text with the model itself.
        then: What stands between the instruction and the answer.

    Example:
        >>> metaprompt("To solve this,", complete=lambda text: " add.")("1+2")
        '1+2\nTo solve this, add.\n'
    """

    def fill(question: str) -> str:
        asked = f"{question}\n{ask}"
        return asked + complete(asked) + then

    return fill


@final
class Item(NamedTuple):
    """A question with the answers to choose from; the first of them is right."""

    question: str
    answers: tuple[str, ...]


@final
class Variant(NamedTuple):
    """How one template did, and against the first one."""

    name: str
    accuracy: Estimate
    """Share of items where the right answer scored highest; Wilson's interval."""
    margin: Estimate
    """Mean of log p(right) - log p(best wrong), in nats."""
    gain: Estimate | None
    """Accuracy minus that of the first variant on the same items, by paired bootstrap."""


def compare(
    variants: Mapping[str, Template], items: Sequence[Item], score: Score, *, seed: int = 0
) -> list[Variant]:
    """Templates on one task, item by item, with intervals.

    Args:
        variants: Templates by name; the first is what the others are held against.
        items: Questions with their answers, the right one first.
        score: Log-probability of an answer after a prompt, under any model.
        seed: Of the bootstrap.

    References: `reynolds2021`.
    """
    require(len(variants) > 0, "compare.variants", "name at least one template", 0)
    require(len(items) >= 2, "compare.items", "hold at least two", len(items))
    for item in items:
        require(len(item.answers) >= 2, "compare.items", "offer two answers or more", item.answers)
    margins = {name: _margins(fill, items, score) for name, fill in variants.items()}
    first = next(iter(margins.values()))
    out = []
    for name, found in margins.items():
        gain = None if found is first else _gain(found, first, seed)
        out.append(
            Variant(name, proportion(sum(m > 0 for m in found), len(found)), _mean(found), gain)
        )
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


def _gain(found: Sequence[float], first: Sequence[float], seed: int) -> Estimate:
    difference = (np.array(found) > 0).astype(float) - (np.array(first) > 0)
    n = len(difference)
    drawn = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    lo, hi = np.quantile(difference[drawn].mean(1), [0.025, 0.975])
    value = float(difference.mean())
    return Estimate(value, lo=float(lo), hi=float(hi), n=n, method="paired bootstrap")
