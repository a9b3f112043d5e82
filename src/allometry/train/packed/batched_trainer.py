"""The batched trainer: runs of one architecture vectorised along a leading axis.

All runs are at the same step. Runs that share the stable phase of a warmup-stable-decay schedule
are one model until their cool-downs begin, so the shared steps are computed once. Each run ends as
it would alone, up to the order of floating-point sums.

Shapes: M models of a stack, P parameters of each.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry._core.errors import DivergedError, StorageError, require
from allometry._core.estimate import Estimate
from allometry.train import checkpoint
from allometry.train.device import DeviceSettings
from allometry.train.device_batches import READ_EVERY, is_host, read_all
from allometry.train.loop import Curve, Progress, Stopped, Trained, diverged, unmeasurable
from allometry.train.lr_schedule import branch_step
from allometry.train.packed.adamw import TracedLists
from allometry.train.packed.training_stack import (
    ModelState,
    TrainingStack,
    UnreadLosses,
    copy_of,
    initial_state,
    marks,
)
from allometry.train.training import Training

LONG = 1000
"""Number of steps from which on a stack of several models is traced."""

UNSCALED = ("float32", "bfloat16", "auto")
"""Precisions that need no gradient scaling."""


@final
@dataclass(frozen=True)
class TrainingResult:
    """A finished run: its name and model, and its result or the error that ended it."""

    name: str
    model: nn.Module
    trained: Trained | None
    error: DivergedError | None = None


@final
@dataclass
class _Log:
    """Measurements of a run so far."""

    curve: Curve = field(default_factory=Curve)
    last: Estimate = field(default_factory=lambda: Estimate(math.nan))
    seconds: float = 0.0
    snapshots: list[Any] = field(default_factory=list)


@final
class BatchedTrainer:
    """Trainings of one architecture, vectorised over runs.

    Args:
        trainings: Trainings by name. Those that share a stable phase differ only in length.
        stable_phases: Label of the shared stable phase of each training; trainings without a label
            share nothing.
        size: Largest number of models in one stack; further models form further stacks.
        compiled: Whether torch compiles losses and gradients; ignored without a compiler.
        traced: Whether losses and gradients are traced to one list of kernels (see `TracedStep`),
            which takes about a second. Default: stacks of several models in long trainings.
        precision: `"float32"`, `"bfloat16"`, or `"auto"` for the faster one, measured on the first
            training. Weights and measurements are unaffected.
        device: Of the models; they are moved there. Trainings that can't move stay on CPU.
    """

    def __init__(
        self,
        trainings: dict[str, Training],
        *,
        stable_phases: dict[str, str] | None = None,
        size: int = 8,
        compiled: bool = False,
        traced: bool | None = None,
        precision: str = "float32",
        device: str = "cpu",
    ) -> None:
        require(
            len(trainings) >= 1, "BatchedTrainer.trainings", "have at least one", len(trainings)
        )
        require(size >= 1, "BatchedTrainer.size", "be at least 1", size)
        known = f"be one of {', '.join(UNSCALED)}"
        require(precision in UNSCALED, "BatchedTrainer.precision", known, precision)
        self.trainings, self.size = trainings, size
        # The longest training is present until the end, so a resumed trainer decides the same.
        longest = max(training.steps for training in trainings.values())
        trace = longest >= LONG if traced is None else traced
        moves = all(training.moves for training in trainings.values())
        self.device = torch.device(device if moves else "cpu")
        for training in trainings.values():
            training.model.to(self.device)
        on = DeviceSettings(str(self.device), precision)
        self.lists = TracedLists(fuse=compiled, trace=trace, on=on)
        self.unread: list[UnreadLosses] = []
        self.logs = {name: _Log() for name in trainings}
        self.step = 0
        groups: dict[str, list[str]] = {}
        # The longest training comes first: its schedule is that of the shared stable phase.
        for name in sorted(trainings, key=lambda name: -trainings[name].steps):
            groups.setdefault((stable_phases or {}).get(name, name), []).append(name)
        self._regroup([initial_state(n, trainings[n[0]]) for n in groups.values()])

    def __call__(
        self,
        *,
        save_to: Path | None = None,
        save_every: float = 10.0,
        watch: Callable[[str, Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        judge: Callable[[int, dict[str, Curve]], Sequence[str]] | None = None,
    ) -> Iterator[TrainingResult]:
        """Train all runs; yields each as it finishes.

        Args:
            save_to: Checkpoint file; resumes from it if it fits.
            save_every: Seconds between checkpoints.
            watch: Called with the name and progress of each run after every step.
            stop: Called after every step; if true, write a checkpoint and raise `Stopped`.
            judge: Called with the step and the curves after each measurement; returns the names of
                runs to end early.

        Raises:
            Stopped: `stop` returned true.
        """
        if save_to is not None:
            self._resume(save_to)
        saved = time.monotonic()
        while True:
            finished = [n for n in self._active() if self.trainings[n].steps == self.step]
            if finished:
                # Saved before it is reported: reported work is never repeated.
                if save_to is not None:
                    self.save(save_to)
                for name in finished:
                    yield self._result(name)
                self._remove(finished)
            if not self.stacks:
                return
            if stop is not None and stop():
                yield from self._read(watch)
                if save_to is not None:
                    self.save(save_to)
                raise Stopped
            self._branch()
            yield from self._advance(watch)
            measured = self._measure()
            if measured:
                yield from self._unmeasurable()
            if judge is not None and measured:
                names = judge(self.step, {n: self.logs[n].curve for n in self._active()})
                yield from self._end_early(names)
            if save_to is not None and time.monotonic() - saved > save_every:
                yield from self._read(watch)
                self.save(save_to)
                saved = time.monotonic()

    def _active(self) -> list[str]:
        return [name for stack in self.stacks for names in stack.names for name in names]

    def _result(self, name: str) -> TrainingResult:
        log = self.logs[name]
        trained = Trained(
            log.curve, log.last, log.seconds, self.lists.on.precision, snapshots=log.snapshots
        )
        return TrainingResult(name, self._model(name), trained)

    def _model(self, name: str) -> nn.Module:
        stack, index = next(
            (s, i) for s in self.stacks for i, names in enumerate(s.names) if name in names
        )
        return stack.models.member(index)

    def _regroup(self, states: list[ModelState]) -> None:
        chunks = [states[i : i + self.size] for i in range(0, len(states), self.size)]
        self.stacks = [TrainingStack(chunk, self.trainings, self.lists) for chunk in chunks]

    def _states(self) -> list[ModelState]:
        return [state for stack in self.stacks for state in stack.states()]

    def _remove(self, names: Sequence[str]) -> None:
        states = self._states()
        for state in states:
            state.names = [name for name in state.names if name not in names]
        self._regroup([state for state in states if state.names])

    def _branch(self) -> None:
        """Give the runs whose cool-down begins here their own copy of the shared model."""
        shared = any(len(names) > 1 for stack in self.stacks for names in stack.names)
        states = self._states() if shared else []
        branches = []
        for state in states:
            cooling = [n for n in state.names if branch_step(self.trainings[n].steps) <= self.step]
            for name in cooling:
                if len(state.names) > 1:
                    state.names.remove(name)
                    branches.append(ModelState([name], state.model, state.first, state.second))
        if branches:
            self._regroup(states + branches)

    def _advance(self, watch: Callable[[str, Progress], None] | None) -> Iterator[TrainingResult]:
        """One step of all runs; yields those whose loss or gradient is not finite."""
        for stack in self.stacks:
            started = time.monotonic()
            losses, norms = stack.step(self.step)
            self.unread.append(UnreadLosses(self.step, stack, losses, norms))
            self._spend(stack, started)
        self.step += 1
        steps = len(self.unread) // max(1, len(self.stacks))
        if is_host(self.device) or steps >= READ_EVERY or self._due():
            yield from self._read(watch)

    def _spend(self, stack: "TrainingStack", started: float) -> None:
        share = (time.monotonic() - started) / sum(map(len, stack.names))
        for name in (name for names in stack.names for name in names):
            self.logs[name].seconds += share

    def _due(self) -> list[str]:
        """The runs that are measured after this step."""
        return [name for name in self._active() if self.step in marks(self.trainings[name])]

    def _read(self, watch: Callable[[str, Progress], None] | None) -> Iterator[TrainingResult]:
        """Read the losses since the last reading; yields runs in which one is not finite."""
        unread, self.unread = self.unread, []
        if not unread:
            return
        started = time.monotonic()
        values = read_all([part for each in unread for part in (each.losses, each.norms)])
        lost: dict[str, TrainingResult] = {}
        for each, losses, norms in zip(unread, values[::2], values[1::2], strict=True):
            rows = zip(each.stack.names, losses, norms, strict=True)
            for index, (names, loss, norm) in enumerate(rows):
                for name in (name for name in names if name not in lost):
                    steps = self.trainings[name].steps
                    if not (math.isfinite(loss) and math.isfinite(norm)):
                        error = diverged(loss, norm, each.step, steps)
                        model = each.stack.models.member(index)
                        lost[name] = TrainingResult(name, model, None, error)
                    elif watch is not None:
                        watch(name, Progress(each.step + 1, steps, loss))
        for stack in self.stacks[:1]:
            self._spend(stack, started)
        yield from lost.values()
        if lost:
            self._remove(list(lost))

    def _measure(self) -> bool:
        """Measure the runs that are due; whether there were any."""
        measured = False
        for stack in self.stacks:
            for index, names in enumerate(stack.names):
                for name in names:
                    training, log = self.trainings[name], self.logs[name]
                    if self.step not in marks(training):
                        continue
                    started = time.monotonic()
                    log.last, snapshots = training.evaluate(stack.models.member(index))
                    log.snapshots += snapshots
                    log.curve.step.append(self.step)
                    log.curve.tokens.append(self.step * training.seen)
                    log.curve.loss.append(log.last.value)
                    log.seconds += time.monotonic() - started
                    measured = True
        return measured

    def _unmeasurable(self) -> Iterator[TrainingResult]:
        """End the runs whose measured loss is not finite."""
        curves = {name: self.logs[name].curve.loss for name in self._active()}
        lost = {n: c[-1] for n, c in curves.items() if c and not math.isfinite(c[-1])}
        for name, loss in lost.items():
            error = unmeasurable(loss, self.step, self.trainings[name].steps)
            yield TrainingResult(name, self._model(name), None, error)
        if lost:
            self._remove(list(lost))

    def _end_early(self, names: Sequence[str]) -> Iterator[TrainingResult]:
        names = [name for name in names if self.trainings[name].steps > self.step]
        for name in names:
            yield self._result(name)
        if names:
            self._remove(names)

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically. Snapshots are not saved."""
        tensors: dict[str, Tensor] = {}
        states = self._states()
        for i, state in enumerate(states):
            tensors |= {f"{i}.model.{k}": v for k, v in state.model.state_dict().items()}
            tensors |= {f"{i}.first": state.first, f"{i}.second": state.second}
        logs: dict[str, dict[str, Any]] = {}
        for name in self._active():
            log = self.logs[name]
            last = None if math.isnan(log.last.value) else asdict(log.last)
            logs[name] = {"curve": asdict(log.curve), "last": last, "seconds": log.seconds}
        progress = {"step": self.step, "rows": [state.names for state in states], "logs": logs}
        progress |= {"precision": self.lists.on.precision}
        checkpoint.write(path, tensors, progress)

    def _resume(self, path: Path) -> None:
        try:
            found = checkpoint.newest(path)
        except StorageError:
            return  # no copy is intact: start again
        if found is None:
            return
        tensors, progress = found
        saved = {name for names in progress["rows"] for name in names}
        if not set(self.trainings) <= saved:
            return  # a run is missing: start again, which gives the same result
        states = []
        for i, names in enumerate(progress["rows"]):
            names = [name for name in names if name in self.trainings]
            if names:
                model = copy_of(self.trainings[names[0]].model, tensors, f"{i}.model.")
                moments = (tensors[f"{i}.{k}"].to(self.device) for k in ("first", "second"))
                states.append(ModelState(names, model, *moments))
        self.step = progress["step"]
        # A training never changes its precision.
        precision = progress.get("precision", self.lists.on.precision)
        self.lists.on = dataclasses.replace(self.lists.on, precision=precision)
        for name in self.trainings:
            log = progress["logs"][name]
            last = Estimate(math.nan) if log["last"] is None else Estimate(**log["last"])
            self.logs[name] = _Log(Curve(**log["curve"]), last, log["seconds"])
        self._regroup(states)
        for name in self._active():
            training, log = self.trainings[name], self.logs[name]
            if training.steps == self.step:
                # Snapshots are not saved: take the last one again.
                log.last, log.snapshots = training.evaluate(self._model(name))
