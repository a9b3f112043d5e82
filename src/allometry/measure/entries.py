"""An entry of the catalogue: a metric, its feature space, orientation and bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from allometry._core.estimate import Estimate
from allometry.measure.context import MeasureContext

INF = float("inf")


@final
@dataclass(frozen=True)
class Entry:
    """One or more metrics that are computed together.

    Args:
        number: Number in Borji's survey; 0 if not listed there.
        names: Names of the estimates that `run` returns.
        run: Function of a context that returns estimates by name.
        better: For each name `lower`, `higher`, or `near V` with V the value of a perfect model.
        bounds: Range of the value, for each name.
        where: Feature space: `features`, `data`, `classifier` or `pixels`.
    """

    number: int
    names: tuple[str, ...]
    run: Callable[[MeasureContext], dict[str, Estimate]]
    better: Mapping[str, str]
    bounds: Mapping[str, tuple[float, float]]
    where: str = "features"

    def matches(self, wanted: str) -> bool:
        """Whether `wanted` is one of the names or a prefix of one."""
        return any(name.startswith(wanted) for name in self.names)

    def space(self, case: MeasureContext) -> str:
        """Name of the feature space, shown beside the value."""
        if self.where == "features":
            return case.features.name
        return case.classifier[0] if self.where == "classifier" else self.where


def entry(
    number: int,
    run: Callable[[MeasureContext], "Estimate | dict[str, Estimate]"],
    where: str = "features",
    **names: tuple[str, float, float],
) -> Entry:
    """An entry from `name=(better, lowest, highest)`; `run` may return one bare estimate."""
    first = next(iter(names))

    def all_of(case: MeasureContext) -> dict[str, Estimate]:
        found = run(case)
        return {first: found} if isinstance(found, Estimate) else found

    return Entry(
        number,
        tuple(names),
        all_of,
        {name: better for name, (better, _, _) in names.items()},
        {name: (low, high) for name, (_, low, high) in names.items()},
        where,
    )
