"""Scaling laws: fit loss against size, data and compute, predict with intervals, plan budgets.

Needs numpy, scipy and a table of runs. Names load on first use (PEP 562): a fit of losses in size
and data loads neither laws in any variables nor comparisons.
"""

from typing import TYPE_CHECKING

from allometry._core.lazy_names import lazy_names

if TYPE_CHECKING:
    from allometry.laws import (
        branching,
        hardware,
        kaplan,
        mammals,
        memory,
        published,
        small_scale,
    )
    from allometry.laws.allometric import (
        Allometry,
        allometry,
        common_exponent,
        compare,
        consistent,
        isometry,
    )
    from allometry.laws.batch import fit_many
    from allometry.laws.comparison.comparison_verdict import RecipeComparison, compare_recipes
    from allometry.laws.data_transfer import transfer
    from allometry.laws.design import Design
    from allometry.laws.downstream import TaskCurve, task_curve
    from allometry.laws.family_choice import FamilyChoice, choose_family
    from allometry.laws.fitting import extrapolate, fit
    from allometry.laws.form_names import FORMS
    from allometry.laws.forms import Form
    from allometry.laws.hoffmann import allocations
    from allometry.laws.identifiability import identified, profile
    from allometry.laws.inverse import budget
    from allometry.laws.law import Law
    from allometry.laws.law_files import load
    from allometry.laws.live_watch import Watcher, optuna_pruner
    from allometry.laws.monitoring import TrainingState, watch
    from allometry.laws.multi_power import LossCurve, MultiPowerLaw, fit_schedule
    from allometry.laws.multivariate.campaigns import Replay, replay
    from allometry.laws.multivariate.form_library import LIBRARY
    from allometry.laws.multivariate.law import VariableLaw
    from allometry.laws.multivariate.pool import PoolDesign, choose_runs
    from allometry.laws.plan import Plan, crossing_of
    from allometry.laws.run_proposals import next_runs
    from allometry.laws.training_forecast import forecast

__all__ = [
    "FORMS",
    "LIBRARY",
    "Allometry",
    "Design",
    "FamilyChoice",
    "Form",
    "Law",
    "LossCurve",
    "MultiPowerLaw",
    "Plan",
    "PoolDesign",
    "RecipeComparison",
    "Replay",
    "TaskCurve",
    "TrainingState",
    "VariableLaw",
    "Watcher",
    "allocations",
    "allometry",
    "branching",
    "budget",
    "choose_family",
    "choose_runs",
    "common_exponent",
    "compare",
    "compare_recipes",
    "consistent",
    "crossing_of",
    "extrapolate",
    "fit",
    "fit_many",
    "fit_schedule",
    "forecast",
    "hardware",
    "identified",
    "isometry",
    "kaplan",
    "load",
    "mammals",
    "memory",
    "next_runs",
    "optuna_pruner",
    "profile",
    "published",
    "replay",
    "small_scale",
    "task_curve",
    "transfer",
    "watch",
]

_HOMES = {
    ".allometric": (
        "Allometry",
        "allometry",
        "common_exponent",
        "compare",
        "consistent",
        "isometry",
    ),
    ".batch": ("fit_many",),
    ".comparison.comparison_verdict": ("RecipeComparison", "compare_recipes"),
    ".data_transfer": ("transfer",),
    ".design": ("Design",),
    ".downstream": ("TaskCurve", "task_curve"),
    ".family_choice": ("FamilyChoice", "choose_family"),
    ".fitting": ("extrapolate", "fit"),
    ".form_names": ("FORMS",),
    ".forms": ("Form",),
    ".hoffmann": ("allocations",),
    ".identifiability": ("identified", "profile"),
    ".inverse": ("budget",),
    ".law": ("Law",),
    ".law_files": ("load",),
    ".live_watch": ("Watcher", "optuna_pruner"),
    ".monitoring": ("TrainingState", "watch"),
    ".multi_power": ("LossCurve", "MultiPowerLaw", "fit_schedule"),
    ".multivariate.campaigns": ("Replay", "replay"),
    ".multivariate.form_library": ("LIBRARY",),
    ".multivariate.law": ("VariableLaw",),
    ".multivariate.pool": ("PoolDesign", "choose_runs"),
    ".run_proposals": ("next_runs",),
    ".plan": ("Plan", "crossing_of"),
    ".regressor": ("ScalingLawRegressor",),
    ".training_forecast": ("forecast",),
}

__getattr__, __dir__ = lazy_names(
    __name__,
    _HOMES,
    modules=("branching", "hardware", "kaplan", "mammals", "memory", "published", "small_scale"),
    old={"Curve": "LossCurve"},
)
