"""A loss in several units: nats, bits and perplexity, with intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt
from allometry.report.cells import Cell, Head, Table, estimate

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis

_COUNTED = ("character", "token", "byte", "symbol")
"""Units that have a perplexity: discrete symbols, not real numbers."""


@final
@dataclass(frozen=True)
class Unit:
    """Another unit of a loss.

    Args:
        name: The unit's name.
        of: Converts an estimate from the study's own unit.
        write: Formats its numbers.
    """

    name: str
    of: Callable[[Estimate], Estimate]
    write: fmt.Writer = fmt.loss


def others(
    unit: str, characters: float | None = None, dimensions: int | None = None
) -> tuple[Unit, ...]:
    r"""The other units of a loss.

    Nats divided by $\ln 2$ are bits, and $e^{\text{nats}}$ is the perplexity: the number of
    equally likely symbols with that entropy.

    Args:
        unit: Unit of the loss, such as `nats per character`.
        characters: Characters per token, if the unit is per token.
        dimensions: Dimensions of an image, if the unit is per dimension.
    """
    what, _, per = unit.partition(" per ")
    if unit == "bits per dimension":
        nats = Unit("nats per dimension", _times(math.log(2)))
        whole = [] if dimensions is None else [dimensions * math.log(2)]
        return (nats, *(Unit("nats per image", _times(x), _rounded) for x in whole))
    if what != "nats" or per not in _COUNTED:
        return ()
    units = [Unit(f"bits per {per}", _times(1 / math.log(2)))]
    if per != "character" and characters is not None:
        units.append(Unit("bits per character", _times(1 / (math.log(2) * characters))))
    return (*units, Unit("perplexity", _perplexity, _rounded))


def _rounded(x: float) -> str:
    if x >= 1e9:
        return f"{x:.3g}"
    return fmt.significant(x, 3, trim=False) if x < 100 else f"{x:.1f}"


def _times(factor: float) -> Callable[[Estimate], Estimate]:
    return lambda loss: loss.through(lambda x: factor * x, factor)


def _perplexity(loss: Estimate) -> Estimate:
    return loss.through(_exp, _exp(loss.value))


def _exp(x: float) -> float:
    """e^x, at most about 1e304: a broken model's loss may be anything."""
    return math.exp(min(x, 700.0))


def aside(loss: float, unit: str) -> str:
    """A loss in the other units, to print in brackets; empty if there are none."""
    values = ((u.name, u.write(u.of(Estimate(loss)).value)) for u in others(unit))
    return ", ".join(
        f"{name} {value}" if name == "perplexity" else f"{value} {name}" for name, value in values
    )


def table(analysis: "Analysis") -> Table | None:
    """The best of each family on validation and test, and its forecast, in all units."""
    more = others(analysis.unit, analysis.characters, analysis.dimensions)
    if not more or analysis.best is None:
        return None
    rows: list[tuple[Cell, ...]] = []
    laws = {f.name: f for f in analysis.families}
    bests = [*(f.best for f in analysis.families), *analysis.counted]
    for best in sorted(bests, key=lambda c: c.loss.value):
        losses: list[tuple[str, Estimate]] = [("validation", best.loss)]
        losses += [("test", best.test)] if best.test is not None else []
        if best.family in laws:
            larger = (r for r in laws[best.family].reaches if r.label == "10×")
            losses += [("10× compute, predicted", r.loss) for r in larger]
        for where, loss in losses:
            cells = (estimate(u.of(loss), u.write) for u in more)
            name = Cell(fmt.family(best.family), kind="tight")
            rows.append((name, Cell(where, kind="tight"), estimate(loss, fmt.loss), *cells))
    names = [analysis.unit, *(u.name for u in more)]
    heads = (
        Head("Family", kind="tight"),
        Head("Data", kind="tight"),
        *(Head(n[:1].upper() + n[1:], "95 % interval", "num") for n in names),
    )
    return Table(f"The same loss in {fmt.small(len(names))} units", heads, tuple(rows))
