"""A process that tries shapes of trainings and says how long they take; see `probe`."""

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
from allometry.study.request import RunContext, TrainingRequest
from allometry.study.schedule.job_timing import nowhere, whole
from allometry.study.schedule.timing import READY
from allometry.train.device import DeviceSettings
from allometry.train.loop import Curve, Trained
from allometry.train.packed.adamw import quickest
from allometry.train.packed.loop import BatchedTrainer
from allometry.train.packed.stack import StackedModels
from allometry.train.training import Training

ENOUGH = 0.04
"""Seconds after which a measurement of at least two steps is good enough."""

TRACED = 1000
"""Steps of a training from which on tracing is tried."""


def price(
    specs: Sequence[Spec], *, cheapest: float, finishing: bool, precision: str = "float32"
) -> dict[str, Any]:
    """What the first of `specs` costs by itself, and packed with the others.

    Args:
        specs: Runs of one shape.
        cheapest: Seconds of a step of the smallest shape: nearly all of it is calls, which is what
            packing saves. Where a step takes four times as long, packing is not tried.
        finishing: Whether to try what comes after the last step too.
        precision: In which they will train.
    """
    requests = [spec() for spec in specs]
    trainings: list[Training] = [request.training() for request in requests]
    first = trainings[0]
    on = _on(first, precision)
    step = _seconds(lambda at: _update(first, at, on))
    packed = {}
    if requests[0].packs and step <= 4 * (cheapest or step):
        # A model that torch can't batch is not packed.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            for rows in sorted({2, 4, len(trainings)} - {1}):
                if rows <= len(trainings):
                    packed[rows] = _seconds(_pack(trainings[:rows], on).step)
    traced = 1.0
    if packed and first.steps >= TRACED and min(t / m for m, t in packed.items()) < step:
        # Only where packing pays as it is: tracing takes a second.
        last = max(packed)
        traced = min(1.0, _seconds(_pack(trainings[:last], on, traced=True).step) / packed[last])
    started = time.perf_counter()
    loss = first.measure(first.model)
    measure = time.perf_counter() - started
    finish = None
    if finishing:
        finish = _finish(requests[0], first, Trained(Curve([1], [1], [loss.value]), loss, 0.0))
    return {"step": step, "packed": packed, "measure": measure, "finish": finish,
            "traced": traced}  # fmt: skip


def compiled_price(specs: Sequence[Spec], *, precision: str = "float32") -> dict[str, Any]:
    """What a step of all `specs` packed costs eager and compiled, and how soon that is found."""
    import torch

    trainings: list[Training] = [spec().training() for spec in specs]
    on = _on(trainings[0], precision)
    eager = _seconds(_pack(trainings, on).step)
    _pack(trainings, on, compiled=True).step(0)
    # Once more, as a worker will: from the disk.
    torch.compiler.reset()
    pack = _pack(trainings, on, compiled=True)
    started = time.perf_counter()
    pack.step(0)
    once = time.perf_counter() - started
    return {"eager": eager, "compiled": _seconds(pack.step), "once": once}


def _on(training: Training, precision: str) -> DeviceSettings:
    """On the processor, in the precision in which it will train."""
    if precision == "auto":
        batch = [part.unsqueeze(0) for part in training.batch(0)]
        precision = quickest(StackedModels([training.model]), training.objective, batch)
    return DeviceSettings("cpu", precision)


def _pack(
    trainings: Sequence[Training],
    on: DeviceSettings,
    *,
    compiled: bool = False,
    traced: bool = False,
) -> Any:
    # What is packed is copied: the trainings themselves stay as they are.
    named = {str(i): training for i, training in enumerate(trainings)}
    ways = {"compiled": compiled, "traced": traced, "precision": on.precision}
    return BatchedTrainer(named, size=len(trainings), **ways).packs[0]


def _finish(request: TrainingRequest, training: Training, trained: Trained) -> float:
    with nowhere() as folder:
        place = RunContext("probe", folder, lambda _: None, lambda: False)
        started = time.perf_counter()
        request.finish(place, training, training.model, trained)
        return time.perf_counter() - started


def _update(training: Training, at: int, on: DeviceSettings) -> None:
    for group in training.optimiser.param_groups:
        group["lr"] = group["peak_lr"] * training.factor(at)
    with on.autocast():
        loss = training.objective(training.model, *training.batch(at))
    training.optimiser.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    loss.item()
    training.optimiser.step()


def _seconds(step: Callable[[int], Any]) -> float:
    """The median of a few steps; the first pays for what is made once."""
    step(0)
    taken: list[float] = []
    while len(taken) < 2 or (sum(taken) < ENOUGH and len(taken) < 20):
        started = time.perf_counter()
        step(len(taken) + 1)
        taken.append(time.perf_counter() - started)
    return median(taken)


def main() -> None:
    """Answer on standard output what standard input asks."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whoever prints must not speak into the answer
    asked = json.loads(sys.stdin.read())

    def say(answer: Any) -> None:
        output.write(json.dumps(answer) + "\n")
        output.flush()

    # All that is imported, which any optimiser does to torch's compiler, is not the first shape's.
    import torch._dynamo

    for specs in asked["shapes"]:
        with contextlib.suppress(Exception):
            Spec.from_dict(specs[0], trusted=True)()
    say(READY)
    precision, family, cheapest = asked["precision"], None, 0.0
    middle = _middle(asked["families"])
    for i, (specs, name) in enumerate(zip(asked["shapes"], asked["families"], strict=True)):
        if name != family:
            family, cheapest = name, 0.0
        try:
            made = [Spec.from_dict(spec, trusted=True) for spec in specs]
            if asked["compiled"]:
                found = compiled_price(made, precision=precision)
            elif isinstance(request := made[0](), TrainingRequest):
                known = {"cheapest": cheapest, "precision": precision}
                found = price(made, finishing=i in middle, **known)
                cheapest = cheapest or found["step"]
            else:
                found = {"seconds": whole(request)}
        except Exception as error:
            print(f"allometry: could not try {specs[0]['spec']}: {error}", file=sys.stderr)  # noqa: T201
            found = None
        say(found)
    output.close()


def _middle(families: Sequence[str]) -> set[int]:
    """Of each family's shapes, which follow one another, the one in the middle."""
    return {families.index(name) + families.count(name) // 2 for name in set(families)}


if __name__ == "__main__":
    main()
