"""Trainings of one shape carried out together: packed, compiled, their common beginnings shared.

All members are at the same step. Members that do the same up to some step (one trunk, several
cool-downs) are one row of the pack until then and fork there, so what they share is done once.
Each ends where it would have ended alone, up to the order in which sums are taken.

Shapes: M rows of a pack, P parameters of each.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import DivergedError, StorageError, require
from allometry._core.estimate import Estimate
from allometry.train import checkpoint
from allometry.train.loop import Curve, Progress, Stopped, Trained, diverged, unmeasurable
from allometry.train.lr_schedule import branch_step, log_spaced
from allometry.train.packed.adamw import Adam, TracedLists
from allometry.train.packed.stack import StackedModels
from allometry.train.training import Training

LONG = 1000
"""Steps of a training from which on a pack of several rows is traced."""

UNSCALED = ("float32", "bfloat16", "auto")
"""Precisions in which gradients need no scaling lest they vanish."""


@final
@dataclass(frozen=True)
class TrainingResult:
    """One member's end: its name, its model, and what it reached or why it stopped short."""

    name: str
    model: nn.Module
    trained: Trained | None
    error: DivergedError | None = None


@final
@dataclass
class _Row:
    """One row: whose it is, its weights and Adam's two running means."""

    names: list[str]
    model: nn.Module
    first: Float[Tensor, " P"]
    second: Float[Tensor, " P"]


@final
@dataclass
class _Log:
    """What a member has to show so far."""

    curve: Curve = field(default_factory=Curve)
    last: Estimate = field(default_factory=lambda: Estimate(math.nan))
    seconds: float = 0.0


