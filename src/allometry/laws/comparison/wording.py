"""The verdict of a comparison in one sentence."""

import math
from typing import TYPE_CHECKING

from allometry._core.estimate import Estimate
from allometry.laws.comparison.comparison_limits import (
    MULTIPLIED,
    UNITS,
    are_apart,
    rises,
)
from allometry.laws.comparison.linear_evidence import DECISIVE

if TYPE_CHECKING:
    from allometry.laws.comparison.comparison_verdict import RecipeComparison, Rival


def verdict(found: "RecipeComparison") -> str:
    """Winner or undecided, the multiplier, and the trend."""
    closest = found.rivals[0]
    place = f"{found.at:.3g} {UNITS[found.scale]}"
    needs = worth(closest, f"the {MULTIPLIED[found.scale]}")
    more = f", the closest of {len(found.rivals)}" if len(found.rivals) > 1 else ""
    if found.winner is not None:
        head = f"{found.winner} wins at {place} against {closest.name}{more}: {needs}"
    else:
        head = f"Undecided at {place}: {found.leader} leads, and {needs}"
    return f"{head}; {_trend(found, closest)}{_cost(found, closest)}."


def progress(found: "RecipeComparison") -> str:
    """The state of a comparison in a line."""
    closest, rivals = found.rivals[0], len(found.rivals)
    if found.winner is not None:
        return f"{found.winner} wins"
    least = min(rival.e_value for rival in found.rivals)
    return (
        f"{found.leader} leads; {worth(closest, f'the {MULTIPLIED[found.scale]}')}; "
        f"e-value {least:.2g} of {DECISIVE * rivals:g}"
    )


def worth(rival: "Rival", what: str) -> str:
    """How much more the rival needs."""
    if not math.isfinite(rival.multiplier.value):
        return f"{rival.name} never reaches the same loss"
    return f"{rival.name} needs {factor(rival.multiplier)} times {what} for the same loss"


def factor(estimate: Estimate) -> str:
    """A multiplier with its interval."""
    lo, hi = estimate.interval
    upper = f"{hi:.3g}" if math.isfinite(hi) else "unbounded"
    return f"{estimate.value:.3g} ({lo:.3g} to {upper})"


def _trend(found: "RecipeComparison", rival: "Rival") -> str:
    if rival.trend == "grows":
        return "the gain grows with scale"
    if rival.trend == "unresolved":
        return "no trend of the gain with scale is resolved"
    word = "shrinks with scale" if rival.trend == "shrinks" else "changes sign with scale"
    if rival.crossover is None:
        return f"the gain {word}"
    lo, hi = rival.crossover.interval
    upper = f"{hi:.2g}" if math.isfinite(hi) else "unbounded"
    unit = UNITS[found.scale]
    return (
        f"the gain {word}, with equal losses at {rival.crossover.value:.2g} {unit} "
        f"({lo:.2g} to {upper})"
    )


def _cost(found: "RecipeComparison", rival: "Rival") -> str:
    """What a verdict would cost, while undecided."""
    if found.winner is not None:
        return ""
    waiting = [rival for rival in found.rivals if not rival.decided]
    if rises(found.runs):
        return "; a loss that rises with scale can't be judged"
    if any(are_apart(found.runs, found.leader, rival.name) for rival in waiting):
        return "; runs at scales in common would decide"
    if all(rival.e_value >= DECISIVE * len(found.rivals) for rival in waiting):
        return "; runs at larger scales would decide, not more of these sizes"
    worse = len(found.rivals) - len(waiting)
    verb = "is" if worse == 1 else "are"
    start = f"; {worse} of {len(found.rivals)} others {verb} worse" if worse else ""
    factors = [rival.more for rival in waiting]
    if any(more is None for more in factors) or not factors:
        return f"{start}; how many more runs would decide is not identified"
    more = max(more for more in factors if more is not None)
    total = len(found.runs.y)
    extra = max(1, math.ceil(total * (more - 1)))
    runs = "run of these sizes is" if extra == 1 else "runs of these sizes are"
    return f"{start}; about {extra} more {runs} expected to decide"
