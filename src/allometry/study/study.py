"""Recipes x ladder of sizes x seeds on one target, carried out and journalled."""

import contextlib
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
from allometry._core.spec import Spec
from allometry.runs import study_file as said
from allometry.runs.folder import Runs, write_curve
from allometry.runs.journal import Journal, legible
from allometry.runs.lock import locked
from allometry.study.execute.cleanup import clear, tidy
from allometry.study.execute.executors import Event, Executor, local
from allometry.study.execute.results import failed, plain
from allometry.study.execute.time_limited_queue import TimeLimitedQueue
from allometry.study.request import Request, Target
from allometry.study.run_keys import known, renamed
from allometry.study.schedule.deterministic import fixed
from allometry.study.schedule.packing import Schedule, bundles, schedule
from allometry.study.tasks import Bundle, Task

if TYPE_CHECKING:
    import pandas as pd

UNENDED = {"status": "failed", "error": "the executor never said how the run ended"}
"""What is recorded of a run that was given away and of which nothing more was heard."""

MOST_RUNS = 1_000_000
"""Runs of the largest study: each takes a line of the journal."""

MOST_TOKENS = 1e18
"""Training tokens of the longest run."""


@runtime_checkable
class Recipe(Protocol):
    """A function from a target, sizes, tokens and seeds to the runs to be made."""

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """The requests."""
        ...


@final
class Study:
    """A set of runs: recipes x ladder of sizes x tokens x seeds.

    Args:
        target: What the models are asked to do.
        recipes: The families.
        ladder: Wanted sizes N (see `study.ladder`).
        seeds: Repetitions of each configuration.
        tokens: Training tokens D, one number or several; see `default_tokens` if not given.
        unit: What the recipes' loss is measured in, where it is not what the target says.

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
        """Every run of the study, each once: two that differ by their rung alone are one."""
        found: dict[tuple[str, str], Spec] = {}
        for recipe in self.recipes:
            for spec in recipe(self.target, self.ladder, tokens=self.tokens, seeds=self.seeds):
                found.setdefault(_but_rung(spec), spec)
        return list(found.values())

    def notes(self) -> list[str]:
        """A sentence for each family of which several of the sizes lead to one model."""
        asked, said = len(self.ladder), []
        for recipe in self.recipes:
            many = recipe(self.target, self.ladder, tokens=self.tokens, seeds=self.seeds)
            one = recipe(self.target, self.ladder[:1], tokens=self.tokens, seeds=self.seeds)
            sizes = len({spec.arguments.get("rung") for spec in many})
            # A family whose sizes don't come from the ladder has several even of a single one.
            if many and sizes < asked and len({spec.arguments.get("rung") for spec in one}) == 1:
                family = many[0]().columns.get("family", "family")
                said.append(
                    f"The {asked} sizes asked for lead to {sizes} different models of the family "
                    f"{family}, each of which is trained once. Ask for fewer rungs, or for a "
                    "wider ladder."
                )
        return said

    def __repr__(self) -> str:
        """What it is on, its families, its sizes, its data and how often."""
        names = ", ".join(dict.fromkeys(map(_name, self.recipes)))
        sizes = f"{len(self.ladder)} size{'s' * (len(self.ladder) > 1)}: N = {_span(self.ladder)}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"Study({self.target.name}; {names}; {sizes}; D = {_span(self.tokens)}; {seeds})"

    def grid(self) -> "pd.DataFrame":
        """What the study will cost: a row per run with its columns, N, D, C and seconds."""
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
        """What is left to do in `folder`: all but the runs that are done or have diverged."""
        settled = Journal(path_inside(folder, "journal.jsonl")).settled()
        specs = known(self.specs(), Path(folder))
        return [Task(spec, spec().work()) for spec in specs if spec.key not in settled]

    def schedule(
        self,
        folder: Path | str,
        *,
        workers: int | None = None,
        threads: int | None = None,
        precision: str = "float32",
        deterministic: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Schedule:
        """What is left to do in `folder`, packed as is quickest here, and how long it will take.

        A second or two is spent on trying how long steps take. `run` with this schedule keeps it
        in the folder, and whoever resumes the study goes on by it.

        Args:
            folder: As for `run`; need not be there.
            workers: As for `local`.
            threads: As for `local`.
            precision: In which runs will train; see `train.BatchedTrainer`.
            deterministic: Pack nothing: what is tried tells the seconds alone.
            tell: Told what takes long.
        """
        place = local(workers, threads)
        sizes = {"workers": place.workers, "threads": place.threads}
        tasks = self.tasks(folder)
        every = known(self.specs(), Path(folder)) if deterministic else None
        more = {"precision": precision, "tell": tell, "every": every}
        return schedule(tasks, Path(folder), **sizes, **more)

    def run(
        self,
        folder: Path | str,
        executor: Executor | None = None,
        watch: Callable[[Event], None] | None = None,
        schedule: Schedule | None = None,
        held: bool = False,
        allot: Callable[[Sequence[Bundle]], TimeLimitedQueue] | None = None,
    ) -> Runs:
        """Carry out what is not yet in the folder's journal; give back all its runs.

        Finished and diverged runs are not repeated; those that failed for another reason are tried
        again. Stopping at any moment, by whatever means, loses at most the runs in flight, and
        these resume from their checkpoints.

        Args:
            folder: Made if it is not there. The same folder again means resume.
            executor: Who carries the runs out; `local()` if not given.
            watch: Told every event, for progress.
            schedule: Which runs go together, see `schedule`; the folder's own if not given, and
                each run by itself where it has none. Of a deterministic executor's runs it tells
                the seconds alone; see `fixed`.
            held: Whether the caller holds the folder's lock already (see `lock.locked`).
            allot: Keeps it to a time; see `budgeted`. What is left out is not on the folder's
                list of runs afterwards, and what was taken in is.

        Raises:
            StorageError: The folder can't be written, or the disk is full.
            LockedError: Another process works in the folder.
        """
        folder, executor = make_folder(folder), executor or local()
        with contextlib.nullcontext() if held else locked(folder):
            for part in ("curves", "weights", "checkpoints"):
                make_folder(path_inside(folder, part))
            journal = Journal(path_inside(folder, "journal.jsonl"))
            self._write_about(folder, known(self.specs(), folder))
            if schedule is not None:
                schedule.save(folder)
            tidy(folder, journal.settled())
            chosen = bundles(self.tasks(folder), folder)
            if executor.on.deterministic:
                chosen = fixed(known(self.specs(), folder), [t for b in chosen for t in b.tasks])
            left = {task.key: bundle for bundle in chosen for task in bundle.tasks}
            queue = None if allot is None else allot(chosen)
            for event in executor(chosen if queue is None else queue, folder):
                if event.kind == "done":
                    event = _record(folder, journal, event)
                elif event.kind == "failed" and event.data["status"] == "storage":
                    raise StorageError(event.data["error"])
                if event.kind == "failed":
                    journal.append(_failure(event))
                if queue is not None:
                    left = left | queue.extra_runs()
                    queue.told(event)
                if event.kind in ("done", "failed"):
                    clear(folder, left.pop(event.task.key), left)
                if watch is not None:
                    watch(event)
            if queue is not None:
                said.write(folder, said.read(folder) | {"runs": list(journal.latest())})
                return Runs(folder)
            for task in [task for bundle in chosen for task in bundle.tasks if task.key in left]:
                journal.append(_failure(Event("failed", task, 0, UNENDED)))
        return Runs(folder)

    def _write_about(self, folder: Path, specs: list[Spec]) -> None:
        keys, former = [spec.key for spec in specs], renamed(specs)
        about = {
            "target": self.target.describe() | ({"unit": self.unit} if self.unit else {}),
            "runs": keys,
            "ladder": self.ladder,
            "tokens": self.tokens,
            "seeds": self.seeds,
            "versions": versions(),
        }
        if said.there(folder):
            old = said.read(folder)
            before = old.get("target", {})
            if before.get("fingerprint") != about["target"].get("fingerprint"):
                raise InputError(
                    f"{folder} must be a folder of the same target; got one that holds a study "
                    f"of {before.get('name')!r}. Choose another folder."
                )
            # A folder extends itself: what earlier calls asked for stays on the list.
            about["runs"] = list(dict.fromkeys([*old.get("runs", []), *keys]))
            former = old.get("former", {}) | former
        if former:
            about["former"] = former
        said.write(folder, about)


def _name(recipe: Any) -> str:
    """A recipe's name, also of one whose options are set already."""
    inner = getattr(recipe, "func", recipe)
    return getattr(inner, "__name__", type(inner).__name__)


