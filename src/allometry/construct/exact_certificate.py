"""The certificate of a construction that must never be wrong: what was tried, and how."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

from allometry._core.estimate import Estimate
from allometry.models.transformer.model import Block, Transformer

Batch = tuple[int, int, float, Any]
"""Inputs tried, wrong ones among them, least margin, and the first wrong input if any."""


@final
@dataclass(frozen=True)
class Exactness:
    """How a construction was checked against the truth, and how large it is.

    Attributes:
        exhaustive: Every input up to this length was tried (-1: of none).
        tried: How many inputs that were.
        sampled: Longer inputs tried at random and made to deceive.
        longest: Length of the longest.
        wrong: Inputs answered wrongly, of both kinds.
        example: The first of them.
        margin: Least distance of an output from where its answer would change.
        layers: Blocks.
        heads: Heads of a block.
        head_size: Size of a head.
        width: Of the stream.
        hidden: Neurons of a block.
        parameters: All of them.
        nonzero: Those that are not 0.
        attention: "hard", or "soft" with the factor on the scores.
        seconds: Spent checking.
    """

    exhaustive: int
    tried: int
    sampled: int
    longest: int
    wrong: int
    example: Any
    margin: float
    layers: int
    heads: int
    head_size: int
    width: int
    hidden: int
    parameters: int
    nonzero: int
    attention: str
    seconds: float

    @property
    def error_rate(self) -> Estimate:
        """Share of wrong answers on inputs like the sampled ones, with its exact 95 % bound.

        With nothing wrong among n, the bound is $1 - 0.05^{1/n}$; exact (0) where nothing had to
        be sampled.
        """
        if self.sampled == 0:
            return Estimate(self.wrong / max(1, self.tried), exact=True, n=self.tried)
        rate = self.wrong / self.sampled
        hi = 1.0 if self.wrong else 1 - 0.05 ** (1 / self.sampled)
        return Estimate(rate, lo=0.0, hi=hi, n=self.sampled, method="exact binomial, one-sided")

    @property
    def holds(self) -> bool:
        """Whether nothing was wrong."""
        return self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        margin = self.margin if math.isfinite(self.margin) else None
        return asdict(self) | {"margin": margin, "error_rate": self.error_rate.to_dict()}

    def __str__(self) -> str:
        rate = self.error_rate
        verdict = "right" if self.holds else f"WRONG {self.wrong:,} times, first on {self.example}"
        rows = [("verdict", verdict)]
        if self.exhaustive >= 0:
            rows.append(("every input", f"to length {self.exhaustive}: {self.tried:,}"))
        if self.sampled:
            rows.append(("sampled inputs", f"to length {self.longest}: {self.sampled:,}"))
            rows.append(("error rate", f"at most {rate.hi:.2g} (95 %)"))
        rows += [
            ("margin", f"{self.margin:.3g}"),
            ("layers", f"{self.layers}, {self.attention} attention"),
            ("heads", f"{self.heads} of size {self.head_size}"),
            ("width", f"{self.width}, {self.hidden} neurons a layer"),
            ("parameters", f"{self.parameters:,} ({self.nonzero:,} not 0)"),
        ]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)


def sizes(model: Transformer) -> dict[str, Any]:
    """What a certificate says of a model's size."""
    weights = list(model.parameters())
    first = next((b.attention for b in model.blocks if isinstance(b, Block) and b.attention), None)
    return {
        "layers": model.depth,
        "heads": model.heads,
        "head_size": model.head_size,
        "width": model.width,
        "hidden": model.hidden,
        "parameters": sum(w.numel() for w in weights),
        "nonzero": sum(int((w != 0).sum()) for w in weights),
        "attention": "hard" if first is None or first.hard else f"soft (x {first.scale:g})",
    }


def check(
    model: Transformer,
    try_length: Callable[[int], Iterable[Batch]],
    try_random: Iterator[Batch],
    *,
    longest: int,
    seconds: float,
) -> Exactness:
    """Every input of length 0, 1, 2, ... while half the time lasts, then samples.

    Args:
        model: What is checked.
        try_length: Batches of all inputs of a length, tried as they are drawn.
        try_random: Batches of random inputs without end.
        longest: Length of the longest input there may be.
        seconds: Time to spend; the length in hand when half is over is finished or given up.
    """
    start = time.monotonic()
    tried = sampled = wrong = 0
    exhaustive, margin, example = -1, math.inf, None

    def take(batch: Batch) -> int:
        nonlocal wrong, margin, example
        count, bad, least, first = batch
        wrong, margin = wrong + bad, min(margin, least)
        example = first if example is None else example
        return count

    spent = 0.0
    for length in range(longest + 1):
        begin, here, whole = time.monotonic(), 0, True
        batches = iter(try_length(length))
        for batch in batches:
            here += take(batch)
            if time.monotonic() - start > seconds / 2:
                # One more, to know whether that was the last.
                more = next(batches, None)
                whole = more is None
                here += take(more) if more is not None else 0
                break
        # A length broken off has not been tried exhaustively, though what was tried counts.
        if not whole:
            sampled += here
            break
        tried, exhaustive = tried + here, length
        spent = time.monotonic() - begin
        if time.monotonic() - start + 2 * spent > seconds / 2:
            break
    while exhaustive < longest and time.monotonic() - start < seconds:
        sampled += take(next(try_random))
    return Exactness(
        exhaustive=exhaustive,
        tried=tried,
        sampled=sampled,
        longest=longest,
        wrong=wrong,
        example=example,
        margin=margin,
        **sizes(model),
        seconds=time.monotonic() - start,
    )
