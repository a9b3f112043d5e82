"""Fits: known optima, known truths, error messages for bad input."""

import numpy as np
import pytest

import allometry as al
from allometry.laws import forms, solver
from allometry.laws.component import fit_component, fit_subsets
from allometry.laws.form_names import named
from allometry.laws.objective import FORECAST
from allometry.laws.runs_table import read


def ladder(seed, ratios=(20.0, 80.0), noise=0.005):
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(1e3, 5e5, 8), 2 * len(ratios))
    D = N * np.tile(np.repeat(ratios, 2), 8)
    truth = 1.3 + 12 / N**0.35 + 30 / D**0.4
    return N, D, truth * np.exp(noise * rng.standard_normal(len(N)))


def test_optimum_on_the_chinchilla_points(epoch):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=0)
    assert law.n == 240
    assert law.objective <= 1.01827402e-3
    truth = {"A": 477.826, "B": 2143.42, "E": 1.817218, "alpha": 0.347310, "beta": 0.367172}
    for name, value in truth.items():
        assert law.params[name].value == pytest.approx(value, rel=1e-3), name


def test_random_starts_agree_on_the_chinchilla_points(epoch):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=0, starts=400)
    assert law.starts.agree == law.starts.tried


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6])
def test_exponents_ignore_units(unit):
    N, D, loss = ladder(0)
    a = al.laws.fit({"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=0)
    b = al.laws.fit({"N": N * unit, "D": D, "loss": loss}, "chinchilla", bootstrap=0)
    for name in ("E", "alpha", "beta", "B"):
        assert b.params[name].value == pytest.approx(a.params[name].value, rel=1e-4)


def test_one_iteration_from_a_start_is_not_converged():
    rng = np.random.default_rng(0)
    X = np.linspace(-1, 1, 20)[None]
    form = forms.floor()
    theta = form.starts(X, np.linspace(1, 0.5, 20), 4, rng)
    problem = solver.Problem(form, X, np.linspace(1, 0.5, 20))
    found = solver.minimise(problem, theta, iterations=1)
    assert not found.converged.any()


def test_least_squares_agrees_with_scipy():
    from scipy.optimize import least_squares

    N, D, loss = ladder(3)
    law = al.laws.fit(
        {"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=0, delta=float("inf")
    )

    def residual(t):
        return np.log(t[0] + t[1] / N ** t[2] + t[3] / D ** t[4]) - np.log(loss)

    truth = least_squares(residual, [1.3, 12, 0.35, 30, 0.4], x_scale=[1, 10, 0.3, 30, 0.4])
    assert law.objective == pytest.approx(truth.cost, rel=1e-6)
    assert [e.value for e in law.params.values()] == pytest.approx(truth.x, rel=1e-3)


def test_intervals_of_small_ladders_cover_the_larger_runs():
    inside, wide = [], []
    for seed in range(12):
        N, D, loss = ladder(seed, ratios=(20.0,) if seed % 2 else (20.0, 80.0))
        small = N < 1.5e5
        runs = {"N": N[small], "D": D[small], "loss": loss[small]}
        law = al.laws.fit(runs, bootstrap=60)
        for e, y in zip(law.predict(N=N[~small], D=D[~small]), loss[~small], strict=True):
            inside.append(e.covers(float(y)))
            wide.append((e.hi - e.lo) / e.value)
    # 12 ladders of correlated predictions: five standard errors below 0.95 are far below this.
    assert np.mean(inside) >= 0.85
    assert np.median(wide) < 0.1


def test_plan_matches_the_closed_form():
    N, D, loss = ladder(1, noise=0.0)
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=100)
    plan = law.plan(compute=1e14)
    G = (0.35 * 12 / (0.4 * 30)) ** (1 / 0.75)
    assert plan.N.value == pytest.approx(G * (1e14 / 6) ** (0.4 / 0.75), rel=1e-3)
    assert plan.N.value * plan.D.value == pytest.approx(1e14 / 6, rel=1e-9)
    assert plan.loss.lo <= plan.loss.value <= plan.loss.hi


def test_plan_uses_the_counted_flops():
    N, D, loss = ladder(1, noise=0.0)
    law = al.laws.fit({"N": N, "D": D, "C": 9 * N * D, "loss": loss}, "chinchilla", bootstrap=0)
    plan = law.plan(compute=1e12)
    assert plan.N.value * plan.D.value == pytest.approx(1e12 / 9, rel=1e-6)


def test_plan_along_one_path_warns():
    N, D, loss = ladder(1, ratios=(20.0,))
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, bootstrap=100)
    plan = law.plan(compute=6 * 1e6 * 2e7)
    assert plan.N.value == pytest.approx(1e6, rel=1e-6)
    assert any("one path" in w for w in plan.warnings)


def test_solve_inverts_the_law():
    N, D, loss = ladder(2)
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=200)
    at = law.solve(1.6, "N", D=1e8)
    # The grid of solve is linear between points 0.04 e-folds apart.
    assert float(law(N=at.value, D=1e8)) == pytest.approx(1.6, rel=1e-4)
    assert at.lo < at.value < at.hi
    never = law.solve(0.5, "C")
    assert never.hi == np.inf
    assert "100.0% of the fits never reach" in never.method


