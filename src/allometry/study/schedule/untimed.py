"""Which runs go together where nothing was tried: a function of the runs alone."""

from collections.abc import Iterable

from allometry.study.request import TrainingRequest
from allometry.study.schedule.cost_model import LARGEST_PACK
from allometry.study.schedule.measured_costs import packs
from allometry.study.schedule.packing import _name, _shape
from allometry.study.tasks import Bundle, ExecutionOptions, Task, alone


def together(tasks: Iterable[Task]) -> list[Bundle]:
    """Small trainings of one shape stepped as one, trunks shared, and everything else alone."""
    units: dict[str, dict[str, list[Task]]] = {}
    single: list[Bundle] = []
    for task in tasks:
        request = task.spec()
        if isinstance(request, TrainingRequest) and (packs(request) or request.trunk):
            shape = units.setdefault(_shape(task.spec, request), {})
            shape.setdefault(request.trunk or task.key, []).append(task)
        else:
            single.append(alone(task))
    return single + [bundle for shape in units.values() for bundle in _bundles(shape)]


def _bundles(units: dict[str, list[Task]]) -> list[Bundle]:
    # Those of one length together: a pack is as long as its longest member.
    rows = sorted(units.values(), key=lambda unit: -max(task.spec().steps for task in unit))
    size = LARGEST_PACK if packs(rows[0][0].spec()) else 1
    made = []
    for i in range(0, len(rows), size):
        chunk = rows[i : i + size]
        tasks = tuple(task for unit in chunk for task in unit)
        made.append(
            alone(tasks[0])
            if len(tasks) == 1
            else Bundle(_name(tasks), tasks, ExecutionOptions(size=len(chunk)))
        )
    return made
