"""Names of loss columns: training or validation, and the unit: nats, bits or perplexity.

Laws are fitted to losses in nats. Bits are multiplied by log 2; the log of a perplexity is taken.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError

KNOWN = (
    "loss", "valloss", "evalloss", "validationloss", "lossvalidation", "lossval", "losseval",
    "testloss", "finalloss", "valcrossentropy", "crossentropy", "crossentropyloss",
    "evalcrossentropyloss", "nll", "logperplexity", "testce", "valce", "ce", "evalnll", "valnll",
    "valbpb", "evalbpb", "bpb", "bitsperbyte", "bpc", "bpt", "valperplexity", "evalperplexity",
    "valppl", "evalppl", "perplexity", "ppl", "trainloss", "losstrain", "trainingloss", "lmloss",
)  # fmt: skip
"""Names of losses, letters and digits only, likeliest first."""

UNITS = ("nats", "bits", "perplexity")
"""Units that `--loss-unit` takes."""

_LOSS = re.compile(
    r"loss|cross_?entropy|(?:^|[^a-z])(?:nll|ppl|perplexity|bpb|bpc|bits_per_\w+)(?:$|[^a-z])"
)
_OTHER = re.compile(
    r"loss_?(?:scale|se|std|stderr|sd|weight|spike|fn|func|type|mask)(?:$|[^a-z])|__m(?:in|ax)$|"
    r"(?:^|[^a-z])(?:aux\w*|\w*balanc\w*|z|kl|reg\w*|router|commit\w*|distill\w*|contrastive|"
    r"policy|value)[_/ ]?loss|(?:^|[^a-z])(?:grad\w*|lr|best|max|min)(?:$|[^a-z])"
)
_VALIDATION = r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|dev)(?:$|[^a-z])"
_PART = {
    "validation": re.compile(_VALIDATION + "|valloss|evalloss|held_?out|hold_?out"),
    "test": re.compile(r"test"),
    "training": re.compile(r"train"),
}


@final
@dataclass(frozen=True)
class LossName:
    """What a column's name says about a loss.

    Args:
        part: `validation`, `test`, `training`, or empty.
        unit: `nats`, `bits` or `perplexity`.
        per: `token`, `byte` or `character`.
    """

    part: str
    unit: str
    per: str


def describe(name: str) -> LossName:
    """Data set and unit of a loss, from its column's name."""
    text = name[:300].lower()
    part = next((part for part, pattern in _PART.items() if pattern.search(text)), "")
    short = re.sub(r"[^a-z]", "", text)
    unit, per = "nats", "token"
    if ("ppl" in short or "perplexity" in short) and "log" not in short:
        unit = "perplexity"
    if re.search(r"(?:^|[^a-z])(?:bpb|bpc|bpt|bits)(?:$|[^a-z])", text) or "bitsper" in short:
        unit = "bits"
    if re.search(r"(?:^|[^a-z])bpb(?:$|[^a-z])", text) or "byte" in short:
        per = "byte"
    elif re.search(r"(?:^|[^a-z])bpc(?:$|[^a-z])", text) or "perchar" in short:
        per = "character"
    return LossName(part, unit, per)


def losses(names: Sequence[str]) -> list[str]:
    """The columns that hold losses, of any unit and data set."""
    return [
        name
        for name in names
        if len(name) < 300 and _LOSS.search(name.lower()) and not _OTHER.search(name.lower())
    ]


def best(names: Sequence[str], *, log: bool) -> str | None:
    """The column to fit: validation before training loss, nats before other units.

    Args:
        names: Columns to choose from.
        log: The columns are metrics of a training, where `loss` alone is the training loss. In a
            table of runs, `loss` alone is the loss to fit.
    """
    if "loss" in names and not log:
        return "loss"
    known: dict[str, int] = {name: i for i, name in enumerate(KNOWN)}
    ranked = []
    for place, name in enumerate(names):
        short = re.sub(r"[^a-z0-9]", "", _without_brackets(name).lower())
        exact = known.get(short)
        if exact is None and name not in losses([name]):
            continue
        about = describe(name)
        if exact is None and about.part != "validation" and not log:
            continue  # an unknown name in a table: ask rather than guess
        parts = ("validation", "test", "", "training") if log else ("", "validation", "test")
        part = parts.index(about.part) if about.part in parts else len(parts)
        unit = UNITS.index(about.unit)
        if not log and exact is not None:
            part = 0  # the order of the known names decides
        ranked.append((part, unit, 99 if exact is None else exact, place, name))
    return min(ranked)[-1] if ranked else None


def others(names: Sequence[str], chosen: str) -> list[str]:
    """Other losses on validation or test data."""
    return [
        name
        for name in losses(names)
        if name != chosen and describe(name).part in ("validation", "test")
    ]


def to_nats(values: Float[ndarray, " n"], unit: str) -> Float[ndarray, " n"]:
    """Losses in nats; a perplexity below 1 gives NaN.

    Example:
        >>> to_nats(np.array([2.0]), "bits").round(4).tolist()
        [1.3863]
    """
    if unit not in UNITS:
        raise InputError(f"--loss-unit must be one of {', '.join(UNITS)}; got {unit!r}.")
    if unit == "bits":
        return values * math.log(2.0)
    if unit == "perplexity":
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(values > 1.0, np.log(values), math.nan)
    return values


def note(column: str, unit: str, per: str) -> list[str]:
    """A sentence on a converted unit."""
    if unit == "nats":
        return []
    how = "multiplied by log 2" if unit == "bits" else "its log"
    what = f"bits per {per}" if unit == "bits" else "perplexity"
    return [f"The loss {column!r} is in {what}; it is converted to nats per {per} ({how})."]


def _without_brackets(name: str) -> str:
    return re.sub(r"\s*[(\[][^()\[\]]*[)\]]", "", name[:300])
