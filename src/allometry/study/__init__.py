"""Sets of runs: what to grow, who carries it out, and the journal of what came of it."""

from allometry.study import recipes
from allometry.study.executors import Event, Executor, Task, local
from allometry.study.generation import Generation, Piece, likeliest
from allometry.study.jobs import demo_study
from allometry.study.journal import Journal
from allometry.study.ladder import ladder
from allometry.study.request import Outcome, Place, Request
from allometry.study.runs import Runs
from allometry.study.saved import Saved, load
from allometry.study.study import Recipe, Study

__all__ = [
    "Event",
    "Executor",
    "Generation",
    "Journal",
    "Outcome",
    "Piece",
    "Place",
    "Recipe",
    "Request",
    "Runs",
    "Saved",
    "Study",
    "Task",
    "demo_study",
    "ladder",
    "likeliest",
    "load",
    "local",
    "recipes",
]
