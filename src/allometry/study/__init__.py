"""Studies: sets of runs, the executors that carry them out, and the journal of their results.

Names load on first use (PEP 562): `Runs` and `Journal` need no torch.
"""

from typing import TYPE_CHECKING

from allometry._core.lazy_names import lazy_names

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

_HOMES = {
    "allometry.runs.folder": ("Runs",),
    "allometry.runs.journal": ("Journal",),
    ".all_families": ("FamilyGroup", "family_groups"),
    ".equal_compute": ("at_compute",),
    ".execute.driver": ("Event",),
    ".execute.executors": ("Executor", "local"),
    ".execute.ray_cluster": ("RayResources", "ray"),
    ".execute.tensorboard": ("TensorBoardLogger",),
    ".execute.torchrun": ("torchrun",),
    ".jobs": ("demo_study",),
    ".own_training.command_study": ("command_study",),
    ".own_training.function_runs": ("function_recipe", "function_study"),
    ".request": ("Outcome", "Request", "RunContext", "TrainingRequest"),
    ".saved_models": ("SavedModel", "load"),
    ".schedule.packing": ("Schedule",),
    ".size_ladder": ("ladder",),
    ".study": ("Recipe", "Study"),
    ".text_generation": ("GeneratedText", "Generation", "likeliest"),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    _HOMES,
    modules=("jobs", "recipes"),
    old={
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
