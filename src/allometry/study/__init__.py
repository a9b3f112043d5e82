"""Sets of runs: what to grow, who carries it out, and the journal of what came of it."""

from allometry.runs.folder import Runs
from allometry.runs.journal import Journal
from allometry.study import recipes
from allometry.study.execute.driver import Event
from allometry.study.execute.executors import Executor, local
from allometry.study.execute.ray_cluster import RayResources, ray
from allometry.study.execute.tensorboard import TensorBoardLogger
from allometry.study.execute.torchrun import torchrun
from allometry.study.jobs import demo_study
from allometry.study.ladder import ladder
from allometry.study.request import Outcome, Request, RunContext, TrainingRequest
from allometry.study.saved_models import SavedModel, load
from allometry.study.schedule.packing import Schedule
from allometry.study.study import Recipe, Study
from allometry.study.tasks import Bundle, ExecutionOptions, Task
from allometry.study.text_generation import GeneratedText, Generation, likeliest

__all__ = [
    "Bundle",
    "Event",
    "ExecutionOptions",
    "Executor",
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
    "Task",
    "TensorBoardLogger",
    "TrainingRequest",
    "demo_study",
    "ladder",
    "likeliest",
    "load",
    "local",
    "ray",
    "recipes",
    "torchrun",
]
