"""Choose the bundles whose steps are compiled."""

import dataclasses
import json
from collections.abc import Callable

from allometry.study.request import TrainingRequest
from allometry.study.schedule.fixed_bundles import bundle_name
from allometry.study.schedule.step_time_cache import compile_seconds, shape_key
from allometry.study.schedule.timing import TimingOptions, known_compiled, profile_compiled
from allometry.study.tasks import Bundle, ExecutionOptions, Task
from allometry.train.packed.trace import compiler

RISK = 0.03
"""Largest share of a shape's time that may be lost where compiled steps are not faster.

Compiling also gives the step time, so it costs once what it takes. A shape is compiled if that is
less than this share of its time, or if an earlier study has compiled it.
"""

COMPILE_SECONDS = 25.0
"""Seconds to compile a shape, before this machine has compiled any."""


def compiled_bundles(
    chosen: list[Bundle], timing: TimingOptions, report: Callable[[str], None] | None
) -> list[Bundle]:
    """Compile shapes that take long enough, if profiling says that it is faster."""
    if compiler() is None:
        return chosen
    shapes: dict[str, list[Bundle]] = {}
    for bundle in chosen:
        shapes.setdefault(_compiled_shape(bundle), []).append(bundle)
    work = {name: sum(bundle.work for bundle in some) for name, some in shapes.items()}
    specs = {
        name: [task.spec for task in some[0].tasks][: some[0].how.size]
        for name, some in shapes.items()
    }
    times = dict(zip(shapes, known_compiled(list(specs.values()), timing), strict=True))
    cold = compile_seconds() or COMPILE_SECONDS
    # Runs of a bundle that end earlier leave a smaller stack, which a worker compiles anew.
    later = {n: cold * sum(_stack_sizes(b) - 1 for b in some) for n, some in shapes.items()}
    fresh = [n for n in shapes if times[n] is None and cold + later[n] < RISK * work[n]]
    if fresh and report is not None:
        report(f"Compiling {len(fresh)} shapes for this processor, up to half a minute each ...")
    if fresh:
        found = profile_compiled([specs[name] for name in fresh], timing)
        times |= dict(zip(fresh, found, strict=True))
    bundles = []
    for bundle in chosen:
        name = _compiled_shape(bundle)
        compiled = times[name]
        if compiled is not None:
            share = compiled.compiled / compiled.eager
            # Every worker that uses the shape loads it once.
            loads = compiled.once * min(timing.workers, len(shapes[name])) + later[name]
            if work[name] * (1 - RISK - share) > loads:
                how = dataclasses.replace(bundle.how, compiled=True)
                bundle = changed(bundle, how, share)
        bundles.append(bundle)
    return bundles


def _stack_sizes(bundle: Bundle) -> int:
    """Number of stacks of different sizes while a bundle's runs end one after another."""
    if bundle.how.size == 1:
        return 1
    requests = [task.spec() for task in bundle.tasks]
    lengths = {r.steps for r in requests if isinstance(r, TrainingRequest)}
    shared = any(isinstance(r, TrainingRequest) and r.stable_phase for r in requests)
    return len(lengths) * (2 if shared else 1)


def _compiled_shape(bundle: Bundle) -> str:
    """Identifies what is compiled once: the shape and the number of models."""
    spec = bundle.tasks[0].spec
    return json.dumps([bundle.how.size, shape_key(spec, spec())])


def changed(
    bundle: Bundle, how: ExecutionOptions, share: float, name: str | None = None
) -> Bundle:
    """The bundle with other options, in a share of its time."""
    tasks = tuple(Task(task.spec, task.work * share) for task in bundle.tasks)
    return Bundle(name or bundle_name([task.key for task in tasks]), tasks, how)
