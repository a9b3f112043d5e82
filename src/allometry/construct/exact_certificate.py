"""Certificates of exact constructions: how they were verified."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

from allometry._core.estimate import Estimate
from allometry.models.transformer.model import Block, Transformer

Batch = tuple[int, int, float, Any]
"""Numbers of inputs and of wrong outputs, smallest margin, and the first wrong input or None."""


@final
@dataclass(frozen=True)
class Exactness:
    """How a construction was verified against a reference, and its size.

    Attributes:
        exhaustive: Every input up to this length was tested (-1: none).
        tried: Number of these inputs.
        sampled: Number of longer inputs, random and adversarial.
        longest: Length of the longest input.
        wrong: Number of wrong outputs on both kinds of inputs.
        example: The first wrong input.
        margin: Smallest distance of an output from the decision threshold.
        layers: Number of blocks.
        heads: Number of heads of a block.
        head_size: Size of a head.
        width: Width of the residual stream.
        hidden: Neurons of a block.
        parameters: Number of parameters.
        nonzero: Number of parameters that are not 0.
        attention: "hard", or "soft" with the factor on the scores.
        seconds: Duration of the verification.
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
        """Error rate on inputs like the sampled ones, with its exact 95 % bound.

        With no errors among n samples, the bound is $1 - 0.05^{1/n}$. Without sampling, the rate
        is exact.
        """
        if self.sampled == 0:
            return Estimate(self.wrong / max(1, self.tried), exact=True, n=self.tried)
        rate = self.wrong / self.sampled
        hi = 1.0 if self.wrong else 1 - 0.05 ** (1 / self.sampled)
        return Estimate(rate, lo=0.0, hi=hi, n=self.sampled, method="exact binomial, one-sided")

    @property
    def holds(self) -> bool:
        """Whether all outputs were right."""
        return self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON values."""
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
            ("width", f"{self.width}, {self.hidden} neurons per layer"),
            ("parameters", f"{self.parameters:,} ({self.nonzero:,} not 0)"),
        ]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)


def sizes(model: Transformer) -> dict[str, Any]:
    """The fields of `Exactness` that describe a model's size."""
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
    """Test every input of length 0, 1, 2, ... for half the time, then random inputs.

    Args:
        model: The model.
        try_length: Tests all inputs of a length, in batches.
        try_random: Tests random inputs; an endless iterator of batches.
        longest: Largest length of an input.
        seconds: Time limit. When half of it is over, the current length is finished only if one
            more batch completes it.
    """
    start = time.monotonic()
    tried = sampled = wrong = 0
    exhaustive, margin, example = -1, math.inf, None

    def record(batch: Batch) -> int:
        nonlocal wrong, margin, example
        count, errors, least, first = batch
        wrong, margin = wrong + errors, min(margin, least)
        example = first if example is None else example
        return count

    for length in range(longest + 1):
        begin, count, complete = time.monotonic(), 0, True
        batches = iter(try_length(length))
        for batch in batches:
            count += record(batch)
            if time.monotonic() - start > seconds / 2:
                # One more batch shows whether this was the last.
                more = next(batches, None)
                complete = more is None
                count += record(more) if more is not None else 0
                break
        # An incomplete length is not exhaustive; its inputs count as samples.
        if not complete:
            sampled += count
            break
        tried, exhaustive = tried + count, length
        now = time.monotonic()
        if now - start + 2 * (now - begin) > seconds / 2:
            break
    while exhaustive < longest and time.monotonic() - start < seconds:
        sampled += record(next(try_random))
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
