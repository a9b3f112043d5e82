"""Every published form: gradients, known answers, limits that reduce one form to another."""

import numpy as np
import pytest

from allometry.laws.multivariate.expression_forms import ExpressionForm, Link
from allometry.laws.multivariate.form_library import LIBRARY, ranged
from allometry.laws.multivariate.law_expressions import parse
from allometry.laws.multivariate.members import fit_sets
from allometry.laws.multivariate.variable_runs import read

N, D = np.logspace(7.5, 9.5, 4), np.logspace(9, 11.5, 4)
COLUMNS = {
    "N": N, "D": D, "X": np.array([1.5, 4, 16, 64]), "G": np.array([1.0, 2, 4, 8]),
    "S": np.array([0.0, 0.3, 0.6, 0.9]), "V": np.logspace(3.5, 5, 4), "U": np.logspace(8, 9, 3),
    "lr": np.logspace(-4, -2, 3), "bs": np.logspace(4.5, 6, 3), "T": np.logspace(3, 5, 4),
    "w": np.array([256.0, 512, 1024, 2048]), "d": np.array([4.0, 8, 16, 32]),
    "P": np.array([2.0, 4, 8]), "k": np.logspace(0, 4, 12), "n": np.logspace(0.5, 4, 12),
}  # fmt: skip
EXPERTS = {"d": 2.2, "a": -0.08, "b": -0.12, "c": 0.004, "X_start": 1.5, "X_max": 300.0}
POWERS = {"E": 1.5, "A": 200.0, "alpha": 0.3, "B": 400.0, "beta": 0.28}
TRUTH = {
    "routed": EXPERTS,
    "routed_bilinear": {k: v for k, v in EXPERTS.items() if "X" not in k},
    "fine_grained_experts": POWERS | {"g": 90.0, "gamma": 0.6},
    "sparse_experts": POWERS | {"c": 0.05, "lambda": 0.4, "d": 20.0, "delta": 0.3, "gamma": 0.25},
    "pruned": {k: v for k, v in POWERS.items() if k != "A"} | {"a": 150.0, "b": 0.7, "c": 50.0},
    "vocabulary": POWERS | {"C": 90.0, "nu": 0.3, "B": 3.0},
    "repeated_tokens": POWERS | {"R_star": 8.0},
    "step_law": POWERS
    | {"q": 0.02, "k": 1.8, "m": -0.7, "s": 0.3, "r": 0.01, "h": 0.6, "t": 0.57},
    "critical_batch": {"A": 9e13, "alpha": 0.08, "B": 2000.0, "b": 2e4, "beta": 0.7},
    "width_depth": POWERS | {"alpha": 0.5, "A": 3.0, "B": 2.0, "beta": 0.6, "C": 150.0,
                             "gamma": 0.3, "F": 300.0, "zeta": 0.28},
    "precision": POWERS | {"p": 2.5},
    "quantised": POWERS | {"C": 0.05, "gamma": 0.3, "nu": 0.2, "p": 1.2},
    "parallel_streams": {"A": 1e6, "k": 0.4, "alpha": 0.2, "E": 1.0},
    "distilled": POWERS | {"gamma": 0.8, "c": 0.5, "d": 1.2, "f": 0.5, "b": 1.0, "F": 300.0,
                           "mu": 0.3, "G": 400.0, "nu": 0.28, "omega": 0.8},
    "fine_tuned": {"A": 80.0, "alpha": 0.1, "beta": 0.12, "E": 1.1},
    "fine_tuned_rectified": {"B": 400.0, "D_pre": 200.0, "beta": 0.25, "E": 1.1},
    "transfer": POWERS | {"k": 1e4, "delta": 0.2, "nu": 0.4},
    "pass_at_k": {"a": 1.4, "b": 0.4},
    "best_of_n": {"r": 0.5, "alpha": 0.9, "beta": 0.1},
}  # fmt: skip

HARD = {"quantised": 64, "distilled": 96}
"""Starts of forms whose search has many local optima."""


