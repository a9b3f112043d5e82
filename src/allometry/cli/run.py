"""`allometry run`."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allometry._core.errors import require, require_extra
from allometry._core.files import make_folder, path_inside
from allometry.cli import option_types
from allometry.cli.console import duration, err, out, say, write_json

if TYPE_CHECKING:
    from allometry.study import Bundle, Executor, Runs, Study
    from allometry.study.time_budget import TimeBudget

REPORT = 5.0
"""Seconds that laws, their intervals and the page take after the last run."""


def run(
    job: Annotated[
        str,
        typer.Argument(
            help="A text file or a folder of them, `embedded` (the prose Python carries); "
            "`domains` (one transformer on text, digits, tunes, a series); `tasks` (upstream "
            "tasks compared); `reversal`, `sorting` or `transliteration`; `universal` or `dyck` "
            "(built networks beside trained ones); `degree`, `rank` or `mixer` (what layers of "
            "degree d can express and learn); `ring` or `grid` (of Gaussians, for "
            "adversarial networks); a density: `moons`, `rings`, `digits`, ..., a CSV or npy "
            "file, a folder of images; or FILE.py:function returning a Study."
        ),
    ],
    folder: Annotated[
        Path | None, typer.Option("--folder", "-o", help="Where runs go; runs/JOB if not given.")
    ] = None,
    smallest: Annotated[
        float, typer.Option(parser=option_types.size, help="Parameters of the smallest model.")
    ] = 1e3,
    largest: Annotated[
        float, typer.Option(parser=option_types.size, help="Parameters of the largest, as 350K.")
    ] = 3.4e5,
    rungs: Annotated[int, typer.Option(help="Sizes from smallest to largest.")] = 8,
    seeds: Annotated[
        int | None,
        typer.Option(help="Repetitions of each; 2 if not given, 16 for `degree`."),
    ] = None,
    tokens: Annotated[
        list[float] | None,
        typer.Option(
            parser=option_types.data, help="Training tokens, as 2M; give it again for several."
        ),
    ] = None,
    vocabulary: Annotated[str, typer.Option(help="characters, bytes or bpe.")] = "characters",
    context: Annotated[int, typer.Option(help="Tokens a model sees.")] = 64,
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a text: transformer, ngram, mlp, rnn, lstm, gru, convolution; of a density: "
            "a flow, vae, vqvae, pixelcnn, quantiser, autoencoder, gan, pacgan2, wgan, ...; of "
            "`degree`: T_2, T_3, ...; of `tasks`: a task. Give it again for several."
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="One training of a model gives all numbers of tokens."),
    ] = False,
    rates: Annotated[
        list[float] | None,
        typer.Option(
            help="Learning rates to try at the smallest size; the best is carried to all. Give it "
            "again for several."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time to spend from now to the report, as 10min: decides the largest size."
        ),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            parser=option_types.compute, help="Or: FLOPs to spend on all trainings, as 10TFLOP."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each process.")] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Who carries the runs out: `local` (processes here), `ray` (a Ray of one's own), "
            "`ray:ADDRESS` (a running cluster: `auto`, `host:6379`, `ray://host:10001`), or "
            "`torchrun` (all processes at one model, DDP) and `torchrun:shard` (FSDP2)."
        ),
    ] = "local",
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1, mps: for runs that are not packed.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option(help="float32, bfloat16, float16, or auto: whichever is quicker.")
    ] = "float32",
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="The same digits every time on one machine: nothing is packed, one thread each.",
        ),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write events to FOLDER/tensorboard as well."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what it costs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Grow models on a job from small to large, fit the law, write a report.

    The same folder again resumes, or extends the study that is there.
    """
    from allometry.report import formatting as fmt
    from allometry.study import (
        jobs,
        recipes,
    )
    from allometry.study.execute import (
        executor_names,
    )
    from allometry.study.schedule.budget import seconds_of, within
    from allometry.study.time_budget import budgeted
    from allometry.train import DeviceSettings

    on = DeviceSettings(device, precision, deterministic)
    if rates:
        recipes.checked(rates)
    place = executor_names.executor(executor, workers=workers, threads=threads, on=on)
    study = jobs.study(
        job,
        smallest=smallest,
        largest=largest,
        rungs=rungs,
        seeds=seeds,
        tokens=tokens,
        vocabulary=vocabulary,
        context=context,
        families=family or (),
        shared=shared,
    )
    for note in getattr(study.target, "notes", ()):
        say(note)
    folder = folder or Path("runs") / study.target.name
    kept = None
    if budget is not None:
        require(flops is None, "budget", "be given either as time or as FLOPs", "both")
        same = "be given as --flops with --deterministic"
        fix = "How much fits into a time depends on the machine."
        require(not deterministic, "budget", same, budget, fix)
        kept = budgeted(study, folder, seconds_of(budget), place)
        study = kept.study
    if flops is not None:
        study = within(study, operations=flops)
    if budget is not None or flops is not None:
        token = str(study.target.describe().get("token") or "token")
        most = fmt.many(study.tokens[-1], token)
        say(f"The budget allows {_range(study)}, {most} at most.")
    for note in study.notes():
        say(note)
    with claimed(folder, dry_run=dry_run):
        if rates and not dry_run:
            least = fmt.count(study.ladder[0])
            say(f"Trying {len(rates)} learning rates at {least} parameters ...")
            study = recipes.carried(study, path_inside(folder, "rates"), rates, executor=place)
        shown = {"dry_run": dry_run, "json": json, "tensorboard": tensorboard}
        carry_out(study, folder, place, **shown, kept=kept)