def test_band_and_predict_agree():
    N, D, loss = ladder(2)
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, bootstrap=100)
    lo, mid, hi = law.band(N=[1e5, 1e6], D=[1e7, 1e8])
    for i, e in enumerate(law.predict(N=[1e5, 1e6], D=[1e7, 1e8])):
        assert (e.lo, e.value, e.hi) == (lo[i], mid[i], hi[i])


def test_extrapolate_a_curve():
    x = np.geomspace(1e3, 1e6, 12)
    (e,) = al.laws.extrapolate(x, 0.4 + 30 / x**0.6, [1e8])
    assert e.value == pytest.approx(0.4 + 30 / 1e8**0.6, rel=1e-2)


def test_same_seed_same_law():
    N, D, loss = ladder(2)
    runs = {"N": N, "D": D, "loss": loss}
    a, b = (al.laws.fit(runs, bootstrap=50, seed=3).to_dict() for _ in range(2))
    assert a == b


def test_data_frame_and_mapping_give_the_same_law():
    import pandas as pd

    N, D, loss = ladder(2)
    runs = {"N": N, "D": D, "loss": loss}
    a = al.laws.fit(runs, bootstrap=0).to_dict()
    assert al.laws.fit(pd.DataFrame(runs), bootstrap=0).to_dict() == a


WRONG = {
    "two points": ({"N": [1e3, 1e4], "loss": [2.0, 1.5]}, "at least 3 runs"),
    "one size": ({"N": [1e3] * 5, "loss": [2.0, 1.9, 2.1, 2.0, 2.0]}, "must differ in N, D or C"),
    "equal losses": ({"N": [1e3, 1e4, 1e5, 1e6], "loss": [2.0] * 4}, "loss must vary"),
    "no loss": ({"N": [1e3, 1e4]}, "have a column 'loss'"),
    "no size": ({"loss": [1.0, 2.0]}, "at least one of the columns N, D, C"),
    "words": ({"N": ["a", "b", "c"], "loss": [1, 2, 3]}, "must hold numbers only"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_raises(case):
    data, words = WRONG[case]
    with pytest.raises(al.InputError, match=words):
        al.laws.fit(data)


def test_rising_loss_warns():
    N = np.geomspace(1e3, 1e6, 8)
    law = al.laws.fit({"N": N, "loss": 1.0 * N**0.05}, "power", bootstrap=50)
    assert any("loss rises with N" in w for w in law.warnings)


def test_rising_loss_warns_whatever_form_fits_it():
    N = np.geomspace(1e5, 5e7, 10)
    law = al.laws.fit({"N": N, "D": 20 * N, "loss": 1.5 + 0.1 * np.arange(10)}, bootstrap=20)
    assert any("The loss rises with C (rank correlation 1.00)" in w for w in law.warnings)
    falling = al.laws.fit({"N": N, "D": 20 * N, "loss": 2.5 - 0.1 * np.arange(10)}, bootstrap=20)
    assert not any("rises" in w for w in falling.warnings)


def test_size_and_data_that_grow_together_are_not_identified():
    N, D, loss = ladder(0, ratios=(20.0,))
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=20)
    assert any("N and D grow together" in w for w in law.warnings)
    N, D, loss = ladder(0)
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, "chinchilla", bootstrap=20)
    assert not any("grow together" in w for w in law.warnings)


