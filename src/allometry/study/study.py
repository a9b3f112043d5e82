"""A study: recipes x sizes x tokens x seeds on one target, carried out and recorded."""

import contextlib
import functools
import importlib.metadata
import json
import math
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

import torch

from allometry._core.errors import AllometryError, InputError, StorageError, require
from allometry._core.files import make_folder, path_inside
from allometry._core.notebook import html_table
from allometry._core.spec import Spec
from allometry.runs import study_file
from allometry.runs.folder import Runs, write_curve
from allometry.runs.journal import Journal, without_invalid_columns
from allometry.runs.lock import locked
from allometry.study.execute.cleanup import remove_checkpoints, remove_leftovers
from allometry.study.execute.driver import Event
from allometry.study.execute.executors import Executor, local
from allometry.study.execute.run_results import failure_event, plain
from allometry.study.execute.time_limited_queue import TimeLimitedQueue
from allometry.study.request import Request, Target
from allometry.study.run_keys import former_keys, with_folder_keys
from allometry.study.schedule.fixed_bundles import deterministic_bundles
from allometry.study.schedule.packing import Schedule, bundles, schedule
from allometry.study.tasks import Bundle, Task

if TYPE_CHECKING:
    import pandas as pd

NO_RESULT = {"status": "failed", "error": "the executor did not report how the run ended"}
"""The record of a dispatched run without a result."""

MOST_RUNS = 1_000_000
"""Largest number of runs of a study; each is a line of the journal."""

MOST_TOKENS = 1e18
"""Largest number of training tokens of a run."""