@final
class BatchedTrainer:
    """Trainings of one shape that start together.

    Args:
        trainings: By name. Those of the same trunk differ in nothing but their length.
        trunks: Which trunk a training belongs to; a training of its own if not named.
        size: Rows stepped as one; the rest come after, in packs of their own.
        compiled: Whether torch compiles the losses and their gradients; where there is no
            compiler they are carried out as they are.
        traced: Whether they are traced to one list of kernels (see `Traced`), which takes a second
            or so; if not given, packs of several rows are, in long trainings.
        precision: `"float32"`, `"bfloat16"`, or `"auto"`: whichever the first training is found
            to be quicker in. Weights stay as they are, and so do measurements.
    """

    def __init__(
        self,
        trainings: dict[str, Training],
        *,
        trunks: dict[str, str] | None = None,
        size: int = 8,
        compiled: bool = False,
        traced: bool | None = None,
        precision: str = "float32",
    ) -> None:
        require(
            len(trainings) >= 1, "BatchedTrainer.trainings", "have at least one", len(trainings)
        )
        require(size >= 1, "BatchedTrainer.size", "be at least 1", size)
        known = f"be one of {', '.join(UNSCALED)}"
        require(precision in UNSCALED, "BatchedTrainer.precision", known, precision)
        self.trainings, self.size = trainings, size
        # The longest is there until the end, so a resumed crowd decides as the first one did.
        longest = max(training.steps for training in trainings.values())
        trace = longest >= LONG if traced is None else traced
        self.lists = TracedLists(fuse=compiled, trace=trace, precision=precision)
        self.logs = {name: _Log() for name in trainings}
        self.step = 0
        rows: dict[str, list[str]] = {}
        # The longest leads a trunk: its rate is the trunk's for as long as the trunk goes on.
        for name in sorted(trainings, key=lambda name: -trainings[name].steps):
            rows.setdefault((trunks or {}).get(name, name), []).append(name)
        self._regroup([_fresh(names, trainings[names[0]]) for names in rows.values()])

    def __call__(
        self,
        *,
        save_to: Path | None = None,
        save_every: float = 10.0,
        watch: Callable[[str, Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        judge: Callable[[int, dict[str, Curve]], Sequence[str]] | None = None,
    ) -> Iterator[TrainingResult]:
        """Train them all; give each back as it ends.

        Args:
            save_to: File of the checkpoint; resumes from it where it fits.
            save_every: Seconds between checkpoints.
            watch: Told who is where after every step.
            stop: Asked after every step; true means checkpoint and leave.
            judge: Told the step and the curves whenever these have grown; names who shall leave.

        Raises:
            Stopped: `stop` said so.
        """
        if save_to is not None:
            self._resume(save_to)
        saved = time.monotonic()
        while True:
            ending = [n for n in self._present() if self.trainings[n].steps == self.step]
            if ending:
                # On the disk before anyone is told: what was reported once is never done again.
                if save_to is not None:
                    self.save(save_to)
                for name in ending:
                    yield self._ended(name)
                self._without(ending)
            if not self.packs:
                return
            if stop is not None and stop():
                if save_to is not None:
                    self.save(save_to)
                raise Stopped
            self._fork()
            yield from self._advance(watch)
            grown = self._measure()
            if grown:
                yield from self._unmeasurable()
            if judge is not None and grown:
                gone = judge(self.step, {n: self.logs[n].curve for n in self._present()})
                yield from self._dismiss(gone)
            if save_to is not None and time.monotonic() - saved > save_every:
                self.save(save_to)
                saved = time.monotonic()

    def _present(self) -> list[str]:
        return [name for pack in self.packs for row in pack.names for name in row]

    def _ended(self, name: str) -> TrainingResult:
        log = self.logs[name]
        trained = Trained(log.curve, log.last, log.seconds, self.lists.precision)
        return TrainingResult(name, self._model(name), trained)

    def _model(self, name: str) -> nn.Module:
        pack, index = next(
            (p, i) for p in self.packs for i, row in enumerate(p.names) if name in row
        )
        return pack.pack.member(index)

    def _regroup(self, rows: list[_Row]) -> None:
        chunks = [rows[i : i + self.size] for i in range(0, len(rows), self.size)]
        self.packs = [_Pack(chunk, self.trainings, self.lists) for chunk in chunks]

    def _rows(self) -> list[_Row]:
        return [row for pack in self.packs for row in pack.rows()]

    def _without(self, names: Sequence[str]) -> None:
        rows = self._rows()
        for row in rows:
            row.names = [name for name in row.names if name not in names]
        self._regroup([row for row in rows if row.names])

    def _fork(self) -> None:
        """Let those whose cool-down begins here leave their trunk."""
        rows = self._rows() if any(len(r) > 1 for p in self.packs for r in p.names) else []
        forked = []
        for row in rows:
            leaving = [n for n in row.names if branch_step(self.trainings[n].steps) <= self.step]
            for name in leaving if len(row.names) > 1 else []:
                if len(row.names) > 1:
                    row.names.remove(name)
                    forked.append(_Row([name], row.model, row.first, row.second))
        if forked:
            self._regroup(rows + forked)

    def _advance(self, watch: Callable[[str, Progress], None] | None) -> Iterator[TrainingResult]:
        lost: list[TrainingResult] = []
        for pack in self.packs:
            started = time.monotonic()
            losses, norms = pack.step(self.step)
            share = (time.monotonic() - started) / sum(map(len, pack.names))
            for index, (names, loss, norm) in enumerate(
                zip(pack.names, losses, norms, strict=True)
            ):
                for name in names:
                    self.logs[name].seconds += share
                    steps = self.trainings[name].steps
                    if not (math.isfinite(loss) and math.isfinite(norm)):
                        error = diverged(loss, norm, self.step, steps)
                        lost.append(TrainingResult(name, pack.pack.member(index), None, error))
                    elif watch is not None:
                        watch(name, Progress(self.step + 1, steps, loss))
        self.step += 1
        yield from lost
        if lost:
            self._without([ended.name for ended in lost])

    def _measure(self) -> bool:
        """Whether any curve has grown."""
        grown = False
        for pack in self.packs:
            for index, names in enumerate(pack.names):
                for name in names:
                    training, log = self.trainings[name], self.logs[name]
                    if self.step not in _marks(training):
                        continue
                    started = time.monotonic()
                    log.last = training.measure(pack.pack.member(index))
                    log.curve.step.append(self.step)
                    log.curve.tokens.append(self.step * training.seen)
                    log.curve.loss.append(log.last.value)
                    log.seconds += time.monotonic() - started
                    grown = True
        return grown

    def _unmeasurable(self) -> Iterator[TrainingResult]:
        """Let those leave whose measured loss is not finite."""
        curves = {name: self.logs[name].curve.loss for name in self._present()}
        lost = {n: c[-1] for n, c in curves.items() if c and not math.isfinite(c[-1])}
        for name, loss in lost.items():
            error = unmeasurable(loss, self.step, self.trainings[name].steps)
            yield TrainingResult(name, self._model(name), None, error)
        if lost:
            self._without(list(lost))

    def _dismiss(self, names: Sequence[str]) -> Iterator[TrainingResult]:
        names = [name for name in names if self.trainings[name].steps > self.step]
        for name in names:
            yield self._ended(name)
        if names:
            self._without(names)

    def save(self, path: Path) -> None:
        """Everything needed to go on from here, in one file that is whole or absent."""
        tensors: dict[str, Tensor] = {}
        rows = self._rows()
        for i, row in enumerate(rows):
            tensors |= {f"{i}.model.{k}": v for k, v in row.model.state_dict().items()}
            tensors |= {f"{i}.first": row.first, f"{i}.second": row.second}
        logs = {name: asdict(self.logs[name]) for name in self._present()}
        for log in logs.values():
            log["last"] = None if math.isnan(log["last"]["value"]) else log["last"]
        progress = {"step": self.step, "rows": [row.names for row in rows], "logs": logs}
        progress |= {"precision": self.lists.precision}
        checkpoint.write(path, tensors, progress)

    def _resume(self, path: Path) -> None:
        try:
            found = checkpoint.newest(path)
        except StorageError:
            return  # neither copy is whole: begin again
        if found is None:
            return
        tensors, progress = found
        there = {name for names in progress["rows"] for name in names}
        if not set(self.trainings) <= there:
            return  # somebody is missing from it: begin again, which ends in the same place
        rows = []
        for i, names in enumerate(progress["rows"]):
            names = [name for name in names if name in self.trainings]
            if names:
                model = _copy_of(self.trainings[names[0]].model, tensors, f"{i}.model.")
                rows.append(_Row(names, model, tensors[f"{i}.first"], tensors[f"{i}.second"]))
        self.step = progress["step"]
        # Begun in one precision, ended in it.
        self.lists.precision = progress.get("precision", self.lists.precision)
        for name in self.trainings:
            log = progress["logs"][name]
            last = Estimate(math.nan) if log["last"] is None else Estimate(**log["last"])
            self.logs[name] = _Log(Curve(**log["curve"]), last, log["seconds"])
        self._regroup(rows)
        for name in self._present():
            training = self.trainings[name]
            if training.steps == self.step:
                # Whatever else its measure keeps was not saved: let it be kept again.
                self.logs[name].last = training.measure(self._model(name))


def _fresh(names: list[str], training: Training) -> _Row:
    size = sum(p.numel() for p in training.model.parameters())
    dtype = next(training.model.parameters()).dtype
    return _Row(names, training.model, *(torch.zeros(size, dtype=dtype) for _ in range(2)))


def _copy_of(model: nn.Module, tensors: dict[str, Tensor], prefix: str) -> nn.Module:
    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    copied = StackedModels([model]).member(0)
    copied.load_state_dict(own)
    return copied


def _marks(training: Training) -> list[int]:
    return log_spaced(training.steps, training.curve_points)


@final
class _Pack:
    """Rows stepped as one."""

    def __init__(
        self, rows: list[_Row], trainings: dict[str, Training], lists: TracedLists
    ) -> None:
        self.names = [row.names for row in rows]
        self.pack = StackedModels([row.model for row in rows])
        self.leaders = [trainings[names[0]] for names in self.names]
        self.adam = Adam(
            self.pack,
            self.leaders,
            torch.stack([row.first for row in rows]),
            torch.stack([row.second for row in rows]),
        )
        self.lists = lists

    def rows(self) -> list[_Row]:
        """Copies, one for each row."""
        first, second = self.adam.first, self.adam.second
        return [
            _Row(list(names), self.pack.member(i), first[i].clone(), second[i].clone())
            for i, names in enumerate(self.names)
        ]

    def step(self, step: int) -> tuple[list[float], list[float]]:
        """One update of every row: losses and gradient norms before it."""
        batches = [leader.batch(step) for leader in self.leaders]
        batch = [torch.stack(parts) for parts in zip(*batches, strict=True)]
        losses, gradient = self.lists(self.pack, self.leaders[0].objective, batch)
        norms = gradient.norm(dim=1).tolist()
        clips = [leader.clip for leader in self.leaders]
        factors = [leader.factor(step) for leader in self.leaders]
        self.adam.step(gradient, norms, clips, factors, step)
        return losses.tolist(), norms
