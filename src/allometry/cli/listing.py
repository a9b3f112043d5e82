"""`allometry list`."""

import enum
import inspect
from typing import Annotated, Any, final

import typer
from rich.table import Table
from rich.text import Text

from allometry.cli.output import out, write_json


@final
class What(enum.StrEnum):
    """What can be listed."""

    targets = "targets"
    recipes = "recipes"
    measures = "measures"
    forms = "forms"
    constructions = "constructions"


def listing(
    what: Annotated[What, typer.Argument(help="Which things.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What there is, with a sentence on each."""
    things = _forms() if what is What.forms else {n: _sentence(t) for n, t in _members(what)}
    if json:
        write_json(things)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, sentence in things.items():
        table.add_row(Text(name, style="bold"), sentence)
    out.print(table)


def _members(what: What) -> list[tuple[str, Any]]:
    import allometry as al

    room: Any = {
        What.targets: lambda: al.targets,
        What.recipes: lambda: al.study.recipes,
        What.measures: lambda: al.measure,
        What.constructions: lambda: al.construct,
    }[what]()
    return [(name, getattr(room, name)) for name in room.__all__]


def _sentence(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _forms() -> dict[str, str]:
    """Each form with its equation; x is its one variable."""
    from allometry.laws.catalogue import MAKERS

    made = {"auto": "chosen or averaged by backtests on the larger runs"}
    return made | {name: make("x").equation for name, make in MAKERS.items()}