@contextlib.contextmanager
def claimed(folder: Path, *, dry_run: bool) -> Iterator[None]:
    """Hold the folder's lock meanwhile, so that nobody else tries or runs anything there.

    Taken before the first trial of how long things take, which is work that a second process with
    the same command would do for nothing, and disturb the first one by.
    """
    from allometry.runs.lock import locked

    if dry_run:
        yield
        return
    fresh = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    with locked(folder):
        try:
            yield
        finally:
            # What was refused leaves no folder behind, nor one above it.
            if fresh and [path.name for path in folder.iterdir()] == ["lock"]:
                with contextlib.suppress(OSError):
                    (folder / "lock").unlink()
                    for place in fresh:
                        place.rmdir()


def _range(study: "Study") -> str:
    from allometry.report import formatting as fmt

    sizes = len(dict.fromkeys(study.ladder))
    low, high = fmt.count(study.ladder[0]), fmt.count(study.ladder[-1])
    if sizes == 1:
        return f"1 size of {fmt.many(study.ladder[0], 'parameter')}"
    return f"{sizes} sizes from {low} to {high} parameters"


def carry_out(
    study: "Study",
    folder: Path,
    executor: "Executor",
    *,
    dry_run: bool,
    json: bool,
    tensorboard: bool = False,
    kept: "TimeBudget | None" = None,
) -> None:
    """Run a study with progress, write its report, print its answer.

    The caller has claimed the folder.
    """
    if dry_run:
        _print_grid(study, folder, executor, json, kept)
        return
    if tensorboard:
        require_extra("tensorboard", "tensorboard")
    study.tasks(folder)  # refuses what can't be done, before there is a folder
    make_folder(folder)
    runs = _runs(study, folder, executor, tensorboard, kept)
    _report(folder, runs, json, executor, kept)


