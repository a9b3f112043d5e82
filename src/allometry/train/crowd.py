"""Trainings of one shape carried out together: packed, compiled, their common beginnings shared.

All members are at the same step. Members that do the same up to some step (one trunk, several
cool-downs) are one row of the pack until then and fork there, so what they share is done once.
Each ends where it would have ended alone, up to the order in which sums are taken.

Letters: M rows of a pack, P parameters of each.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from allometry._core.errors import DivergedError, StorageError, require
from allometry._core.estimate import Estimate
from allometry.train import checkpoint
from allometry.train.loop import Curve, Progress, Stopped, Trained, diverged
from allometry.train.packed import Packed
from allometry.train.schedule import branch_step, log_spaced
from allometry.train.training import Training


@final
@dataclass(frozen=True)
class Ended:
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
class Crowd:
    """Trainings of one shape that start together.

    Args:
        trainings: By name. Those of the same trunk differ in nothing but their length.
        trunks: Which trunk a training belongs to; a training of its own if not named.
        size: Rows stepped as one; the rest come after, in packs of their own.
        compiled: Whether torch compiles the loss.
    """

    def __init__(
        self,
        trainings: dict[str, Training],
        *,
        trunks: dict[str, str] | None = None,
        size: int = 8,
        compiled: bool = False,
    ) -> None:
        require(len(trainings) >= 1, "Crowd.trainings", "have at least one", len(trainings))
        require(size >= 1, "Crowd.size", "be at least 1", size)
        self.trainings, self.size, self.compiled = trainings, size, compiled
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
    ) -> Iterator[Ended]:
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
                    log = self.logs[name]
                    yield Ended(name, self._model(name), Trained(log.curve, log.last, log.seconds))
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
            if judge is not None and grown:
                gone = judge(self.step, {n: self.logs[n].curve for n in self._present()})
                yield from self._dismiss(gone)
            if save_to is not None and time.monotonic() - saved > save_every:
                self.save(save_to)
                saved = time.monotonic()

    def _present(self) -> list[str]:
        return [name for pack in self.packs for row in pack.names for name in row]

    def _model(self, name: str) -> nn.Module:
        pack, index = next(
            (p, i) for p in self.packs for i, row in enumerate(p.names) if name in row
        )
        return pack.pack.member(index)

    def _regroup(self, rows: list[_Row]) -> None:
        chunks = [rows[i : i + self.size] for i in range(0, len(rows), self.size)]
        self.packs = [_Pack(chunk, self.trainings, self.compiled) for chunk in chunks]

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

    def _advance(self, watch: Callable[[str, Progress], None] | None) -> Iterator[Ended]:
        lost: list[Ended] = []
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
                        lost.append(Ended(name, pack.pack.member(index), None, error))
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

    def _dismiss(self, names: Sequence[str]) -> Iterator[Ended]:
        names = [name for name in names if self.trainings[name].steps > self.step]
        for name in names:
            log = self.logs[name]
            yield Ended(name, self._model(name), Trained(log.curve, log.last, log.seconds))
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
    copied = Packed([model]).member(0)
    copied.load_state_dict(own)
    return copied


def _marks(training: Training) -> list[int]:
    return log_spaced(training.steps, training.curve_points)


@final
class _Pack:
    """Rows stepped as one."""

    def __init__(self, rows: list[_Row], trainings: dict[str, Training], compiled: bool) -> None:
        self.names = [row.names for row in rows]
        self.pack = Packed([row.model for row in rows])
        self.first = torch.stack([row.first for row in rows])
        self.second = torch.stack([row.second for row in rows])
        self.leaders = [trainings[names[0]] for names in self.names]
        columns = [_columns(training) for training in self.leaders]
        self.rates = torch.stack([rate for rate, _ in columns])
        self.decays = torch.stack([decay for _, decay in columns])
        settings: dict[str, Any] = self.leaders[0].optimiser.param_groups[0]
        self.betas, self.eps = settings["betas"], settings["eps"]
        objective = self.leaders[0].objective
        self.losses = (
            compiled_losses(self.pack, objective)
            if compiled
            else lambda *batch: self.pack.map(objective, *batch)
        )

    def rows(self) -> list[_Row]:
        """Copies, one for each row."""
        return [
            _Row(list(names), self.pack.member(i), self.first[i].clone(), self.second[i].clone())
            for i, names in enumerate(self.names)
        ]

    def step(self, step: int) -> tuple[list[float], list[float]]:
        """One update of every row: losses and gradient norms before it.

        AdamW on all rows' parameters laid end to end (`loshchilov2019` Algorithm 2), each row with
        its own rate, clipped by its own norm. Rows do not touch one another.
        """
        batches = [leader.batch(step) for leader in self.leaders]
        batch = [torch.stack(parts) for parts in zip(*batches, strict=True)]
        losses = self.losses(*batch)
        (gradient,) = torch.autograd.grad(losses.sum(), self.pack.flat)
        norms = gradient.norm(dim=1)
        clips = torch.tensor([leader.clip for leader in self.leaders], dtype=norms.dtype)
        gradient = gradient * (clips / (norms + 1e-6)).clamp(max=1.0)[:, None]
        factors = [leader.factor(step) for leader in self.leaders]
        lr = self.rates * torch.tensor(factors, dtype=self.rates.dtype)[:, None]
        b1, b2 = self.betas
        with torch.no_grad():
            self.first.lerp_(gradient, 1 - b1)
            self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            deviation = self.second.sqrt().div_(math.sqrt(1 - b2 ** (step + 1))).add_(self.eps)
            self.pack.flat.mul_(1 - lr * self.decays)
            self.pack.flat.sub_(lr.div_(1 - b1 ** (step + 1)).mul_(self.first).div_(deviation))
        return losses.tolist(), norms.tolist()


def _columns(training: Training) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Peak rate and weight decay of every parameter; zero for those the optimiser leaves alone."""
    owners = {id(p): group for group in training.optimiser.param_groups for p in group["params"]}
    found: list[list[Tensor]] = [[], []]
    for parameter in training.model.parameters():
        group = owners.get(id(parameter), {"peak_lr": 0.0, "weight_decay": 0.0})
        for part, name in zip(found, ("peak_lr", "weight_decay"), strict=True):
            part.append(parameter.new_full((parameter.numel(),), group[name], requires_grad=False))
    rates, decays = (torch.cat(part).detach() for part in found)
    return rates, decays