@runtime_checkable
class Recipe(Protocol):
    """A function from a target, sizes, tokens and seeds to requests."""

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The requests."""
        ...


@final
class Study:
    """A set of runs: recipes x sizes x tokens x seeds on one target.

    Args:
        target: What the models learn.
        recipes: The families.
        ladder: Sizes N (see `study.ladder`).
        seeds: Repetitions of each configuration.
        tokens: Training tokens D, one number or several. Default: `default_tokens`.
        unit: Unit of the recipes' loss, if it differs from the target's.

    Example:
        >>> import allometry as al
        >>> text = al.targets.Text.embedded()
        >>> study = al.study.Study(text, recipes=[al.study.recipes.ngram], ladder=[1000])
        >>> len(study.specs())
        8
    """

    def __init__(
        self,
        target: Target,
        recipes: Sequence[Recipe],
        ladder: Iterable[float],
        seeds: int = 2,
        tokens: float | Sequence[float] | None = None,
        unit: str | None = None,
    ) -> None:
        self.target, self.unit = target, unit
        self.recipes = list(recipes)
        self.ladder = sorted(ladder)
        self.seeds = seeds
        tokens = default_tokens(target) if tokens is None else tokens
        self.tokens = [float(tokens)] if isinstance(tokens, int | float) else list(tokens)
        require(len(self.recipes) > 0, "study.recipes", "name at least one recipe", recipes)
        require(len(self.ladder) > 0, "study.ladder", "have at least one size", ladder)
        require(seeds >= 1, "study.seeds", "be at least 1", seeds)
        require(min(self.tokens, default=0) >= 1, "study.tokens", "be at least 1", tokens)
        finite = max(self.tokens) <= MOST_TOKENS and not any(map(math.isnan, self.tokens))
        require(finite, "study.tokens", f"be finite, {MOST_TOKENS:g} at most", tokens)
        runs = len(self.recipes) * len(self.ladder) * len(self.tokens) * seeds
        fix = "Ask for fewer seeds, sizes or budgets of tokens."
        require(runs <= MOST_RUNS, "study", f"have at most {MOST_RUNS:,} runs", runs, fix)

    def specs(self) -> list[Spec]:
        """Every run of the study. Two that differ in their rung alone are one run."""
        distinct: dict[tuple[str, str], Spec] = {}
        for recipe in self.recipes:
            for spec in recipe(self.target, self.ladder, tokens=self.tokens, seeds=self.seeds):
                distinct.setdefault(_without_rung(spec), spec)
        return list(distinct.values())

    def notes(self) -> list[str]:
        """A sentence for each family in which several sizes lead to one model."""
        asked, notes = len(self.ladder), []
        for recipe in self.recipes:
            many = recipe(self.target, self.ladder, tokens=self.tokens, seeds=self.seeds)
            one = recipe(self.target, self.ladder[:1], tokens=self.tokens, seeds=self.seeds)
            sizes = len({spec.arguments.get("rung") for spec in many})
            # A family that ignores the ladder has several sizes even for a ladder of one.
            if many and sizes < asked and len({spec.arguments.get("rung") for spec in one}) == 1:
                family = many[0]().columns.get("family", "family")
                notes.append(
                    f"The {asked} sizes asked for lead to {sizes} different models of the family "
                    f"{family}; each is trained once. Ask for fewer rungs or a wider ladder."
                )
        return notes

    def __repr__(self) -> str:
        """Target, families, sizes, tokens and seeds."""
        names = ", ".join(dict.fromkeys(map(_name, self.recipes)))
        sizes = f"{len(self.ladder)} size{'s' * (len(self.ladder) > 1)}: N = {_span(self.ladder)}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"Study({self.target.name}; {names}; {sizes}; D = {_span(self.tokens)}; {seeds})"

    def _repr_html_(self) -> str:
        rows = [
            ("target", self.target.name),
            ("families", ", ".join(dict.fromkeys(map(_name, self.recipes)))),
            ("sizes N", f"{len(self.ladder)}: {_span(self.ladder)}"),
            ("tokens D", _span(self.tokens)),
            ("seeds", self.seeds),
        ]
        return html_table("Study", (), rows)

    def grid(self) -> "pd.DataFrame":
        """The cost of the study: a row per run with its columns, N, D, C and seconds."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `grid` as plain values."""
        rows = []
        for spec in self.specs():
            request: Request = spec()
            budget = request.budget()
            rows.append(
                {"key": spec.key}
                | request.columns
                | {"N": budget.N, "D": budget.D, "C": budget.C, "seconds": request.work()}
            )
        return rows

    def tasks(self, folder: Path | str) -> list[Task]:
        """The runs that remain in `folder`: all but those that are done or have diverged."""
        settled = Journal(path_inside(folder, "journal.jsonl")).settled()
        specs = with_folder_keys(self.specs(), Path(folder))
        return [Task(spec, spec().work()) for spec in specs if spec.key not in settled]

    def schedule(
        self,
        folder: Path | str,
        *,
        workers: int | None = None,
        threads: int | None = None,
        precision: str = "float32",
        device: str = "cpu",
        deterministic: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> Schedule:
        """The fastest bundles of the remaining runs on this machine, and their expected time.

        Profiling step times takes a second or two. `run` saves the schedule in the folder; a
        resumed study uses it again.

        Args:
            folder: As for `run`; need not exist.
            workers: As for `local`.
            threads: As for `local`.
            precision: Of the trainings; see `train.BatchedTrainer`.
            device: Of the trainings, such as `executor.on.resolved().device`.
            deterministic: Do not vectorise; profiling gives the expected seconds only.
            report: Receives messages about long operations.
        """
        executor = local(workers, threads)
        return schedule(
            self.tasks(folder),
            Path(folder),
            workers=executor.workers,
            threads=executor.threads,
            precision=precision,
            device=device,
            report=report,
            every=with_folder_keys(self.specs(), Path(folder)) if deterministic else None,
        )

    def run(
        self,
        folder: Path | str,
        executor: Executor | None = None,
        watch: Callable[[Event], None] | None = None,
        schedule: Schedule | None = None,
        lock_held: bool = False,
        make_queue: Callable[[Sequence[Bundle]], TimeLimitedQueue] | None = None,
    ) -> Runs:
        """Carry out the runs that are not in the folder's journal yet; return all its runs.

        Finished and diverged runs are not repeated; runs that failed for another reason are. An
        interruption at any moment, of any kind, affects at most the runs in progress, and these
        resume from their checkpoints.

        Args:
            folder: Created if it does not exist. The same folder again resumes the study.
            executor: Default: `local()`.
            watch: Receives every event, for progress.
            schedule: Bundles of runs, see `schedule`. Default: the folder's schedule; runs that
                it does not contain are carried out one by one. A deterministic executor uses
                its expected seconds only; see `deterministic_bundles`.
            lock_held: Whether the caller holds the folder's lock already (see `lock.locked`).
            make_queue: Makes the queue that keeps a time budget; see `budgeted`. Afterwards the
                folder's list of runs has the runs that were carried out.

        Raises:
            StorageError: The folder can't be written, or the disk is full.
            LockedError: Another process uses the folder.
        """
        folder, executor = make_folder(folder), executor or local()
        with contextlib.nullcontext() if lock_held else locked(folder):
            for part in ("curves", "weights", "checkpoints"):
                make_folder(path_inside(folder, part))
            journal = Journal(path_inside(folder, "journal.jsonl"))
            specs = with_folder_keys(self.specs(), folder)
            self._write_about(folder, specs)
            if schedule is not None:
                schedule.save(folder)
            remove_leftovers(folder, journal.settled())
            chosen = bundles(self.tasks(folder), folder)
            if executor.on.deterministic:
                chosen = deterministic_bundles(specs, [t for b in chosen for t in b.tasks])
            left = {task.key: bundle for bundle in chosen for task in bundle.tasks}
            queue = None if make_queue is None else make_queue(chosen)
            for event in executor(chosen if queue is None else queue, folder):
                if event.kind == "done":
                    event = _record(folder, journal, event)
                elif event.kind == "failed" and event.data["status"] == "storage":
                    raise StorageError(event.data["error"])
                if event.kind == "failed":
                    journal.append(_failure_record(event))
                if queue is not None:
                    left = left | queue.extra_runs()
                    queue.update(event)
                if event.kind in ("done", "failed"):
                    remove_checkpoints(folder, left.pop(event.task.key), left)
                if watch is not None:
                    watch(event)
            if queue is not None:
                about = study_file.read(folder) | {"runs": list(journal.latest())}
                study_file.write(folder, about)
                return Runs(folder)
            for task in [task for bundle in chosen for task in bundle.tasks if task.key in left]:
                journal.append(_failure_record(Event("failed", task, 0, NO_RESULT)))
        return Runs(folder)

    def _write_about(self, folder: Path, specs: list[Spec]) -> None:
        keys, former = [spec.key for spec in specs], former_keys(specs)
        about = {
            "target": self.target.describe() | ({"unit": self.unit} if self.unit else {}),
            "runs": keys,
            "ladder": self.ladder,
            "tokens": self.tokens,
            "seeds": self.seeds,
            "versions": versions(),
        }
        if study_file.exists(folder):
            old = study_file.read(folder)
            before = old.get("target", {})
            if before.get("fingerprint") != about["target"].get("fingerprint"):
                raise InputError(
                    f"{folder} must be a folder of the same target; got one that holds a study "
                    f"of {before.get('name')!r}. Choose another folder."
                )
            # A larger study extends the folder: the runs of earlier calls stay on the list.
            about["runs"] = list(dict.fromkeys([*old.get("runs", []), *keys]))
            former = old.get("former", {}) | former
        if former:
            about["former"] = former
        study_file.write(folder, about)


def _name(recipe: Any) -> str:
    """A recipe's name, also that of a `functools.partial`."""
    inner = getattr(recipe, "func", recipe)
    return getattr(inner, "__name__", type(inner).__name__)


def _span(values: Sequence[float]) -> str:
    """`1e+03 to 3.4e+05`, or the single value."""
    ends = f"{min(values):.3g}", f"{max(values):.3g}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _without_rung(spec: Spec) -> tuple[str, str]:
    """The identity of a run without its place in the ladder."""
    plain = spec.to_dict()
    arguments = {k: v for k, v in plain["arguments"].items() if k != "rung"}
    return plain["spec"], json.dumps(arguments, sort_keys=True)


def default_tokens(target: Target) -> list[float]:
    """Three data budgets: two passes over the text (at most 450,000), a half and a quarter.

    Three budgets are needed to separate the effect of data from that of size, and the smaller two
    cost little. The bound keeps a first study of a long text to minutes.
    """
    most = min(2 * target.D_unique, 450_000)
    return [most / 4, most / 2, float(most)]


def _record(folder: Path, journal: Journal, event: Event) -> Event:
    """Append a finished run to the journal; a result that can't be written is a failed run."""
    key = event.task.key
    try:
        curve, measures = event.data["curve"], event.data.get("measures", {})
        if curve:
            write_curve(folder, key, curve)
        record = {"key": key} | event.data["columns"]
        # One column for each measure, and one for its standard error.
        record |= {k: e["value"] for k, e in measures.items()}
        record |= {f"{k}_se": e["se"] for k, e in measures.items()}
        # Last, so that a run's own columns can't replace them.
        record |= {"key": key, "status": "done", "error": None, "versions": versions()}
        record |= {"packing": event.data.get("packing"), "measures": sorted(measures)}
        record |= {"sample": event.data["sample"]}
        journal.append(record)
    except AllometryError:
        raise
    except Exception as error:
        return Event("failed", event.task, event.worker, failure_event(error))
    return event


def _failure_record(event: Event) -> dict[str, Any]:
    known: dict[str, Any] = {"loss": None, "loss_se": None}
    # An error while collecting what is known must not hide the failure.
    with contextlib.suppress(Exception):
        request: Request = event.task.spec()
        known = plain(request.columns, "", lenient=True) | known
        budget = request.budget()
        cost = {"N": budget.N, "N_embedding": budget.N_embedding, "D": budget.D, "C": budget.C}
        known |= plain(cost | {"C_6ND": budget.C_6ND}, "", lenient=True)
    outcome = {"status": event.data["status"], "error": event.data["error"]}
    outcome |= {"seconds": event.data.get("seconds"), "versions": versions()}
    outcome |= {"packing": event.data.get("packing")}
    return without_invalid_columns(known | {"key": event.task.key} | outcome)


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of the libraries that its results depend on."""
    return {
        "allometry": _installed("allometry"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": _installed("numpy"),
        "machine": platform.machine(),
    }


@functools.cache
def _installed(package: str) -> str:
    """The version of an installed package; reading it takes milliseconds."""
    return importlib.metadata.version(package)