def _runs(
    study: "Study",
    folder: Path,
    executor: "Executor",
    tensorboard: bool,
    kept: "TimeBudget | None",
) -> "Runs":
    from allometry.cli.progress_bars import StudyProgress, both
    from allometry.study import Runs, TensorBoardLogger

    board = TensorBoardLogger(path_inside(folder, "tensorboard")) if tensorboard else None
    schedule, tasks, when = None, study.tasks(folder), ""
    if kept is not None:
        kept.study = study
        if kept.spent:
            say(f"The budget is spent: {duration(kept.before)}. A larger one goes on from here.")
            return Runs(folder)
        schedule = kept.schedule(folder)
        whole = kept.expected(folder)
        assert kept.queue is not None
        tasks = [task for bundle in kept.queue for task in bundle.tasks]
        when = f": about {duration(whole)} with the report"
        kept.save(folder)
    elif executor.packs:
        sizes = {"workers": executor.workers, "threads": executor.threads}
        precision = executor.on.packed
        # On a terminal alone, and gone when it is done: no screen should stand still for a minute.
        with err.status("Trying how long steps take here ...") as status:
            more = {"precision": precision, "deterministic": executor.on.deterministic}
            schedule = study.schedule(folder, **sizes, **more, tell=status.update)
        whole = duration(schedule.seconds + REPORT)
        tasks, when = schedule.tasks, f": about {whole} with the report"
    if tasks:
        on = f"{len(tasks)} runs on {study.target.name} with {executor.workers} workers"
        say(f"{on}{when}. Results go to {folder}.")
    try:
        # Whoever prints meanwhile must not speak into the answer.
        watching = StudyProgress(tasks, executor.workers)
        with contextlib.redirect_stdout(sys.stderr), watching as progress:
            watch = progress if board is None else both(progress, board)
            if kept is not None:
                watch = both(watch, kept.watch(folder))
            how = {"schedule": schedule, "allot": None if kept is None else kept.allot}
            return study.run(folder, executor, watch=watch, held=True, **how)
    except KeyboardInterrupt:
        say("Stopped. The same command goes on from here.")
        raise typer.Exit(130) from None
    finally:
        if kept is not None:
            kept.save(folder)
            if kept.queue is not None and kept.queue.dropped:
                say(left_out(kept.queue.dropped))


def _report(
    folder: Path, runs: "Runs", json: bool, executor: "Executor", kept: "TimeBudget | None"
) -> None:
    from allometry import report
    from allometry.cli.study_json import plain
    from allometry.report.terminal import closing

    started = time.process_time()
    story = report.tell(runs)
    path = report.write(folder / "report.html", runs, story=story)
    if json:
        write_json(plain(story))
    else:
        out.print(closing(story))
    say(f"Report: {path}")
    frame = runs.frame()
    if kept is not None:
        kept.costs.learn_report(len(kept.study.specs()), time.process_time() - started)
        kept.costs.save(executor.workers, executor.threads)
        kept.save(folder)
    failed = int((frame["status"] != "done").sum())
    if failed:
        say(f"{failed} runs failed or diverged; the report says why.")
        raise typer.Exit(1)


def left_out(bundles: "Sequence[Bundle]") -> str:
    """Which runs were left out to keep to a budget, in a sentence."""
    requests = [task.spec() for bundle in bundles for task in bundle.tasks]
    names = Counter(f"{r.columns['family']} {r.columns['shape']}" for r in requests)
    some = [f"{name} ({number})" for name, number in names.most_common(4)]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    runs = "1 run" if len(requests) == 1 else f"{len(requests)} runs"
    return f"Left out to keep to the budget: {runs}, {', '.join(some)}{more}."


def _print_grid(
    study: "Study", folder: Path, executor: "Executor", json: bool, kept: "TimeBudget | None"
) -> None:
    from allometry.cli.dry_run import grid
    from allometry.study.schedule import measured_costs as known
    from allometry.study.schedule.budget import START, span
    from allometry.study.tasks import Task, alone

    workers = executor.workers
    costs = kept.costs if kept is not None else known.load(workers, executor.threads)
    rows = study.rows()
    specs = {spec.key: spec for spec in study.specs()}
    for row in rows:
        row["seconds"] = costs.seconds(alone(Task(specs[row["key"]], row["seconds"])))
    if json:
        write_json(rows)
        return
    out.print(grid(rows))
    whole = span(study, costs, workers, packs=executor.packs) + START + costs.report(len(rows))
    if kept is not None:
        whole = min(whole, max(kept.seconds - kept.before, 0.0))
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    crew = "1 worker" if workers == 1 else f"{workers} workers"
    say(f"{runs}, about {duration(whole)} with {crew} and the report.")
