"""`allometry compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from allometry._core.errors import InputError, require
from allometry.cli import option_types
from allometry.cli.console import out, say, write_json
from allometry.cli.fit_command import CColumn, DColumn, Json, LossColumn, NColumn, Report, Where
from allometry.cli.run_options import DFrom, LossUnit, NFrom

if TYPE_CHECKING:
    from allometry.laws import RecipeComparison

Paths = Annotated[
    list[Path],
    typer.Argument(
        help="Runs of all recipes, or a file or folder per recipe; formats as for `fit`."
    ),
]
By = Annotated[
    str | None,
    typer.Option(help="Column of the recipe. Default: recipe; with several paths, their names."),
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
Budget = Annotated[str, typer.Option(help="Time of --run, such as 2h.")]
Folder = Annotated[Path, typer.Option(help="Folder of the runs of --run.")]
Workers = Annotated[
    int | None,
    typer.Option(max=option_types.LARGEST_COUNT, help="Number of worker processes of --run."),
]


def compare(
    runs: Paths,
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
    budget: Budget = "1h",
    folder: Folder = Path("runs/compare"),
    workers: Workers = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Compare recipes: the winner at a scale, and how much compute the change is worth."""
    if run:
        found, messages = _refereed(runs, at, budget, folder, workers, noise)
        _show(found, messages, report, json)
        return
    from allometry import laws

    options = {"N": n, "D": d, "C": c, "loss": loss, "where": where or ()}
    options |= {"n_from": n_from, "d_from": d_from, "unit": loss_unit}
    if len(runs) == 1 or by is not None:
        by = by or "recipe"
        tables = [_read(path, by, options) for path in runs]
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


def _refereed(
    jobs: list[Path],
    at: float | None,
    budget: str,
    folder: Path,
    workers: int | None,
    noise: float | None,
) -> "tuple[RecipeComparison, list[str]]":
    """Run the studies that FILE.py:function arguments name, until a verdict stands."""
    from allometry.study import local
    from allometry.study.jobs import study
    from allometry.study.referee import referee
    from allometry.study.schedule.study_budget import seconds_of

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
    studies = {label: study(name) for label, name in zip(labels, names, strict=True)}
    done = referee(
        studies, folder, seconds_of(budget), local(workers), at=at, noise=noise, report=say
    )
    return done.found, [f"{done.runs} runs in {done.seconds:.0f} s: {done.why}."]


def _labels(paths: list[Path]) -> dict[Path, str]:
    """A name for each path: its stem, or the path itself if stems repeat."""
    require(len(set(paths)) == len(paths), "runs", "be different paths", list(map(str, paths)))
    stems = [path.resolve().stem for path in paths]
    unique = len(set(stems)) == len(stems)
    return {p: s if unique else str(p) for p, s in zip(paths, stems, strict=True)}


def _load(path: Path, keep: tuple[str, ...], options: dict[str, Any]) -> Any:
    from allometry.laws.comparison.paired_runs import RATES
    from allometry.runs.importers import load

    return load(path, keep=(*keep, *RATES, "D_unique"), **options)


def _read(path: Path, by: str, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    imported = _load(path, (by,), options)
    columns = imported.columns
    if by not in columns:
        names = [*imported.recognised.values(), *imported.unrecognised]
        raise InputError(
            f"--by must be a column of {path}; got {by!r}. Columns: {', '.join(names[:15])}."
        )
    return columns, imported.words()


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
