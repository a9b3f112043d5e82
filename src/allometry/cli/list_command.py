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
    accelerators = "accelerators"


_TITLES = {
    What.targets: "allometry run TARGET",
    What.recipes: "allometry run TARGET --family RECIPE",
    What.measures: "allometry measure REAL SAMPLES --only MEASURE",
    What.forms: "allometry fit RUNS --form FORM",
    What.constructions: "allometry construct CONSTRUCTION",
    What.accelerators: "allometry plan RUNS --hardware 8xACCELERATOR",
}


def listing(
    what: Annotated[What | None, typer.Argument(help="What to list. Default: everything.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the lists as JSON.")] = False,
) -> None:
    """List the names that commands accept: targets, recipes, measures, forms and more."""
    if json:
        names = {kind.value: _names(kind) for kind in (What if what is None else [what])}
        write_json(names if what is None else names[what.value])
        return
    for number, kind in enumerate(What if what is None else [what]):
        if number:
            out.print()
        out.print(Text(_TITLES[kind], style="bold"))
        _print(kind)


def _print(kind: What) -> None:
    """Print a table of names; for recipes one table for each kind of job."""
    tables = choices.RECIPES if kind is What.recipes else {"": _names(kind)}
    width = max(len(name) for names in tables.values() for name in names)
    for title, names in tables.items():
        if title:
            out.print(Text(f"for {title}:", style="dim"))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(min_width=min(width, 36))
        for name, description in names.items():
            table.add_row(Text(name, style="bold"), Text(description))
        out.print(table)
    if kind is What.recipes:
        for job, layers in _theory_families().items():
            line = Text(f"for {job}: ", style="dim")
            out.print(line.append(", ".join(layers), style="bold"))


def _names(kind: What) -> dict[str, str]:
    """Names with their descriptions."""
    if kind is What.recipes:
        names = {name: text for group in choices.RECIPES.values() for name, text in group.items()}
        theory = _theory_families().items()
        return names | {name: f"part of {job}" for job, parts in theory for name in parts}
    if kind is What.measures:
        return {
            name: f"{description}; {_better(choices.BETTER[name])}"
            for name, description in choices.MEASURES.items()
        }
    if kind is What.forms:
        return _forms()
    if kind is What.accelerators:
        return _accelerators()
    return choices.TARGETS if kind is What.targets else choices.CONSTRUCTIONS


def _theory_families() -> dict[str, list[str]]:
    """Layers or tasks that the jobs of theory compare."""
    from allometry.study.job_table import theory_families

    return theory_families()


def _better(word: str) -> str:
    return f"{word} is better" if word in ("lower", "higher") else f"best {word}"


_CHECKED = {
    "maker": ". Checked against the maker's text",
    "others": ". Checked against tables of others",
    "": "",
}


def _accelerators() -> dict[str, str]:
    """Accelerators with peak dense bf16 FLOP/s, memory, power and source."""
    from allometry.laws.hardware import accelerators

    return {
        a.name: f"{a.peak_flops / 1e12:g} TFLOP/s"
        + ("" if a.memory is None else f", {a.memory / 1e9:g} GB")
        + ("" if a.power is None else f", {a.power:g} W")
        + f". {a.source}"
        + _CHECKED.get(a.checked, "")
        for a in accelerators().values()
    }


def _forms() -> dict[str, str]:
    """Each form with its equation in one variable x."""
    from allometry.laws.form_names import MAKERS
    from allometry.laws.multivariate.form_library import LIBRARY

    automatic = {"auto": "chosen or averaged by backtests on the larger runs"}
    published = {
        name: f"{entry.text}  ({', '.join(f'{k}: {v}' for k, v in entry.variables.items())}; "
        f"{_source(entry.source)}, {entry.locator})"
        for name, entry in LIBRARY.items()
    }
    return automatic | {name: make("x").equation for name, make in MAKERS.items()} | published


def _source(key: str) -> str:
    """Author and year of a key of the bibliography: clark2022 is Clark (2022)."""
    name = key.rstrip("0123456789")
    return f"{name.capitalize()} et al. ({key[len(name) :]})"
