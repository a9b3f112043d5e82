"""Convergence checks and model selection from small runs, against statsmodels."""

import numpy as np
import pytest

import allometry as al
from allometry.laws.small_scale import check_convergence, select_model


def runs(alpha, k=10.0, n=7, noise=0.01, seed=0):
    x = np.geomspace(1e5, 1e8, n)
    rng = np.random.default_rng(seed)
    return x, k * x**-alpha * np.exp(noise * rng.standard_normal(n))


def test_residuals_are_those_of_statsmodels():
    import statsmodels.api as sm

    x, y = runs(0.1)
    y[3] *= 1.06
    ref = sm.OLS(np.log(y), sm.add_constant(np.log(x))).fit()
    outliers = np.asarray(ref.outlier_test())  # studentised residual, p, Bonferroni's p
    found = check_convergence(x, y)
    for run, (t, p, _) in zip(found, outliers, strict=True):
        one_sided = p / 2 if t > 0 else 1 - p / 2
        assert run.p == pytest.approx(min(1, 7 * one_sided), rel=1e-6)
    assert [i for i, run in enumerate(found) if not run.converged] == [3]
    rest = np.arange(7) != 3
    line = sm.OLS(np.log(y[rest]), sm.add_constant(np.log(x[rest]))).fit()
    new = line.get_prediction([[1.0, np.log(x[3])]]).conf_int(obs=True)[0]
    assert found[3].expected.interval == pytest.approx(tuple(np.exp(new)), rel=1e-6)


def test_false_alarms_are_as_rare_as_the_level_says():
    alarms = sum(
        any(not run.converged for run in check_convergence(*runs(0.1, seed=seed)))
        for seed in range(400)
    )
    # Bonferroni: at most 5 %, within 5 standard errors of 400 tries.
    assert alarms / 400 < 0.05 + 5 * (0.05 * 0.95 / 400) ** 0.5


def test_a_run_below_the_law_is_no_alarm():
    x, y = runs(0.1)
    y[3] *= 0.9
    assert check_convergence(x, y)[3].converged


def test_the_steeper_model_is_chosen_though_it_is_worse_so_far():
    slow, fast = runs(0.05, k=4.0), runs(0.09, k=8.8, seed=1)
    assert slow[1][-1] < fast[1][-1]
    chosen = select_model({"slow": slow, "fast": fast}, 1e11)
    assert (chosen.winner, chosen.largest_run) == ("fast", "slow")
    assert chosen.probability > 0.95
    assert chosen.backtest is True
    assert chosen.predictions["fast"].covers(8.8 * 1e11**-0.09)


def test_the_probability_is_calibrated():
    right, stated = 0, 0.0
    rng = np.random.default_rng(0)
    tries = 300
    for seed in range(tries):
        a, b = runs(0.10, noise=0.03, seed=2 * seed), runs(0.104, noise=0.03, seed=2 * seed + 1)
        chosen = select_model({"a": a, "b": b}, 1e9, draws=2000)
        new = {"a": 10 * 1e9**-0.10, "b": 10 * 1e9**-0.104}
        new = {k: v * np.exp(0.03 * rng.standard_normal()) for k, v in new.items()}
        right += chosen.winner == min(new, key=new.__getitem__)
        stated += chosen.probability
    # The winner is chosen by the same data as its probability, so it is a little too confident.
    assert right / tries > stated / tries - 0.1


def test_too_few_runs_are_refused():
    with pytest.raises(al.InputError, match="at least 4 runs"):
        check_convergence([1, 2, 3], [3, 2, 1])
    with pytest.raises(al.InputError, match="at least 2 models"):
        select_model({"a": runs(0.1)}, 1e9)
    three = {"a": ([1, 2, 3], [3, 2, 1.9]), "b": ([1, 2, 3], [3, 2.5, 2.1])}
    assert select_model(three, 9.0).backtest is None
