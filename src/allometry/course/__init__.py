"""The course: lessons as notebooks, their charts and exercises.

Names load on first use (PEP 562): `al.course.check` needs no chart library.
"""

from typing import TYPE_CHECKING

from allometry._core.lazy_names import lazy_names

if TYPE_CHECKING:
    from allometry.course import charts, diagrams
    from allometry.course.exercise import Exercise, Feedback, check, solution
    from allometry.course.figure import Figure, Film
    from allometry.course.lesson import Lesson, names, notebook, read
    from allometry.course.size import amount

__all__ = [
    "Exercise",
    "Feedback",
    "Figure",
    "Film",
    "Lesson",
    "amount",
    "charts",
    "check",
    "diagrams",
    "names",
    "notebook",
    "read",
    "solution",
]

_HOMES = {
    ".exercise": ("Exercise", "Feedback", "check", "solution"),
    ".figure": ("Figure", "Film"),
    ".lesson": ("Lesson", "names", "notebook", "read"),
    ".size": ("amount",),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, modules=("charts", "diagrams"))
