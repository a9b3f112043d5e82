"""An entry of the catalogue: a measure, where it is taken, and what is known of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from allometry._core.estimate import Estimate
from allometry.measure.context import MeasureContext

INF = float("inf")


@final
@dataclass(frozen=True)
class Entry:
    """One line of Borji's list, or beyond it.

    Args:
        number: In Borji's list; 0 beyond it.
        names: Of what `run` returns.
        run: From a case to estimates by name.
        better: For each name `lower`, `higher`, or `near V` with V the value of a perfect model.
        bounds: Of the value, for each name.
        where: `features`, `data`, `classifier` or `pixels`.
    """

    number: int
    names: tuple[str, ...]
    run: Callable[[MeasureContext], dict[str, Estimate]]
    better: Mapping[str, str]
    bounds: Mapping[str, tuple[float, float]]
    where: str = "features"

    def matches(self, wanted: str) -> bool:
        """Whether a name, or the beginning of one, is meant."""
        return any(name.startswith(wanted) for name in self.names)

    def space(self, case: MeasureContext) -> str:
        """What stands beside the number."""
        if self.where == "features":
            return case.features.name
        return case.classifier[0] if self.where == "classifier" else self.where


def entry(
    number: int,
    run: Callable[[MeasureContext], "Estimate | dict[str, Estimate]"],
    where: str = "features",
    **names: tuple[str, float, float],
) -> Entry:
    """An entry from `name=(better, lowest, highest)`; `run` may give one estimate for one name."""
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
