"""Laws: fit loss against size, data and compute; predict with honest intervals; plan.

Needs numpy and scipy only, and data that anyone has: a table of runs.
"""

from allometry.laws.catalogue import FORMS
from allometry.laws.fitting import extrapolate, fit
from allometry.laws.forms import Form
from allometry.laws.law import Law
from allometry.laws.plan import Plan

__all__ = ["FORMS", "Form", "Law", "Plan", "extrapolate", "fit"]
