"""A fitted law as plain values for the evaluator in the page (`templates/planner_law.js`).

The script repeats the steps of `Law.log_band` and `laws.plan`; what these two read is collected
here and nowhere else. `tests/report/test_planner_evaluator.py` compares both.

Letters: m draws, p parameters.
"""

import base64
import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry._core.errors import InputError
from allometry.laws import Law, intervals
from allometry.laws.allocation import GROWTH, Allocation
from allometry.laws.component import Component
from allometry.laws.coupled_forms import Coupled, Kaplan, Steps, Tied
from allometry.laws.forms import Additive, Form
from allometry.laws.frontier_form import Frontier
from allometry.laws.intervals import ExtrapolationError
from allometry.laws.inverse import lowest_sizes
from allometry.laws.learning_curves import Broken, Shifted, Sigmoid
from allometry.laws.plan import INFERENCE, REPETITION_SCALE
from allometry.laws.repeated_data import Repeated

SCHEMA = 1
"""Version of the payload; the script refuses others."""

STEPS = 2**32 - 1
"""Steps between the lowest and the highest draw of a parameter: an error of 1e-10 of the range."""

MOST_NUMBERS = 170_000
"""Numbers in the draws of all members of a page; at 16/3 characters each they take 0.9 MB."""


def payload(law: Law) -> dict[str, Any]:
    """What the page needs to evaluate `law.predict` and `law.plan`, ready for JSON.

    Raises:
        InputError: If the law has no plan, or a form that the page can't evaluate.
    """
    kind = plan_kind(law)
    logs = law.table.logs
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": kind,
        "form": law.form,
        "variables": list(law.variables),
        "members": [_member(m) for m in law.members],
        "seen": {name: [float(x.min()), float(x.max())] for name, x in logs.items()},
        "cost": _cost(law),
        "path": None if law.path is None else {"mean": law.path.mean, "of": law.path.of},
        "interval": _interval(law),
        "constants": {"inference": INFERENCE, "repetition": REPETITION_SCALE},
    }
    if kind == "allocation":
        made["central"] = {name: float(logs[name].mean()) for name in ("N", "C")}
        made["allocation"] = _allocation(law)
    if kind == "compute" and {"N", "D"} <= set(logs):
        c, n = logs["C"], logs["N"]
        slope = float(np.cov(c, n)[0, 1] / c.var(ddof=1))
        made["trend"] = {"C": float(c.mean()), "N": float(n.mean()), "slope": slope}
    numbers = _numbers(law.members) + (
        _numbers(law.allocation.law.members) if kind == "allocation" else 0
    )
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"The law must have at most {MOST_NUMBERS} numbers in its draws for a page; got "
            f"{numbers}. Fit it with fewer bootstrap resamples."
        )
    return made


def plan_kind(law: Law) -> str:
    """How the law plans a budget: `allocation`, `path` or `compute`.

    Raises:
        InputError: If it can't, or if the page can't evaluate one of its forms.
    """
    for member in law.members:
        _shape(member.form)
    if {"N", "D"} <= set(law.variables):
        if "C" in law.table.logs:
            return "allocation"
    elif law.path is not None:
        return "path"
    elif law.variables == ("C",):
        return "compute"
    raise InputError(
        "The planner must have a law that depends on N and D, or on C; got a law in "
        f"{' and '.join(law.variables)}."
    )


def packed(values: Float[ndarray, " m"]) -> dict[str, Any]:
    """Numbers as 32-bit steps between their lowest and highest, in base64."""
    if not len(values):
        return {"low": 0.0, "step": 0.0, "data": ""}
    if not np.isfinite(values).all():
        raise InputError("The draws of the law must be finite for a page; got an infinite one.")
    low, high = float(values.min()), float(values.max())
    step = (high - low) / STEPS
    whole = np.round((values - low) / step) if step > 0 else np.zeros(len(values))
    data = base64.b64encode(whole.astype("<u4").tobytes()).decode()
    return {"low": low, "step": step, "data": data}


def _numbers(members: tuple[Component, ...]) -> int:
    return sum(m.draws.size for m in members)


