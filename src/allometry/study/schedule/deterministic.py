"""Which runs go together where digits must repeat: by the study alone, never by a clock."""

import hashlib
import json
from collections.abc import Sequence

from allometry._core.spec import Spec
from allometry.study.request import TrainingRequest
from allometry.study.tasks import Bundle, Task


def fixed(specs: Sequence[Spec], tasks: Sequence[Task]) -> list[Bundle]:
    """`tasks` each by itself, but for runs of one trunk, which share it.

    How many models are stepped as one, and by which kernels, decides how sums are rounded. What
    packing is worth is a matter of timing, so that nothing is packed here.

    Args:
        specs: All runs of the study, whether they are done or not.
        tasks: Those that are to be carried out.
    """
    left = {task.key: task for task in tasks}
    units: dict[str, list[str]] = {}
    for spec in specs:
        request = spec()
        trunk = request.trunk if isinstance(request, TrainingRequest) else None
        # Of one trunk are runs of one class; a trunk's name does not tell of the class around it.
        unit = spec.key if trunk is None else json.dumps([spec.name, trunk])
        units.setdefault(unit, []).append(spec.key)
    found = []
    for keys in units.values():
        members = tuple(left[key] for key in keys if key in left)
        if members:
            found.append(Bundle(_name(keys), members))
    return found


def _name(keys: Sequence[str]) -> str:
    """By all that belong together, so that what is left of them resumes from their checkpoint."""
    if len(keys) == 1:
        return keys[0]
    return hashlib.sha256("+".join(keys).encode()).hexdigest()[:16]
