"""Studies: sets of runs, the executors that carry them out, and the journal of their results.

Names load on first use (PEP 562): `Runs` and `Journal` need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from allometry._core.deprecation import moved

if TYPE_CHECKING:
    from allometry.runs.folder import Runs
    from allometry.runs.journal import Journal
    from allometry.study import jobs, recipes
    from allometry.study.all_families import FamilyGroup, family_groups
    from allometry.study.equal_compute import at_compute
    from allometry.study.execute.driver import Event
    from allometry.study.execute.executors import Executor, local
    from allometry.study.execute.ray_cluster import RayResources, ray
    from allometry.study.execute.tensorboard import TensorBoardLogger
    from allometry.study.execute.torchrun import torchrun
    from allometry.study.jobs import demo_study
    from allometry.study.own_training.command_study import command_study
    from allometry.study.own_training.function_runs import function_recipe, function_study
    from allometry.study.request import Outcome, Request, RunContext, TrainingRequest
    from allometry.study.saved_models import SavedModel, load
    from allometry.study.schedule.packing import Schedule
    from allometry.study.size_ladder import ladder
    from allometry.study.study import Recipe, Study
    from allometry.study.text_generation import GeneratedText, Generation, likeliest

__all__ = [
    "Event",
    "Executor",
    "FamilyGroup",
    "GeneratedText",
    "Generation",
    "Journal",
    "Outcome",
    "RayResources",
    "Recipe",
    "Request",
    "RunContext",
    "Runs",
    "SavedModel",
    "Schedule",
    "Study",
    "TensorBoardLogger",
    "TrainingRequest",
    "at_compute",
    "command_study",
    "demo_study",
    "family_groups",
    "function_recipe",
    "function_study",
    "jobs",
    "ladder",
    "likeliest",
    "load",
    "local",
    "ray",
    "recipes",
    "torchrun",
]

_MODULES = {
    "runs.folder": ("Runs",),
    "runs.journal": ("Journal",),
    "study.all_families": ("FamilyGroup", "family_groups"),
    "study.equal_compute": ("at_compute",),
    "study.execute.driver": ("Event",),
    "study.execute.executors": ("Executor", "local"),
    "study.execute.ray_cluster": ("RayResources", "ray"),
    "study.execute.tensorboard": ("TensorBoardLogger",),
    "study.execute.torchrun": ("torchrun",),
    "study.jobs": ("demo_study",),
    "study.own_training.command_study": ("command_study",),
    "study.own_training.function_runs": ("function_recipe", "function_study"),
    "study.request": ("Outcome", "Request", "RunContext", "TrainingRequest"),
    "study.saved_models": ("SavedModel", "load"),
    "study.schedule.packing": ("Schedule",),
    "study.size_ladder": ("ladder",),
    "study.study": ("Recipe", "Study"),
    "study.text_generation": ("GeneratedText", "Generation", "likeliest"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

_deprecated = moved(
    __name__,
    {
        "Board": "TensorBoardLogger",
        "Bundle": "allometry.study.tasks:Bundle",
        "How": "allometry.study.tasks:ExecutionOptions",
        "Needs": "RayResources",
        "Piece": "GeneratedText",
        "Place": "RunContext",
        "Saved": "SavedModel",
        "Task": "allometry.study.tasks:Task",
    },
)


def __getattr__(name: str) -> Any:
    if name in ("jobs", "recipes"):
        return importlib.import_module(f"allometry.study.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"allometry.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    return _deprecated(name)


def __dir__() -> list[str]:
    return sorted(__all__)
