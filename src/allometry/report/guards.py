"""Guards: conditions that a claim must meet before it is stated.

Each guard returns `None`, or a `Refusal` with the reason and with the run that would settle it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from allometry._core.estimate import Estimate
from allometry.laws import Law
from allometry.report import formatting as fmt
from allometry.report.extrapolation import FRESH_PASSES, Crossover, HeldOut, distance
from allometry.report.prose import plural
from allometry.report.run_groups import Configuration

WIDEST_LOSS = 2.0
"""Largest ratio of the ends of a loss's 95 % interval that is still useful."""
WIDEST_AMOUNT = 100.0
"""The same for a size, an amount of data or compute."""
SAME = 1e-9
"""Relative difference below which two losses are equal."""
NARROWER = "More seeds, or sizes in between, would narrow it; `allometry next` chooses them."


@final
@dataclass(frozen=True)
class Evidence:
    """The evidence for a family's claims.

    Args:
        law: The scaling law fitted to all finished runs.
        why: Why there is no law, as a sentence.
        grown: The family's configurations.
        held_out: Predictions of the held-out sizes.
        tested: How far beyond its runs the law was tested, in e-folds.
        entropy: The loss that no model can go below, if known.
        D_unique: Amount of distinct data, if limited.
        unit: Unit of the loss.
        token: Unit of the data.
    """

    law: Law | None
    why: str
    grown: tuple[Configuration, ...]
    held_out: tuple[HeldOut, ...]
    tested: float
    entropy: float | None
    D_unique: float | None
    unit: str
    token: str

    @property
    def best(self) -> Configuration:
        """The configuration with the lowest loss."""
        return min(self.grown, key=lambda c: c.loss.value)

    @property
    def C(self) -> float:
        """The largest compute measured."""
        return max(c.C for c in self.grown)


@final
@dataclass(frozen=True)
class Refusal:
    """Why a claim is not supported, and what would settle it."""

    reason: str
    settled_by: str = ""


Guard = Callable[[], Refusal | None]


def first(*guards: Guard) -> Refusal | None:
    """The first refusal. Later guards may rely on earlier ones."""
    for guard in guards:
        refusal = guard()
        if refusal is not None:
            return refusal
    return None


def identified(x: Estimate | None, widest: float = WIDEST_AMOUNT) -> bool:
    """Whether an estimate is finite and its interval, if it has one, narrow enough to use."""
    if x is None or not math.isfinite(x.value):
        return False
    if x.lo is None and x.hi is None:
        return True
    lo, hi = x.interval
    return math.isfinite(hi) and lo > 0 and hi / lo <= widest


def enough(e: Evidence) -> Refusal | None:
    """There are enough sizes and seeds for the law's parameters, and a passed test."""
    if e.law is None:
        return Refusal(e.why or "No scaling law could be fitted.")
    free, runs = e.law.shape.p, sum(c.seeds for c in e.grown)
    sizes = len({c.N for c in e.grown})
    missing = max(free + 1 - len(e.grown), free + 2 - runs, 0)
    if missing:
        other = "another size" if missing == 1 else "other sizes"
        have = f"{fmt.several(len(e.grown), 'configuration')} in {fmt.several(runs, 'run')}"
        return Refusal(
            f"There are too few runs for the {fmt.several(free, 'free parameter')} of the scaling "
            f"law: {have}.",
            f"{fmt.several(missing, 'more run')} at {other} would settle it.",
        )
    if not e.tested > 0:
        return Refusal(
            f"With {fmt.several(sizes, 'size')}, none could be held out to test the scaling law.",
            "A run at one more size would settle it.",
        )
    missed = [h for h in e.held_out if not h.covered]
    if 2 * len(missed) > len(e.held_out):
        worst = fmt.percent(max(abs(h.error) for h in missed))
        covered = len(e.held_out) - len(missed)
        return Refusal(
            f"The scaling law failed its test: the 95 % intervals cover {covered} of "
            f"{fmt.several(len(e.held_out), 'held-out loss', 'held-out losses')}, with errors up "
            f"to {worst}.",
            "More sizes would settle it.",
        )
    return None


def descending(e: Evidence, loss: Estimate, before: float | None) -> Refusal | None:
    """More compute must not predict a higher loss than less compute has reached."""
    least = e.best.loss.value if before is None else min(before, e.best.loss.value)
    if loss.value <= least * (1 + SAME):
        return None
    return Refusal(
        f"The scaling law predicts {fmt.loss(loss.value)} there, above the {fmt.loss(least)} "
        "reached with less compute, so it does not fit these runs.",
        f"Another seed of the largest size ({fmt.count(max(c.N for c in e.grown))} parameters) "
        "would show whether that is noise.",
    )


def above_entropy(e: Evidence, loss: Estimate) -> Refusal | None:
    """The loss must not be below a known entropy."""
    if e.entropy is None or loss.value >= e.entropy * (1 - SAME):
        return None
    gap = e.best.loss.value - e.entropy
    rest = f" The best run is {fmt.loss(gap)} above it." if gap > 0 else ""
    return Refusal(
        f"The scaling law predicts {fmt.loss(loss.value)} there, below the entropy of "
        f"{fmt.loss(e.entropy)}, the lowest possible loss.{rest}"
    )


