"""One likelihood in several units: nats, bits and perplexity, with their intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt
from allometry.report.tables import Cell, Head, Table, estimate

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis

_COUNTED = ("character", "token", "byte", "symbol")
"""What a perplexity can be per: something drawn from a list, not a real number."""


@final
@dataclass(frozen=True)
class Unit:
    """Another unit of a loss.

    Args:
        name: As one writes it.
        of: The estimate in it, from the one in the study's own unit.
        write: How its numbers are written.
    """

    name: str
    of: Callable[[Estimate], Estimate]
    write: fmt.Writer = fmt.loss


def others(
    unit: str, characters: float | None = None, dimensions: int | None = None
) -> tuple[Unit, ...]:
    r"""The other units that a loss can be told in.

    Nats divided by $\ln 2$ are bits, and $e^{\text{nats}}$ is the perplexity: among how many
    equally likely symbols one would be as unsure.

    Args:
        unit: Of the loss, such as `nats per character`.
        characters: That a token stands for, where the unit is per token.
        dimensions: That an image has, where the unit is per dimension.
    """
    what, _, per = unit.partition(" per ")
    if unit == "bits per dimension":
        nats = Unit("nats per dimension", _times(math.log(2)))
        whole = [] if dimensions is None else [dimensions * math.log(2)]
        return (nats, *(Unit("nats per image", _times(x), _rounded) for x in whole))
    if what != "nats" or per not in _COUNTED:
        return ()
    made = [Unit(f"bits per {per}", _times(1 / math.log(2)))]
    if per != "character" and characters is not None:
        made.append(Unit("bits per character", _times(1 / (math.log(2) * characters))))
    return (*made, Unit("perplexity", _perplexity, _rounded))


def _rounded(x: float) -> str:
    return fmt.significant(x, 3, trim=False) if x < 100 else f"{x:.1f}"


def _times(factor: float) -> Callable[[Estimate], Estimate]:
    return lambda loss: loss.through(lambda x: factor * x, factor)


def _perplexity(loss: Estimate) -> Estimate:
    return loss.through(math.exp, math.exp(loss.value))


def aside(loss: float, unit: str) -> str:
    """A loss in the other units, for brackets behind it; empty where there are none."""
    plain = Estimate(loss)
    told = ((u.name, u.write(u.of(plain).value)) for u in others(unit))
    return ", ".join(
        f"{name} {value}" if name == "perplexity" else f"{value} {name}" for name, value in told
    )


def table(story: "Analysis") -> Table | None:
    """The best of each family on validation and test, and what its law expects, in all units."""
    more = others(story.unit, story.characters, story.dimensions)
    if not more or story.best is None:
        return None
    rows: list[tuple[Cell, ...]] = []
    laws = {f.name: f for f in story.families}
    bests = [*(f.best for f in story.families), *story.counted]
    for best in sorted(bests, key=lambda c: c.loss.value):
        told: list[tuple[str, Estimate]] = [("validation", best.loss)]
        told += [("test", best.test)] if best.test is not None else []
        if best.family in laws:
            reached = (r for r in laws[best.family].reaches if r.label == "10×")
            told += [("10× compute, by its law", r.loss) for r in reached]
        for where, loss in told:
            cells = (estimate(u.of(loss), u.write) for u in more)
            name = Cell(fmt.family(best.family), kind="tight")
            rows.append((name, Cell(where, kind="tight"), estimate(loss, fmt.loss), *cells))
    names = [story.unit, *(u.name for u in more)]
    heads = (
        Head("Best of", kind="tight"),
        Head("On", kind="tight"),
        *(Head(n[:1].upper() + n[1:], "95 % interval", "num") for n in names),
    )
    return Table(f"The same likelihood in {fmt.small(len(names))} units", heads, tuple(rows))
