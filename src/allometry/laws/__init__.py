"""Scaling laws: fit loss against size, data and compute, predict with intervals, plan budgets.

Needs numpy, scipy and a table of runs.
"""

from typing import Any

from allometry._core.deprecation import moved
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
from allometry.laws.design import Design
from allometry.laws.downstream import TaskCurve, task_curve
from allometry.laws.family_choice import FamilyChoice, choose_family
from allometry.laws.fitting import extrapolate, fit
from allometry.laws.forecast import forecast
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
from allometry.laws.next_runs import next_runs
from allometry.laws.plan import Plan, crossing_of
from allometry.laws.transfer import transfer

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

_old_name = moved(__name__, {"Curve": "LossCurve"})


def __getattr__(name: str) -> Any:
    # It needs scikit-learn, which the other names do without.
    if name == "ScalingLawRegressor":
        from allometry.laws.regressor import ScalingLawRegressor

        return ScalingLawRegressor
    return _old_name(name)
