"""A process that profiles shapes of trainings; see `timing.profile`."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from torch import nn

from allometry._core.spec import Spec
from allometry.models import packed_mlp
from allometry.models.transformer.fused_decoder import fused_decoder
from allometry.study.request import RunContext, TrainingRequest, default_dtype
from allometry.study.schedule.job_timing import job_seconds, temporary_folder
from allometry.study.schedule.timing import READY
from allometry.train.device import DeviceSettings
from allometry.train.device_batches import is_host
from allometry.train.loop import HERE, Curve, Trained
from allometry.train.packed.adamw import quickest
from allometry.train.packed.batched_trainer import BatchedTrainer
from allometry.train.packed.stack import StackedModels
from allometry.train.training import Training

ENOUGH = 0.04
"""Seconds after which a measurement of at least two steps ends."""

TRACED = 1000
"""Smallest number of steps of a training for which tracing is profiled."""


def step_time(
    specs: Sequence[Spec], *, cheapest: float, finishing: bool, asked: DeviceSettings = HERE
) -> dict[str, Any]:
    """Step times of the first of `specs` alone, and vectorised with the others.

    Args:
        specs: Runs of one shape.
        cheapest: Seconds of a step of the smallest shape: nearly all of it is overhead, which
            vectorisation saves. Shapes with steps four times as long are not vectorised.
        finishing: Whether to time the finish too.
        asked: Device and precision of the trainings.
    """
    requests = [spec() for spec in specs]
    trainings: list[Training] = [request.training() for request in requests]
    first = trainings[0]
    on = _on(first, asked)
    step = _seconds(lambda at: _update(first, at, on))
    packed = {}
    if requests[0].packs and step <= 4 * (cheapest or step):
        # A model that torch can't vectorise is not.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            # On a GPU, memory ends the list: a pack that does not fit raises.
            more = () if is_host(on.device) else (8, 16, 32)
            for rows in sorted({2, 4, *more, len(trainings)} - {1}):
                if rows <= len(trainings):
                    packed[rows] = _seconds(_step_of(_pack(trainings[:rows], on)))
    traced = 1.0
    if packed and first.steps >= TRACED and min(t / m for m, t in packed.items()) < step:
        # Only if vectorisation alone is faster: tracing takes a second.
        last = max(packed)
        pack = _pack(trainings[:last], on, traced=True)
        traced = min(1.0, _seconds(_step_of(pack)) / packed[last])
    started = time.perf_counter()
    loss, snapshots = first.evaluate(first.model)
    measure = time.perf_counter() - started
    finish = None
    if finishing:
        trained = Trained(Curve([1], [1], [loss.value]), loss, 0.0, snapshots=snapshots)
        finish = _finish(requests[0], first, trained)
    return {"step": step, "packed": packed, "measure": measure, "finish": finish,
            "traced": traced}  # fmt: skip


def compiled_time(specs: Sequence[Spec], *, asked: DeviceSettings = HERE) -> dict[str, Any]:
    """Step times of all `specs` vectorised, eager and compiled, and the time to load the code."""
    import torch

    trainings: list[Training] = [spec().training() for spec in specs]
    on = _on(trainings[0], asked)
    eager = _seconds(_step_of(_pack(trainings, on)))
    started = time.perf_counter()
    _pack(trainings, on, compiled=True).step(0)
    cold = time.perf_counter() - started
    # Once more, from disk as a worker does.
    torch.compiler.reset()
    pack = _pack(trainings, on, compiled=True)
    started = time.perf_counter()
    pack.step(0)
    once = time.perf_counter() - started
    return {"eager": eager, "compiled": _seconds(_step_of(pack)), "once": once, "cold": cold}


def _on(training: Training, asked: DeviceSettings) -> DeviceSettings:
    """Device and precision of a training, whose model moves there."""
    device = asked.device if training.moves else "cpu"
    on = DeviceSettings(device, asked.precision)
    training.model.to(device)
    if on.precision == "auto":
        batch = [part.unsqueeze(0).to(device) for part in training.batch(0)]
        chosen = quickest(StackedModels([training.model]), training.objective, batch, on)
        on = DeviceSettings(device, chosen)
    return on


def _step_of(pack: Any) -> Callable[[int], Any]:
    """A step that ends when its result is there, also on a GPU."""
    return lambda at: pack.step(at)[0].tolist()


def _pack(
    trainings: Sequence[Training],
    on: DeviceSettings,
    *,
    compiled: bool = False,
    traced: bool = False,
) -> Any:
    # The trainer copies the models: the trainings stay unchanged.
    named = {str(i): training for i, training in enumerate(trainings)}
    trainer = BatchedTrainer(
        named,
        size=len(trainings),
        compiled=compiled,
        traced=traced,
        precision=on.precision,
        device=on.device,
    )
    return trainer.stacks[0]


def _finish(request: TrainingRequest, training: Training, trained: Trained) -> float:
    with temporary_folder() as folder:
        context = RunContext("profile", folder, lambda _: None, lambda: False)
        started = time.perf_counter()
        request.finish(context, training, training.model, trained)
        return time.perf_counter() - started


@fused_decoder()
def _update(training: Training, at: int, on: DeviceSettings) -> None:
    for group in training.optimiser.param_groups:
        group["lr"] = group["peak_lr"] * training.factor(at)
    batch = [part.to(on.device) for part in training.batch(at)]
    with on.autocast():
        loss = training.objective(training.model, *batch)
    training.optimiser.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    loss.item()
    training.optimiser.step()


def _seconds(step: Callable[[int], Any]) -> float:
    """The median of a few steps, without the first, which includes set-up."""
    step(0)
    times: list[float] = []
    while len(times) < 2 or (sum(times) < ENOUGH and len(times) < 20):
        started = time.perf_counter()
        step(len(times) + 1)
        times.append(time.perf_counter() - started)
    return median(times)


def main() -> None:
    """Profile the shapes on standard input; write results to standard output."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # anything printed goes to standard error
    asked = json.loads(sys.stdin.read())

    def write(result: Any) -> None:
        output.write(json.dumps(result) + "\n")
        output.flush()

    # Imports must not count for the first shape: optimisers import torch's compiler, the first
    # evaluation imports scipy.stats.
    import scipy.stats  # noqa: F401
    import torch._dynamo

    for specs, new in zip(asked["shapes"], _first(asked["families"]), strict=True):
        with contextlib.suppress(Exception):
            request = Spec.from_dict(specs[0], trusted=True)()
            if new and asked["device"] == "cpu":
                _build_kernels(request)
    write(READY)
    on, family, cheapest = DeviceSettings(asked["device"], asked["precision"]), None, 0.0
    middle = _middle(asked["families"])
    for i, (specs, name) in enumerate(zip(asked["shapes"], asked["families"], strict=True)):
        if name != family:
            family, cheapest = name, 0.0
        try:
            made = [Spec.from_dict(spec, trusted=True) for spec in specs]
            request = made[0]()
            with default_dtype(request.dtype):
                if asked["compiled"]:
                    found = compiled_time(made, asked=on)
                elif isinstance(request, TrainingRequest):
                    found = step_time(made, cheapest=cheapest, finishing=i in middle, asked=on)
                    cheapest = cheapest or found["step"]
                else:
                    found = {"seconds": job_seconds(request)}
        except Exception as error:
            print(f"allometry: could not profile {specs[0]['spec']}: {error}", file=sys.stderr)  # noqa: T201
            found = None
        write(found)
    output.close()


def _build_kernels(request: Any) -> None:
    """Build the kernels that steps of a training use, which takes seconds once on a machine."""
    if not isinstance(request, TrainingRequest):
        return
    with default_dtype(request.dtype):
        training = request.training()
        with fused_decoder():
            training.objective(training.model, *training.batch(0))
        if training.steps >= TRACED:
            with packed_mlp.fused_mlp():
                training.objective(training.model, *training.batch(0))


def _first(families: Sequence[str]) -> list[bool]:
    """Whether each shape is the first of its family; shapes of a family are adjacent."""
    return [i == 0 or families[i - 1] != name for i, name in enumerate(families)]


def _middle(families: Sequence[str]) -> set[int]:
    """The index of the middle shape of each family; shapes of a family are adjacent."""
    return {families.index(name) + families.count(name) // 2 for name in set(families)}


if __name__ == "__main__":
    main()