@final
class _Loss(nn.Module):
    """A model together with its objective, so that calling it gives the loss."""

    def __init__(self, model: nn.Module, objective: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, *batch: Tensor) -> Tensor:
        return self.objective(self.model, *batch)


def compiled_losses(
    pack: Packed, objective: Callable[..., Tensor]
) -> Callable[..., Float[Tensor, " M"]]:
    """The losses of all rows as a function of their batch, compiled; torch keeps it on disk."""
    whole = _Loss(pack.skeleton, objective)

    def one(flat: Tensor, buffers: dict[str, Tensor], *batch: Tensor) -> Tensor:
        parts = flat.split(pack.sizes)
        named = zip(pack.names, parts, pack.shapes, strict=True)
        own = {f"model.{name}": part.view(shape) for name, part, shape in named}
        own |= {f"model.{name}": value for name, value in buffers.items()}
        return torch.func.functional_call(whole, own, batch)

    def losses(flat: Tensor, buffers: dict[str, Tensor], *batch: Tensor) -> Tensor:
        if len(flat) == 1:
            held = {k: v[0] for k, v in buffers.items()}
            return one(flat[0], held, *(b[0] for b in batch))[None]
        # Fused attention has no batching rule on a CPU and would be looped over the rows.
        with sdpa_kernel(SDPBackend.MATH):
            return torch.func.vmap(one)(flat, buffers, *batch)

    run = torch.compile(losses, dynamic=False)
    return lambda *batch: run(pack.flat, pack.buffers, *batch)
