"""`allometry compare`."""

import difflib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from allometry._core.errors import InputError, require
from allometry.cli import option_types
from allometry.cli import own_training_options as own
from allometry.cli.console import counted, duration, out, say, write_json
from allometry.cli.fit_command import CColumn, DColumn, Json, LossColumn, NColumn, Report, Where
from allometry.cli.run_options import DFrom, LossUnit, NFrom

if TYPE_CHECKING:
    from allometry.laws import RecipeComparison
    from allometry.study import Study

MOST_FOUND = 12
"""Most recipes in a column that is found without --by."""

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Runs of all recipes, or a file or folder per recipe; formats as for `fit`. Left "
        "out with --command."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help="Column of the recipe. Default: recipe, or the only column with a few words; with "
        "several paths, their names."
    ),
]
At = Annotated[
    float | None,
    typer.Option(
        parser=option_types.compute,
        metavar="FLOPS",
        help="Scale to judge at, such as 1e21. Default: the largest that was measured.",
    ),
]
Noise = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Standard deviation of the log loss between seeds, if known from elsewhere, such as "
        "0.003. A few runs without replicates can then decide. Default: estimated from the runs.",
    ),
]

Run = Annotated[
    bool,
    typer.Option(
        "--run", help="RUNS are FILE.py:function of studies: run them until a verdict stands."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(help="Time of --run or --command from now on, such as 2h. Default: 1h."),
]
Folder = Annotated[
    Path | None,
    typer.Option(help="Folder of the runs of --run or --command. Default: runs/compare."),
]
Workers = Annotated[
    int | None,
    typer.Option(max=option_types.LARGEST_COUNT, help="Worker processes of --run or --command."),
]


def compare(
    runs: Paths = None,
    by: By = None,
    at: At = None,
    n: NColumn = None,
    d: DColumn = None,
    c: CColumn = None,
    loss: LossColumn = None,
    where: Where = None,
    n_from: NFrom = None,
    d_from: DFrom = None,
    loss_unit: LossUnit = None,
    noise: Noise = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=option_types.LARGEST_SEED, help="Seed of the draws."),
    ] = 0,
    run: Run = False,
    budget: Budget = None,
    folder: Folder = None,
    workers: Workers = None,
    command: own.Commands = None,
    metric: own.Metric = "json:loss",
    shapes: own.Shapes = None,
    rates: own.Rates = None,
    name: own.Names = None,
    n_metric: own.NMetric = None,
    flops_metric: own.FlopsMetric = None,
    timeout: own.Timeout = "24h",
    retries: own.Retries = 1,
    report: Report = None,
    json: Json = False,
) -> None:
    """Compare recipes: the winner at a scale, and how much compute the change is worth."""
    if command:
        fix = "Give the recipes as commands, or as RUNS."
        require(not runs, "runs", "be left out with --command", [str(r) for r in runs or ()], fix)
        studies = own.studies(
            command, name, shapes, metric=metric, rates=rates or (), n_metric=n_metric,
            flops_metric=flops_metric, timeout=timeout, retries=retries,
        )  # fmt: skip
    else:
        fix = "Give a table, a file or folder per recipe, or --command."
        require(bool(runs), "runs", "be given", None, fix)
        given = next((k for k, v in (("shapes", shapes), ("name", name)) if v), None)
        require(given is None, f"{given}", "be given with --command only", shapes or name)
        studies = _studies(runs or []) if run else None
    if studies is not None:
        found, messages = _refereed(studies, at, budget, folder, workers, noise)
        _show(found, messages, report, json)
        return
    assert runs is not None
    lonely = next((k for k, v in (("budget", budget), ("folder", folder)) if v is not None), None)
    fix = "Give --run with studies, or --command; see `allometry compare --help`."
    require(lonely is None, f"{lonely}", "be given with --run or --command only",
            budget or folder, fix)  # fmt: skip
    job = next((str(path) for path in runs if re.search(r"\.py:\w+$", str(path))), None)
    fix = "Give --run to run studies."
    require(job is None, "runs", "be files or folders of runs without --run", job, fix)
    from allometry import laws

    options = {"N": n, "D": d, "C": c, "loss": loss, "where": where or ()}
    options |= {"n_from": n_from, "d_from": d_from, "unit": loss_unit}
    if len(runs) == 1 or by is not None:
        tables = [_read(path, by, options) for path in runs]
        by = by or "recipe"
    else:
        by = "recipe"
        tables = [_named(path, label, options) for path, label in _labels(runs).items()]
    frame, messages = _joined(tables)
    _show(laws.compare_recipes(frame, by, at, noise=noise, seed=seed), messages, report, json)


def _show(found: "RecipeComparison", messages: list[str], report: Path | None, json: bool) -> None:
    """Write the page, then the messages and the answer."""
    if report is not None:
        from allometry.report import comparison

        messages.append(f"Charts: {comparison.write(report, found)}")
    for sentence in messages:
        say(sentence)
    if json:
        write_json(found.to_dict())
        return
    from allometry.report.terminal import comparison_table

    out.print(comparison_table(found))


