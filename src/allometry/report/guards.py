"""Guards: what a claim must pass before it is stated, and what is said where it does not.

Each guard gives `None`, or a `Refusal` with the reason and with which run would settle it.
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
"""Upper over lower end of a loss's 95 % interval, beyond which the interval is of no use."""
WIDEST_AMOUNT = 100.0
"""The same of a size, of data or of compute."""
REACH = 1.5
"""How much further than the runs' own span of compute a forecast may reach, as a factor."""
SAME = 1e-9
"""Relative difference below which two losses are one."""
NARROWER = "More seeds, or sizes in between, would narrow it; `allometry next` chooses them."


@final
@dataclass(frozen=True)
class Evidence:
    """What a family's claims rest on.

    Args:
        law: Fitted to all finished runs.
        why: The sentence that says why there is no law.
        grown: The family's configurations.
        held_out: Predictions of the held-out sizes.
        tested: How far beyond its runs the law was tested, in e-folds.
        entropy: The loss that no model can go below, where it is known.
        D_unique: Distinct data there are, where they are limited.
        unit: Of the loss.
        token: What data are counted in.
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
    """The first refusal; later guards may rely on what earlier ones have made sure of."""
    for guard in guards:
        refusal = guard()
        if refusal is not None:
            return refusal
    return None


def identified(x: Estimate | None, widest: float = WIDEST_AMOUNT) -> bool:
    """Whether an estimate is finite and its interval, where it has one, narrow enough to use."""
    if x is None or not math.isfinite(x.value):
        return False
    if x.lo is None and x.hi is None:
        return True
    lo, hi = x.interval
    return math.isfinite(hi) and lo > 0 and hi / lo <= widest


def enough(e: Evidence) -> Refusal | None:
    """Sizes and seeds enough for the law's free parameters, and some held out to test it."""
    if e.law is None:
        return Refusal(e.why or "No law could be fitted.")
    free, runs = e.law.shape.p, sum(c.seeds for c in e.grown)
    sizes = len({c.N for c in e.grown})
    missing = max(free + 1 - len(e.grown), free + 2 - runs, 0)
    if missing:
        have = f"{fmt.several(len(e.grown), 'configuration')} in {fmt.several(runs, 'run')}"
        return Refusal(
            f"{have} are too few for the {fmt.small(free)} free parameters of the law.",
            f"{fmt.several(missing, 'more run')} of other sizes would settle it.",
        )
    if not e.tested > 0:
        return Refusal(
            f"With {fmt.several(sizes, 'size')}, none could be held out to test the law.",
            "A run of one more size would settle it.",
        )
    missed = [h for h in e.held_out if not h.covered]
    if 2 * len(missed) > len(e.held_out):
        worst = fmt.percent(max(abs(h.error) for h in missed))
        count = f"{len(missed)} of {len(e.held_out)}"
        return Refusal(
            f"The law failed its test: {count} held-out losses lie outside their 95 % intervals, "
            f"by up to {worst} of the loss.",
            "More sizes would settle it.",
        )
    return None


def descending(e: Evidence, loss: Estimate, before: float | None) -> Refusal | None:
    """More compute never predicts a higher loss than was reached with less."""
    least = e.best.loss.value if before is None else min(before, e.best.loss.value)
    if loss.value <= least * (1 + SAME):
        return None
    return Refusal(
        f"The law predicts {fmt.loss(loss.value)} there, above the {fmt.loss(least)} reached "
        "with less compute, so it does not describe these runs.",
        f"Another seed of the largest size ({fmt.count(max(c.N for c in e.grown))} parameters) "
        "would show whether that is noise.",
    )


def above_entropy(e: Evidence, loss: Estimate) -> Refusal | None:
    """Never below a known entropy."""
    if e.entropy is None or loss.value >= e.entropy * (1 - SAME):
        return None
    away = e.best.loss.value - e.entropy
    rest = f" The best run is {fmt.loss(away)} above it." if away > 0 else ""
    return Refusal(
        f"The law falls to {fmt.loss(loss.value)} there, below the entropy of "
        f"{fmt.loss(e.entropy)} that no model can go below.{rest}"
    )


def narrow(x: Estimate, widest: float, write: fmt.Writer) -> Refusal | None:
    """An interval of usable width."""
    if identified(x, widest):
        return None
    lo, hi = x.interval
    if lo > 0 and math.isinf(hi):
        return Refusal(f"The 95 % interval begins at {write(lo)} and has no upper end.", NARROWER)
    if not lo > 0 or hi / lo > 1e3 * widest:
        return Refusal("The 95 % interval has no usable ends.", NARROWER)
    return Refusal(f"The 95 % interval, {fmt.span(x, write)}, is too wide to use.", NARROWER)