def narrow(x: Estimate, widest: float, write: fmt.Writer) -> Refusal | None:
    """The interval must be narrow enough to be useful."""
    if identified(x, widest):
        return None
    lo, hi = x.interval
    if lo > 0 and math.isinf(hi):
        return Refusal(f"The 95 % interval starts at {write(lo)} and has no upper end.", NARROWER)
    if not lo > 0 or hi / lo > 1e3 * widest:
        return Refusal("The 95 % interval spans many orders of magnitude.", NARROWER)
    return Refusal(f"The 95 % interval, {fmt.span(x, write)}, is too wide to be useful.", NARROWER)


def within_span(e: Evidence, C: float) -> Refusal | None:
    """The extrapolation factor must not exceed the factor that the runs themselves span."""
    span = e.C / min(c.C for c in e.grown)
    if max(span, 1.0) * (1 + 1e-6) >= C / e.C:
        return None
    return Refusal(
        f"That is {fmt.count(C / e.C, 2)} times the compute of the largest run, and the runs span "
        f"only a factor of {fmt.count(span, 2)}.",
        f"A run of {fmt.flops(math.sqrt(C * e.C))} would settle it.",
    )


def growing(e: Evidence, N: Estimate | None, D: Estimate | None) -> Refusal | None:
    """A larger budget must not ask for a smaller model or less data than the smallest run had."""
    wanted = {"N": ("a smaller model", "more parameters do"), "D": ("less data", "more data do")}
    for name, x in (("N", N), ("D", D)):
        least = min(getattr(c, name) for c in e.grown)
        if x is not None and math.isfinite(x.value) and x.value < least * (1 - 1e-6):
            less, more = wanted[name]
            return Refusal(
                f"The scaling law asks for {less} than in any run: in these runs {more} not lower "
                "the loss.",
                f"More seeds, or a wider range of {name}, would settle it.",
            )
    return None


def supplied(
    e: Evidence, D: Estimate | None, passes: float | None, discounted: bool
) -> Refusal | None:
    """There must be enough data: a law of new data does not predict the value of repeated data."""
    if passes is None or passes <= FRESH_PASSES or discounted or D is None:
        return None
    if D.value <= max(c.D for c in e.grown) * 1.05:
        return None  # that many passes were measured
    return Refusal(
        f"That takes {fmt.significant(passes, 2)} passes over the "
        f"{fmt.many(e.D_unique or 0, e.token)} available, and these runs do not identify the "
        "value of repeated data.",
        "More data would settle it, or runs with several amounts of data at one size.",
    )


def reaches_baseline(met: Crossover | None) -> Refusal | None:
    """The law must fall to the baseline's loss somewhere."""
    if met is None or met.C is None:
        why = met.reasons[0] if met is not None and met.reasons else ""
        return Refusal(why or "The scaling law gives no compute.")
    if math.isfinite(met.C.value):
        return None
    return Refusal(
        "The scaling law levels off above the baseline's loss.",
        "A run several times larger would show whether it does.",
    )


def beyond_runs(e: Evidence, met: Crossover | None) -> Refusal | None:
    """The crossover must lie beyond every run that has not reached the baseline's loss."""
    assert met is not None
    assert met.C is not None
    if met.C.value > e.C:
        return None
    largest = max(e.grown, key=lambda c: c.C)
    where = sized(met.N, met.D, e.token) if growing(e, met.N, met.D) is None else ""
    at = f"{where} ({fmt.flops(met.C.value)})" if where else fmt.flops(met.C.value)
    return Refusal(
        f"The scaling law predicts it at {at}, but a run of {fmt.flops(largest.C)} has a loss of "
        f"{fmt.loss(largest.loss.value)}, above the baseline's "
        f"{fmt.loss(met.rival.loss.value)}.",
        f"A run with {where} would settle it." if where else "More sizes would settle it.",
    )


def within_tests(e: Evidence, met: Crossover | None) -> Refusal | None:
    """The crossover must lie within the range in which the law was tested."""
    assert e.law is not None
    assert met is not None
    assert met.C is not None
    N, D = (None if x is None else x.value for x in (met.N, met.D))
    if distance(e.law, N, D, met.C.value) <= e.tested * (1 + 1e-6):
        return None
    return Refusal(
        f"The scaling law reaches the baseline's loss only at {fmt.flops(met.C.value)}, "
        f"{fmt.count(met.C.value / e.C, 2)} times the largest run and farther than it was tested "
        "on held-out sizes.",
        f"A run of {fmt.flops(math.sqrt(met.C.value * e.C))} would narrow it down.",
    )


def sized(N: Estimate | None, D: Estimate | None, token: str) -> str:
    """`154K parameters on 4.4M characters`; empty if the runs do not identify them."""
    if not identified(N) or N is None:
        return ""
    size = fmt.many(N.value, "parameter")
    if not identified(D) or D is None:
        return size
    return f"{size} on {fmt.many(D.value, token, plural(token))}"
