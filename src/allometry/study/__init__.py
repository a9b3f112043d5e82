"""Sets of runs: what to grow, who carries it out, and the journal of what came of it."""

from allometry.study import recipes
from allometry.study.board import Board
from allometry.study.cluster import Needs, ray
from allometry.study.drive import Event
from allometry.study.executors import Executor, local
from allometry.study.generation import Generation, Piece, likeliest
from allometry.study.jobs import demo_study
from allometry.study.journal import Journal
from allometry.study.ladder import ladder
from allometry.study.request import Outcome, Place, Request, TrainingRequest
from allometry.study.runs import Runs
from allometry.study.saved import Saved, load
from allometry.study.schedule import Schedule
from allometry.study.study import Recipe, Study
from allometry.study.tasks import Bundle, How, Task
from allometry.study.together import torchrun

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
