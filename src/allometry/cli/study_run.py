"""Carry out a study for `allometry run` and `allometry demo`: budget, progress, report."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import typer
from rich.table import Table

from allometry._core.errors import require, require_extra
from allometry._core.files import make_folder, path_inside
from allometry.cli.console import counted, duration, err, out, say, write_json

if TYPE_CHECKING:
    from allometry.study import Event, Executor, Runs, Schedule, Study
    from allometry.study.execute.time_limited_queue import TimeLimitedQueue
    from allometry.study.tasks import Bundle, Task
    from allometry.study.time_budget import TimeBudget

REPORT_SECONDS = 5.0
"""Time for scaling laws, their intervals and the page after the last run."""


@final
@dataclass
class StudyRun:
    """A study with the folder, executor, budget and output of one command.

    Args:
        study: What to run.
        folder: Where journal, weights and report go.
        executor: Carries the runs out.
        dry_run: Only print the runs and their estimated cost.
        json: Print JSON instead of text.
        tensorboard: Write TensorBoard events as well.
        time_budget: Set by `limit_time`.
    """

    study: "Study"
    folder: Path
    executor: "Executor"
    dry_run: bool = False
    json: bool = False
    tensorboard: bool = False
    time_budget: "TimeBudget | None" = None

    def limit(self, budget: str | None, flops: float | None, *, deterministic: bool) -> None:
        """Restrict the study to a budget of time (`"10min"`) or of FLOPs, if one is given."""
        from allometry.report import formatting as fmt
        from allometry.study.schedule.study_budget import seconds_of, within
        from allometry.study.time_budget import budgeted

        if budget is None and flops is None:
            return
        if budget is not None:
            require(flops is None, "budget", "be given either as time or as FLOPs", "both")
            constraint = "be given as --flops with --deterministic"
            fix = "How much fits into a time depends on the machine."
            require(not deterministic, "budget", constraint, budget, fix)
            seconds = seconds_of(budget)
            self.time_budget = budgeted(self.study, self.folder, seconds, self.executor)
            self.study = self.time_budget.study
            if self.time_budget.own:
                return
        if flops is not None:
            self.study = within(self.study, operations=flops)
        token = str(self.study.target.describe().get("token") or "token")
        tokens = fmt.many(self.study.tokens[-1], token)
        if len(self.study.ladder) > 1:
            say(f"The budget allows {_size_range(self.study)}, {tokens} at most.")
        else:
            say(f"The budget allows {tokens} at most.")

    def execute(self, rates: Sequence[float] = ()) -> None:
        """Run the study with progress, write its report and print its answer.

        Args:
            rates: Learning rates to compare at the smallest size first; the best is used.
        """
        from allometry.study.execute.executors import LocalExecutor

        with lock_folder(self.folder, dry_run=self.dry_run):
            if self.dry_run:
                self.print_grid()
                return
            if rates:
                self._choose_rate(rates)
            if self.tensorboard:
                require_extra("tensorboard", "tensorboard")
            # Refuses an invalid study before its folder exists.
            if self.study.tasks(self.folder) and isinstance(self.executor, LocalExecutor):
                self.executor.warm_up()
            make_folder(self.folder)
            self._report(self._train(page=True))

    def train(self) -> "Runs":
        """Run the study with progress, without a report."""
        with lock_folder(self.folder, dry_run=False):
            self.study.tasks(self.folder)
            make_folder(self.folder)
            return self._train(page=False)

    def _choose_rate(self, rates: Sequence[float]) -> None:
        from allometry.report import formatting as fmt
        from allometry.study import recipes

        smallest = fmt.count(self.study.ladder[0])
        say(f"Trying {len(rates)} learning rates at {smallest} parameters ...")
        folder = path_inside(self.folder, "rates")
        self.study = recipes.carried(self.study, folder, rates, executor=self.executor)

    def _train(self, *, page: bool) -> "Runs":
        """Run the study; `page`: show its losses where the report will be."""
        from allometry.cli.progress_bars import StudyProgress, both
        from allometry.cli.running_report import RunningReport
        from allometry.study import Runs, TensorBoardLogger

        logger = (
            TensorBoardLogger(path_inside(self.folder, "tensorboard"))
            if self.tensorboard
            else None
        )
        budget = self.time_budget
        if budget is not None:
            budget.study = self.study
            if budget.spent:
                say(f"The budget is spent: {duration(budget.before)}. Give a larger one to go on.")
                return Runs(self.folder)
        schedule, tasks, seconds = self._schedule()
        if tasks:
            runs, workers = counted(len(tasks), "run"), counted(self.executor.workers, "worker")
            estimate = "" if seconds is None else f": about {duration(seconds)} with the report"
            say(
                f"{runs} on {self.study.target.name} with {workers}{estimate}. "
                f"Results go to {self.folder}."
            )
        progress = StudyProgress(tasks, self.executor.workers)
        shown = RunningReport(self.folder, self.study, progress) if page else None
        try:
            # Standard output is for the answer alone, also if a library prints meanwhile.
            with contextlib.redirect_stdout(sys.stderr), progress:
                watchers: list[Callable[[Event], None]] = [progress]
                watchers += [] if shown is None else [shown]
                watchers += [] if logger is None else [logger]
                watchers += [] if budget is None else [budget.watch(self.folder)]
                return self.study.run(
                    self.folder,
                    self.executor,
                    watch=both(*watchers),
                    schedule=schedule,
                    lock_held=True,
                    make_queue=None if budget is None else budget.make_queue,
                )
        except KeyboardInterrupt:
            if shown is not None:
                shown.write(stopped=True)
            say("Stopped. The same command resumes from here.")
            raise typer.Exit(130) from None
        finally:
            if budget is not None:
                budget.save(self.folder)
                if budget.queue is not None:
                    self._say_left_out(budget.queue)

    def _say_left_out(self, queue: "TimeLimitedQueue") -> None:
        """Say what the budget left out, and what it stopped."""
        if queue.interrupted:
            say(left_out(queue.interrupted, "Stopped at the end of the budget"))
        if queue.dropped:
            say(left_out(queue.dropped))

    def _schedule(self) -> "tuple[Schedule | None, list[Task], float | None]":
        """The schedule, its tasks, and the estimated seconds until the report is written."""
        budget, executor = self.time_budget, self.executor
        if budget is not None:
            schedule = budget.schedule(self.folder)
            seconds = budget.expected(self.folder) if budget.costs.known else None
            if budget.queue is None:
                budget.make_queue(schedule.bundles)
            assert budget.queue is not None
            tasks = [task for bundle in budget.queue for task in bundle.tasks]
            budget.save(self.folder)
            return schedule, tasks, seconds
        # A user's own code is not started only to be timed.
        if not executor.packs or not getattr(self.study.target, "profiled", True):
            return None, self.study.tasks(self.folder), None
        # Profiling takes up to a minute: show what happens, on a terminal only.
        with err.status("Profiling step times on this machine ...") as status:
            schedule = self.study.schedule(
                self.folder,
                workers=executor.workers,
                threads=executor.threads,
                precision=executor.on.packed,
                device=executor.on.resolved().device,
                deterministic=executor.on.deterministic,
                report=status.update,
            )
        return schedule, list(schedule.tasks), schedule.seconds + REPORT_SECONDS

    def _report(self, runs: "Runs") -> None:
        from allometry import report
        from allometry.cli.study_json import plain
        from allometry.report.terminal import closing

        started = time.process_time()
        analysis = report.analyse(runs)
        path = report.write(self.folder / "report.html", runs, analysis=analysis)
        if self.json:
            write_json(plain(analysis))
        else:
            out.print(closing(analysis))
        say(f"Report: {path}")
        frame = runs.frame()
        budget = self.time_budget
        if budget is not None:
            budget.costs.learn_report(len(budget.study.specs()), time.process_time() - started)
            budget.costs.save(self.executor.workers, self.executor.threads)
            budget.save(self.folder)
        failed = int((frame["status"] != "done").sum())
        if failed:
            say(f"{counted(failed, 'run')} failed or diverged; see the report for the reasons.")
            raise typer.Exit(1)

    def print_grid(self) -> None:
        """Print the runs with their estimated cost."""
        from allometry.study.own_training.own_costs import costs_of
        from allometry.study.schedule import measured_costs
        from allometry.study.schedule.study_budget import START, span
        from allometry.study.tasks import Task, single

        budget, workers = self.time_budget, self.executor.workers
        machine = measured_costs.load(workers, self.executor.threads)
        costs = costs_of(self.study, self.folder, machine) if budget is None else budget.costs
        rows = self.study.rows()
        specs = {spec.key: spec for spec in self.study.specs()}
        for row in rows:
            task = Task(specs[row["key"]], row["seconds"])
            row["seconds"] = costs.seconds(single(task)) if costs.known else None
        if self.json:
            write_json(rows)
            return
        out.print(grid(rows))
        if not costs.known:
            say(f"{counted(len(rows), 'run')}. Their runtime is estimated once one has finished.")
            return
        seconds = span(self.study, costs, workers, packs=self.executor.packs)
        seconds += START + costs.report(len(rows))
        if budget is not None:
            seconds = min(seconds, max(budget.seconds - budget.before, 0.0))
        runs, processes = counted(len(rows), "run"), counted(workers, "worker")
        say(f"{runs}, about {duration(seconds)} with {processes} and the report.")


@contextlib.contextmanager
def lock_folder(folder: Path, *, dry_run: bool) -> Iterator[None]:
    """Hold the folder's lock, so that no other process profiles or runs anything there.

    A dry run takes no lock. If the block fails before it has written anything, the folder is
    removed again.
    """
    from allometry.runs.lock import locked

    if dry_run:
        yield
        return
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    with locked(folder):
        try:
            yield
        finally:
            if created and [path.name for path in folder.iterdir()] == ["lock"]:
                with contextlib.suppress(OSError):
                    (folder / "lock").unlink()
                    for path in created:
                        path.rmdir()


def grid(rows: list[dict[str, Any]]) -> Table:
    """A table with one row per configuration; seeds of one configuration cost the same."""
    from allometry.report import formatting as fmt

    names = ("family", "shape", "N", "D", "C", "seconds")
    configurations = Counter(tuple(row[name] for name in names) for row in rows)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("family", "shape"):
        table.add_column(head)
    for head in ("N", "D", "C", "runs", "time of one"):
        table.add_column(head, justify="right")
    for (family, shape, N, D, C, seconds), number in configurations.items():
        cells = (fmt.count(N), fmt.count(D), fmt.flops(C) if C else "none")
        each = "unknown" if seconds is None else fmt.duration(seconds)
        table.add_row(family, shape, *cells, str(number), each)
    return table


def left_out(bundles: "Sequence[Bundle]", how: str = "Left out to keep to the budget") -> str:
    """A sentence on the runs that were left out to keep to a budget, or stopped at its end."""
    requests = [task.spec() for bundle in bundles for task in bundle.tasks]
    names = Counter(f"{r.columns['family']} {r.columns['shape']}" for r in requests)
    most = [f"{name} ({number})" for name, number in names.most_common(4)]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    runs = counted(len(requests), "run")
    return f"{how}: {runs}, {', '.join(most)}{more}."


def _size_range(study: "Study") -> str:
    from allometry.report import formatting as fmt

    sizes = len(dict.fromkeys(study.ladder))
    low, high = fmt.count(study.ladder[0]), fmt.count(study.ladder[-1])
    if sizes == 1:
        return f"1 size of {fmt.many(study.ladder[0], 'parameter')}"
    return f"{sizes} sizes from {low} to {high} parameters"