def within_span(e: Evidence, C: float) -> Refusal | None:
    """Extrapolate by about as much as the runs themselves span, not more."""
    span = e.C / min(c.C for c in e.grown)
    if max(span, 1.0) * (1 + 1e-6) >= C / e.C:
        return None
    return Refusal(
        f"That is {fmt.count(C / e.C, 2)} times the largest run, and the runs span only "
        f"{fmt.count(span, 2)} times in compute.",
        f"A run of {fmt.flops(math.sqrt(C * e.C))} would settle it.",
    )


def growing(e: Evidence, N: Estimate | None, D: Estimate | None) -> Refusal | None:
    """A larger budget buys no smaller model and no less data than the smallest run had."""
    for name, x in (("N", N), ("D", D)):
        least = min(getattr(c, name) for c in e.grown)
        if x is not None and math.isfinite(x.value) and x.value < least * (1 - 1e-6):
            what = "models" if name == "N" else "amounts of data"
            return Refusal(
                f"The law asks for smaller {what} than any run had, so in these runs more of "
                f"{name} does not lower the loss.",
                f"More seeds, or a wider range of {name}, would settle it.",
            )
    return None


def supplied(
    e: Evidence, D: Estimate | None, passes: float | None, discounted: bool
) -> Refusal | None:
    """Data enough: a law of fresh data says nothing of repeated ones."""
    if passes is None or passes <= FRESH_PASSES or discounted or D is None:
        return None
    if D.value <= max(c.D for c in e.grown) * 1.05:
        return None  # so many passes were measured
    return Refusal(
        f"That takes {fmt.significant(passes, 2)} passes over the "
        f"{fmt.many(e.D_unique or 0, e.token)} there are, and the law does not know what "
        "repeated data are worth.",
        "More data would settle it, or runs with several amounts of data at one size.",
    )


def comes_down(met: Crossover | None) -> Refusal | None:
    """The law falls to the baseline's loss somewhere."""
    if met is None or met.C is None:
        why = met.reasons[0] if met is not None and met.reasons else "The law has no compute."
        return Refusal(why)
    if math.isfinite(met.C.value):
        return None
    return Refusal(
        "The law levels off above the baseline's loss.",
        "A run several times larger would show whether it does.",
    )


def beyond_runs(e: Evidence, met: Crossover | None) -> Refusal | None:
    """The crossover must lie beyond every run that has not come down to the baseline."""
    assert met is not None
    assert met.C is not None
    if met.C.value > e.C:
        return None
    largest = max(e.grown, key=lambda c: c.C)
    where = sized(met.N, met.D, e.token) if growing(e, met.N, met.D) is None else ""
    at = f"{where} ({fmt.flops(met.C.value)})" if where else fmt.flops(met.C.value)
    return Refusal(
        f"The law puts it at {at}, but a run of {fmt.flops(largest.C)} has "
        f"{fmt.loss(largest.loss.value)}, above the baseline's "
        f"{fmt.loss(met.rival.loss.value)}.",
        f"A run of {where} would settle it." if where else "More sizes would settle it.",
    )


def within_tests(e: Evidence, met: Crossover | None) -> Refusal | None:
    """Within the range in which the law was tested."""
    assert e.law is not None
    assert met is not None
    assert met.C is not None
    N, D = (None if x is None else x.value for x in (met.N, met.D))
    far = distance(e.law, N, D, met.C.value)
    if far <= e.tested * (1 + 1e-6):
        return None
    return Refusal(
        f"The law comes down to the baseline's loss only at {fmt.flops(met.C.value)}, "
        f"{fmt.count(met.C.value / e.C, 2)} times the largest run and farther than it was "
        "tested on held-out sizes.",
        f"A run of {fmt.flops(math.sqrt(met.C.value * e.C))} would say more.",
    )


def sized(N: Estimate | None, D: Estimate | None, token: str) -> str:
    """`154K parameters on 4.4M characters`; nothing where the runs do not identify them."""
    if not identified(N) or N is None:
        return ""
    size = fmt.many(N.value, "parameter")
    if not identified(D) or D is None:
        return size
    return f"{size} on {fmt.many(D.value, token, plural(token))}"
