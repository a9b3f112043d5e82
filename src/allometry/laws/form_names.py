"""The forms by name, for `fit(form="...")` and the command line."""

from collections.abc import Callable
from typing import Any

from allometry._core.errors import InputError
from allometry.laws import forms
from allometry.laws.coupled_forms import Coupled, Kaplan, Steps, Tied
from allometry.laws.forms import Form
from allometry.laws.formulas import Formula
from allometry.laws.frontier_form import Frontier
from allometry.laws.learning_curves import Broken, Shifted, Sigmoid
from allometry.laws.repeated_data import Repeated

Maker = Callable[[str], Form]

MAKERS: dict[str, Maker] = {
    "power": forms.power,
    "floor": forms.floor,
    "chinchilla": lambda x: forms.chinchilla(),
    "tied": lambda x: Tied(),
    "coupled": lambda x: Coupled(),
    "kaplan": lambda x: Kaplan(),
    "frontier": lambda x: Frontier(),
    "frontier_power": lambda x: Frontier(irreducible=False),
    "steps": lambda x: Steps(),
    "repeated": lambda x: Repeated(),
    "m1": forms.power,
    "m2": forms.floor,
    "m3": Shifted,
    "m4": Sigmoid,
    "logistic": lambda x: Broken(x, flat=True),
    "broken": Broken,
    "broken2": lambda x: Broken(x, breaks=2),
    "broken3": lambda x: Broken(x, breaks=3),
}

FORMS = ("auto", *MAKERS)
"""Names that `fit(form=...)` takes."""


def named(form: str | Form | Callable[..., Any]) -> Maker:
    """The constructor of a named form for a given variable; a form or formula is used as it is."""
    if isinstance(form, Form):
        return lambda x: form
    if callable(form):
        formula = Formula(form)
        return lambda x: formula
    if form not in MAKERS:
        raise InputError(f"fit.form must be one of {', '.join(FORMS)}; got {form!r}.")
    return MAKERS[form]
