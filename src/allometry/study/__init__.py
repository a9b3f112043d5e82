"""Sets of runs: what to grow, who carries it out, and the journal of what came of it."""

from allometry.runs.folder import Runs
from allometry.runs.journal import Journal
from allometry.study import recipes
from allometry.study.execute.driver import Event
from allometry.study.execute.executors import Executor, local
from allometry.study.execute.ray_cluster import Needs, ray
from allometry.study.execute.tensorboard import Board
from allometry.study.execute.torchrun import torchrun
from allometry.study.jobs import demo_study
from allometry.study.ladder import ladder
from allometry.study.request import Outcome, Place, Request, TrainingRequest
from allometry.study.saved_models import Saved, load
from allometry.study.schedule.packing import Schedule
from allometry.study.study import Recipe, Study
from allometry.study.tasks import Bundle, How, Task
from allometry.study.text_generation import Generation, Piece, likeliest

__all__ = [
    "Board",
    "Bundle",
    "Event",
    "Executor",
    "Generation",
    "How",
    "Journal",
    "Needs",
    "Outcome",
    "Piece",
    "Place",
    "Recipe",
    "Request",
    "Runs",
    "Saved",
    "Schedule",
    "Study",
    "Task",
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
