"""Bundles by a fixed rule, without measured times: for deterministic runs and time budgets."""

import hashlib
import json
from collections.abc import Iterable, Sequence

from allometry._core.spec import Spec
from allometry.study.request import TrainingRequest
from allometry.study.schedule.cost_model import LARGEST_PACK
from allometry.study.schedule.measured_costs import vectorises
from allometry.study.schedule.step_time_cache import shape_key
from allometry.study.tasks import Bundle, ExecutionOptions, Task, single


def bundle_name(keys: Sequence[str]) -> str:
    """A name that depends on the keys of all runs of a bundle."""
    return hashlib.sha256("+".join(keys).encode()).hexdigest()[:16]


def deterministic_bundles(specs: Sequence[Spec], tasks: Sequence[Task]) -> list[Bundle]:
    """`tasks` one by one, except that runs with a common stable phase share it.

    The number of vectorised models and the kernels determine how sums are rounded. The best choice
    depends on measured times, so nothing is vectorised here.

    Args:
        specs: All runs of the study, done or not.
        tasks: Those to carry out.
    """
    left = {task.key: task for task in tasks}
    groups: dict[str, list[str]] = {}
    for spec in specs:
        request = spec()
        phase = request.stable_phase if isinstance(request, TrainingRequest) else None
        # The identifier of a stable phase does not contain the class of the wrapping request.
        group = spec.key if phase is None else json.dumps([spec.name, phase])
        groups.setdefault(group, []).append(spec.key)
    bundles = []
    for keys in groups.values():
        members = tuple(left[key] for key in keys if key in left)
        if members:
            # Named by the whole group, so that the remaining runs find their checkpoint.
            bundles.append(Bundle(keys[0] if len(keys) == 1 else bundle_name(keys), members))
    return bundles


def rule_bundles(tasks: Iterable[Task]) -> list[Bundle]:
    """Small trainings of one shape vectorised, stable phases shared, all other runs one by one."""
    shapes: dict[str, dict[str, list[Task]]] = {}
    bundles: list[Bundle] = []
    for task in tasks:
        request = task.spec()
        if isinstance(request, TrainingRequest) and (vectorises(request) or request.stable_phase):
            shape = shapes.setdefault(shape_key(task.spec, request), {})
            shape.setdefault(request.stable_phase or task.key, []).append(task)
        else:
            bundles.append(single(task))
    return bundles + [bundle for shape in shapes.values() for bundle in _chunks(shape)]


def _chunks(units: dict[str, list[Task]]) -> list[Bundle]:
    # Runs of equal length together: a bundle takes as long as its longest member.
    rows = sorted(units.values(), key=lambda unit: -max(task.spec().steps for task in unit))
    size = LARGEST_PACK if vectorises(rows[0][0].spec()) else 1
    bundles = []
    for i in range(0, len(rows), size):
        chunk = rows[i : i + size]
        tasks = tuple(task for unit in chunk for task in unit)
        name = bundle_name([task.key for task in tasks])
        bundles.append(
            single(tasks[0])
            if len(tasks) == 1
            else Bundle(name, tasks, ExecutionOptions(size=len(chunk)))
        )
    return bundles