def _shape(form: Form) -> dict[str, Any]:
    """The name of the form's function in the script, and its options."""
    if isinstance(form, Additive):
        return {"kind": "additive", "irreducible": form.irreducible}
    if isinstance(form, Tied):
        return {"kind": "additive", "irreducible": True}
    if isinstance(form, Steps):
        return {"kind": "additive", "irreducible": False}
    if isinstance(form, Frontier):
        return {"kind": "frontier", "irreducible": form.irreducible}
    if isinstance(form, Broken):
        return {"kind": "broken", "breaks": form.breaks, "flat": form.flat}
    for cls, name in _PLAIN.items():
        if isinstance(form, cls):
            return {"kind": name}
    raise InputError(
        f"The planner must have one of the named forms; got {form.name!r}. See `allometry list "
        "forms`."
    )


_PLAIN: dict[type[Form], str] = {
    Coupled: "coupled",
    Kaplan: "kaplan",
    Repeated: "repeated",
    Shifted: "shifted",
    Sigmoid: "sigmoid",
}


def _member(member: Component) -> dict[str, Any]:
    theta, draws = member.theta[None], member.draws
    if isinstance(member.form, Tied):
        theta, draws = member.form.additive(theta), member.form.additive(draws)
    return {
        **_shape(member.form),
        "name": member.form.name,
        "variables": list(member.form.variables),
        "weight": member.weight,
        "centre": member.centre.tolist(),
        "theta": theta[0].tolist(),
        "draws": [packed(column) for column in draws.T],
    }


def _cost(law: Law) -> dict[str, float | None]:
    cost = law.cost
    return {
        "level": cost.level,
        "slope": cost.slope,
        "mid": cost.mid,
        "low": cost.low if math.isfinite(cost.low) else None,
        "high": cost.high if math.isfinite(cost.high) else None,
    }


def _interval(law: Law) -> dict[str, Any]:
    """The noise, the extrapolation error and the mixture of `laws.intervals.half_width`."""
    error, calibration = law.extrapolation_error, law.calibration
    # The squared scales are inflation * (variance + noise^2): variances of 0 and 1 give both.
    known = intervals.mixture_scales(
        np.array([0.0, 1.0]), law.noise, law.dof, np.zeros(2), error, calibration.noise_prior
    )
    none, one = (known[0] ** 2).reshape(2, -1, len(error.tau))[:, :, 0]
    size = law.table.configurations, len(law.variables)
    few = [
        float(np.sqrt(intervals.few_runs_variance(*at, calibration.few_runs))[0])
        for at in ((np.ones(1), *size, np.zeros(1)), (np.zeros(1), *size, np.ones(1)))
    ]
    return {
        "noise": float(np.sqrt(none[0] / (one[0] - none[0]))),
        "inflation": (one - none).tolist(),
        "tau": error.tau.tolist(),
        "weight": known[1].tolist(),
        "between": intervals.BETWEEN_FORMS,
        "few": {"distance": few[0], "decline": few[1]},
        "calibration": {
            name: getattr(calibration, name)
            for name in ("kappa", "rate", "spread", "reach", "draws", "moves_value")
        },
        "target": 0.975,
        "quantile": float(special.ndtri(0.975)),
    }


def _allocation(law: Law) -> dict[str, Any]:
    allocation = law.allocation
    same = allocation.law.members is law.members
    error = allocation.extrapolation_error
    return {
        "members": None if same else [_member(m) for m in allocation.law.members],
        "error": None if error is None else _error(error, allocation),
        "prior": _prior(allocation),
    }


def _error(error: ExtrapolationError, allocation: Allocation) -> dict[str, Any]:
    return {
        "tau": error.tau.tolist(),
        "weight": error.weight.tolist(),
        "max_log_compute": allocation.max_log_compute,
    }


def _prior(allocation: Allocation) -> dict[str, Any] | None:
    """The prior of the exponent of the optimal size; see `Allocation.prior_shifts`."""
    if not allocation.backtested or allocation.data_weight == 1.0:
        return None
    top = allocation.max_log_compute
    start = lowest_sizes(allocation.law, np.array([top]))[:, 0]
    growth = np.random.default_rng(0).normal(*GROWTH, len(start))
    return {
        "data_weight": allocation.data_weight,
        "max_log_compute": top,
        "growth": {"first": GROWTH[0], "draws": packed(growth[1:])},
        "start": {"first": float(start[0]), "draws": packed(start[1:])},
    }
