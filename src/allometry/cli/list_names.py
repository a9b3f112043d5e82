"""`allometry list`."""

import enum
from typing import Annotated, final

import typer
from rich.table import Table
from rich.text import Text

from allometry.cli import choices
from allometry.cli.console import out, write_json


@final
class What(enum.StrEnum):
    """What can be listed."""

    targets = "targets"
    recipes = "recipes"
    measures = "measures"
    forms = "forms"
    constructions = "constructions"


_TITLES = {
    What.targets: "allometry run TARGET",
    What.recipes: "allometry run TARGET --family RECIPE",
    What.measures: "allometry measure REAL SAMPLES --only MEASURE",
    What.forms: "allometry fit RUNS --form FORM",
    What.constructions: "allometry construct CONSTRUCTION",
}


def listing(
    what: Annotated[What | None, typer.Argument(help="Which things; all if not given.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List what the commands accept by name: targets, recipes, measures, forms, constructions."""
    if json:
        found = {kind.value: _things(kind) for kind in What}
        write_json(found if what is None else found[what.value])
        return
    for number, kind in enumerate(What if what is None else [what]):
        if number:
            out.print()
        out.print(Text(_TITLES[kind], style="bold"))
        _print(kind)


def _print(kind: What) -> None:
    """A table of names; recipes one for each kind of job."""
    parts = choices.RECIPES if kind is What.recipes else {"": _things(kind)}
    width = max(len(name) for things in parts.values() for name in things)
    for title, things in parts.items():
        if title:
            out.print(Text(f"of {title}:", style="dim"))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(min_width=min(width, 36))
        for name, sentence in things.items():
            table.add_row(Text(name, style="bold"), Text(sentence))
        out.print(table)
    if kind is What.recipes:
        for job, names in _questions().items():
            words = Text(f"of {job}: ", style="dim")
            out.print(words.append(", ".join(names), style="bold"))


def _things(kind: What) -> dict[str, str]:
    if kind is What.recipes:
        named = {name: w for things in choices.RECIPES.values() for name, w in things.items()}
        return named | {
            n: f"layers of {job}" for job, names in _questions().items() for n in names
        }
    if kind is What.measures:
        return _measures()
    if kind is What.forms:
        return _forms()
    return choices.TARGETS if kind is What.targets else choices.CONSTRUCTIONS


def _questions() -> dict[str, list[str]]:
    """Layers that the questions of degree, rank and Mixer may be confined to."""
    from allometry.study.theory_studies import families

    return families()


def _measures() -> dict[str, str]:
    """Each measure with what of it is better."""
    from allometry.measure.catalogue import ENTRIES

    better = {name: e.better[name] for e in ENTRIES for name in e.names}
    return {
        name: f"{choices.MEASURES.get(name, name)}; {_better(b)}" for name, b in better.items()
    }


def _better(word: str) -> str:
    return f"{word} is better" if word in ("lower", "higher") else f"best {word}"


def _forms() -> dict[str, str]:
    """Each form with its equation; x is its one variable."""
    from allometry.laws.form_names import MAKERS

    made = {"auto": "chosen or averaged by backtests on the larger runs"}
    return made | {name: make("x").equation for name, make in MAKERS.items()}