def _span(values: Sequence[float]) -> str:
    """`1e+03 to 3.4e+05`, or the only one."""
    ends = f"{min(values):.3g}", f"{max(values):.3g}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _but_rung(spec: Spec) -> tuple[str, str]:
    """What a run is, wherever it stands on its ladder."""
    plain = spec.to_dict()
    arguments = {k: v for k, v in plain["arguments"].items() if k != "rung"}
    return plain["spec"], json.dumps(arguments, sort_keys=True)


def default_tokens(target: Target) -> list[float]:
    """Three budgets of data: two passes over the text but 450,000 at most, a half and a quarter.

    The smaller ones cost little beside the largest and tell the law what data are worth apart from
    size, which takes three of them; the bound keeps a first study of a long text to minutes.
    """
    most = min(2 * target.D_unique, 450_000)
    return [most / 4, most / 2, float(most)]


def _record(folder: Path, journal: Journal, event: Event) -> Event:
    """Write a finished run down; what can't be is a run that failed, which is given back."""
    key = event.task.key
    try:
        curve, measures = event.data["curve"], event.data.get("measures", {})
        if curve:
            write_curve(folder, key, curve)
        record = {"key": key} | event.data["columns"]
        # One column for each measure, and one for its standard error.
        record |= {k: e["value"] for k, e in measures.items()}
        record |= {f"{k}_se": e["se"] for k, e in measures.items()}
        # Last, so that no column of a run's own takes their place.
        record |= {"key": key, "status": "done", "error": None, "versions": versions()}
        record |= {"packing": event.data.get("packing"), "measures": sorted(measures)}
        record |= {"sample": event.data["sample"]}
        journal.append(record)
    except AllometryError:
        raise
    except Exception as error:
        return Event("failed", event.task, event.worker, failed(error))
    return event


def _failure(event: Event) -> dict[str, Any]:
    known: dict[str, Any] = {"loss": None, "loss_se": None}
    # What can't be told of it beforehand must not hide that it failed.
    with contextlib.suppress(Exception):
        request: Request = event.task.spec()
        known = plain(request.columns, "", lenient=True) | known
        budget = request.budget()
        cost = {"N": budget.N, "N_embedding": budget.N_embedding, "D": budget.D, "C": budget.C}
        known |= plain(cost | {"C_6ND": budget.C_6ND}, "", lenient=True)
    outcome = {"status": event.data["status"], "error": event.data["error"]}
    outcome |= {"seconds": event.data.get("seconds"), "versions": versions()}
    outcome |= {"packing": event.data.get("packing")}
    return legible(known | {"key": event.task.key} | outcome)


def versions() -> dict[str, str]:
    """Of Python, of this package and of what its numbers depend on."""
    return {
        "allometry": importlib.metadata.version("allometry"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": importlib.metadata.version("numpy"),
        "machine": platform.machine(),
    }