def test_unidentified_irreducible_loss_warns():
    rng = np.random.default_rng(0)
    N = np.geomspace(1e3, 1e5, 8)
    loss = (1.0 + 50 / N**0.2) * np.exp(0.01 * rng.standard_normal(8))
    law = al.laws.fit({"N": N, "loss": loss}, "floor", bootstrap=200)
    assert any("irreducible loss E is not identified" in w for w in law.warnings)


def test_a_law_without_an_irreducible_loss_warns():
    rng = np.random.default_rng(0)
    N = np.geomspace(1e6, 1e8, 10)
    loss = (1 + 30 / N**0.15) * np.exp(0.01 * rng.standard_normal(10))
    law = al.laws.fit({"N": N, "loss": loss}, bootstrap=50)
    assert any("irreducible loss" in w and "identif" in w for w in law.warnings)


def test_bad_rows_are_named():
    N, D, loss = ladder(2)
    loss = loss.copy()
    loss[[3, 7]] = np.nan, -1.0
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, bootstrap=0)
    assert law.n == len(N) - 2
    assert any("rows 3, 7" in w for w in law.warnings)


@pytest.mark.parametrize("name", ["power", "floor", "m3", "m4", "logistic", "broken"])
def test_subsets_in_one_search_are_fitted_as_each_alone(name):
    """Folds share one search; the fit of a fold equals the fit of a table without other runs."""
    rng = np.random.default_rng(3)
    D = np.geomspace(1e3, 1e6, 24)
    loss = (0.3 + 40 / D**0.5) / (1 + (D / 3e5) ** 0.2) * np.exp(0.004 * rng.standard_normal(24))
    table = read({"D": D, "loss": loss})
    form = named(name)("D")
    masks = [np.arange(24) < k for k in (10, 16, 24)]
    together = fit_subsets(
        form, table, masks, FORECAST, starts=24, rng=np.random.default_rng(0), tolerance=1e-9
    )
    at = {"D": np.log(np.array([1e5, 3e6]))}
    for mask, part in zip(masks, together, strict=True):
        alone = fit_component(
            form, table.take(mask), FORECAST, starts=24, rng=np.random.default_rng(1)
        )
        # The searches have different starts, and one has a third of the steps.
        assert part.objective == pytest.approx(alone.objective, rel=1e-3)
        value, expected = (form.value(m.theta[None], m.at(at)) for m in (part, alone))
        assert value == pytest.approx(expected, abs=2e-3)


def test_with_efficient_a_run_far_from_the_frontier_has_no_effect():
    N, D, loss = ladder(0)
    wasted = {"N": [*N, N.max()], "D": [*D, D.max()], "loss": [*loss, 3 * loss.max()]}
    plain = {"N": N, "D": D, "loss": loss}
    options = {"form": "chinchilla", "bootstrap": 0, "delta": np.inf}
    at = {"N": 3e6, "D": 1e8}
    effect = {}
    for efficient in (False, True):
        without, with_it = (
            float(al.laws.fit(runs, efficient=efficient, **options)(**at))
            for runs in (plain, wasted)
        )
        effect[efficient] = abs(with_it / without - 1)
    assert effect[True] < 1e-6
    assert effect[False] > 0.05