def _studies(jobs: list[Path]) -> "dict[str, Study]":
    """The studies that FILE.py:function arguments name."""
    from allometry.study.jobs import study

    names = [str(job) for job in jobs]
    fix = "Write: allometry compare --run a.py:study b.py:study."
    several = len(set(names)) == len(names) >= 2
    require(several, "runs", "be two or more different FILE.py:function with --run", names, fix)
    for name in names:
        file, _, function = name.rpartition(":")
        made = file.endswith(".py") and bool(function)
        require(made, "runs", "be FILE.py:function with --run", name, fix)
    stems = [Path(name.rpartition(":")[0]).stem for name in names]
    functions = [name.rpartition(":")[2] for name in names]
    pairs = zip(stems, functions, strict=True)
    labels = stems if len(set(stems)) == len(stems) else [f"{s}-{f}" for s, f in pairs]
    return {label: study(name) for label, name in zip(labels, names, strict=True)}


def _refereed(
    studies: "dict[str, Study]",
    at: float | None,
    budget: str | None,
    folder: Path | None,
    workers: int | None,
    noise: float | None,
) -> "tuple[RecipeComparison, list[str]]":
    """Run studies until a verdict stands."""
    from allometry.study import local
    from allometry.study.referee import referee
    from allometry.study.schedule.study_budget import seconds_of

    seconds, folder = seconds_of(budget or "1h"), folder or Path("runs/compare")
    try:
        done = referee(studies, folder, seconds, local(workers), at=at, noise=noise, report=say)
    except KeyboardInterrupt:
        say("Stopped. The same command resumes from here.")
        raise typer.Exit(130) from None
    ended = f"{counted(done.runs, 'run')} in {duration(done.seconds)}: {done.why}."
    return done.found, [*done.notes, ended]


def _labels(paths: list[Path]) -> dict[Path, str]:
    """A name for each path: its stem, or the path itself if stems repeat."""
    require(len(set(paths)) == len(paths), "runs", "be different paths", list(map(str, paths)))
    stems = [path.resolve().stem for path in paths]
    unique = len(set(stems)) == len(stems)
    return {p: s if unique else str(p) for p, s in zip(paths, stems, strict=True)}


def _load(path: Path, keep: tuple[str, ...], options: dict[str, Any]) -> Any:
    from allometry.laws.comparison.repeated_rows import RATES
    from allometry.runs.importers import load

    return load(path, keep=(*keep, *RATES, "D_unique"), **options)


def _read(path: Path, by: str | None, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    imported = _load(path, (by or "recipe",), options)
    columns = imported.columns
    if by is None and "recipe" not in columns:
        return _found(path, imported, options)
    name = by or "recipe"
    if name not in columns:
        names = [*imported.recognised.values(), *imported.unrecognised]
        near = difflib.get_close_matches(name.lower(), [str(n).lower() for n in names], 1, 0.7)
        alike = next((n for n in names if near and str(n).lower() == near[0]), None)
        fix = "" if alike is None else f" Did you mean {alike}?"
        raise InputError(
            f"--by must be the recipe's column of {path}; got {name!r}. Columns: "
            f"{', '.join(names[:15])}.{fix}"
        )
    return columns | {name: _labelled(columns[name], name)}, imported.words()


def _found(path: Path, imported: Any, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The runs by the only column of words that can be the recipe."""
    columns = _load(path, tuple(imported.unrecognised), options).columns
    known = {name: columns[name] for name in ("family", *imported.unrecognised) if name in columns}
    few = [name for name, values in known.items() if _may_be_recipe(values)]
    if len(few) != 1:
        fix = (
            f"Columns with a few words: {', '.join(few[:8])}." if few else "None has a few words."
        )
        raise InputError(
            f"--by must name the recipe's column of {path}, which has no column 'recipe'. {fix}"
        )
    chosen = _load(path, (few[0],), options)
    labels = _labelled(chosen.columns[few[0]], few[0])
    names = ", ".join(dict.fromkeys(map(str, labels)))
    note = f"Recipes from {few[0]!r}: {names}."
    return chosen.columns | {"recipe": labels}, [*chosen.words(), note]


def _may_be_recipe(values: np.ndarray) -> bool:
    """Whether a column has 2 to 12 different words, each of them several times."""
    words = [str(v).strip() for v in values]
    kinds = Counter(words)
    numeric = all(re.fullmatch(r"[-+0-9.eE]*|nan", word) for word in kinds)
    return not numeric and 2 <= len(kinds) <= MOST_FOUND and min(kinds.values()) >= 2


def _labelled(values: np.ndarray, name: str) -> np.ndarray:
    """Names of recipes; true and false alone would not say of what."""
    words = {str(v).strip().lower() for v in values}
    if not words <= {"true", "false", "yes", "no"}:
        return values
    return np.array([f"{name}={v}" for v in values], object)


def _named(path: Path, label: str, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    imported = _load(path, (), options)
    columns = imported.columns
    return columns | {"recipe": np.full(len(columns["loss"]), label, object)}, imported.words()


def _joined(
    tables: list[tuple[dict[str, Any], list[str]]],
) -> tuple[dict[str, Any], list[str]]:
    """One table of the columns that all have, and every message once."""
    shared = [name for name in tables[0][0] if all(name in table for table, _ in tables)]
    frame = {name: np.concatenate([table[name] for table, _ in tables]) for name in shared}
    return frame, list(dict.fromkeys(text for _, texts in tables for text in texts))
