"""Evenly spaced sizes."""

import math

from allometry._core.errors import require

MOST_RUNGS = 1000
"""Largest number of sizes of a ladder."""


def ladder(smallest: float, largest: float, rungs: int) -> list[int]:
    """`rungs` sizes from `smallest` to `largest`, evenly spaced in the logarithm.

    Example:
        >>> ladder(1e3, 1e6, rungs=4)
        [1000, 10000, 100000, 1000000]
    """
    require(smallest >= 1, "ladder.smallest", "be at least 1", smallest)
    require(largest >= smallest, "ladder.largest", f"be at least {smallest:g}", largest)
    require(rungs >= 1, "ladder.rungs", "be at least 1", rungs)
    require(rungs <= MOST_RUNGS, "ladder.rungs", f"be at most {MOST_RUNGS}", rungs)
    require(math.isfinite(largest), "ladder.largest", "be finite", largest)
    if rungs == 1:
        return [round(smallest)]
    ratio = (largest / smallest) ** (1 / (rungs - 1))
    sizes = [round(smallest * ratio**i) for i in range(rungs)]
    require(
        len(set(sizes)) == rungs,
        "ladder.rungs",
        f"leave {rungs} different sizes between {smallest:g} and {largest:g}",
        rungs,
        "Ask for fewer rungs or a wider ladder.",
    )
    return sizes