def made(name):
    entry = LIBRARY[name]
    own = {v: COLUMNS[v] for v in entry.variables}
    if name == "distilled":
        own["T"] = np.linspace(1.6, 2.6, 4)
    mesh = np.meshgrid(*own.values(), indexing="ij")
    data = {v: m.reshape(-1) for v, m in zip(own, mesh, strict=True)}
    form = ExpressionForm(name, entry.text, list(own), Link(True, 1.0))
    natural = np.array([[TRUTH[name][letter] for letter in form.letters]])
    data["loss"] = form.response(natural, np.stack([data[v] for v in form.variables]))[0]
    return data, natural


def test_every_form_has_a_known_answer():
    assert set(TRUTH) == set(LIBRARY)


@pytest.mark.parametrize("name", LIBRARY)
def test_gradients_agree_with_finite_differences(name):
    data, natural = made(name)
    table = read(data, list(LIBRARY[name].variables), "loss", constant=True)
    rng = np.random.default_rng(0)
    form = ranged(name, parse(LIBRARY[name].text), table, LIBRARY[name].ranges, rng)
    X = np.stack([data[v] for v in form.variables])[:, ::3]
    theta = np.stack([p.inner(natural[:, j]) for j, p in enumerate(form.parameters)], 1)
    _, J = form.evaluate(theta, X)
    for j in range(form.p):
        step = np.zeros(form.p)
        step[j] = 1e-5
        slope = (form.value(theta + step, X) - form.value(theta - step, X))[0] / 2e-5
        assert J[0, j] == pytest.approx(slope, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", LIBRARY)
def test_every_form_recovers_the_runs_it_made(name):
    data, _ = made(name)
    table = read(data, list(LIBRARY[name].variables), "loss", constant=True)
    rng = np.random.default_rng(1)
    form = ranged(name, parse(LIBRARY[name].text), table, LIBRARY[name].ranges, rng)
    X = table.X[list(table.places(form.variables))]
    starts = HARD.get(name, 12)
    found = fit_sets(
        form, X, table.z, [np.arange(table.n)], starts=starts, rng=rng, delta=1e-3, shrink=False
    )[0]
    # Parameters that only scale one another are not unique; the responses are.
    # The 15 parameters of distillation form a valley, which the search leaves early.
    assert np.abs(found.value(X) - table.z).max() < (0.02 if name == "distilled" else 5e-3)


def value(name, at, **given):
    form = ExpressionForm(name, LIBRARY[name].text, list(LIBRARY[name].variables), Link(True, 1.0))
    truth = TRUTH[name] | given
    natural = np.array([[truth[letter] for letter in form.letters]])
    return form.response(natural, np.stack([at[v] for v in form.variables]))[0]


def test_limits_reduce_forms_to_the_additive_law():
    at = {"N": N, "D": D} | {k: np.ones(4) for k in ("U", "G", "S", "P")}
    additive = 1.5 + 200 / N**0.3 + 400 / D**0.28
    same = {
        "repeated_tokens": ({"U": D}, {}),
        "fine_grained_experts": ({}, {"g": 0.0}),
        "sparse_experts": ({"S": np.zeros(4)}, {"c": 0.0, "d": 0.0}),
        "pruned": ({"S": np.zeros(4)}, {}),
        "precision": ({"P": np.full(4, 500.0)}, {}),
        "quantised": ({"P": np.full(4, 500.0)}, {}),
        "transfer": ({}, {"k": 0.0}),
    }
    for name, (columns, given) in same.items():
        assert value(name, at | columns, **given) == pytest.approx(additive, rel=1e-9), name


def test_saturating_experts_reduce_to_the_bilinear_form():
    at = {"N": N, "X": np.array([2.0, 8, 32, 128])}
    wide = value("routed", at, X_start=1 + 1e-9, X_max=1e12)
    assert wide == pytest.approx(value("routed_bilinear", at), rel=1e-6)
