"""Widths of intervals judged by the errors of backtests."""

from dataclasses import replace

import numpy as np
import pytest

from allometry import laws
from allometry.laws.multivariate.backtests import WIDENED, Errors, error_ratios, narrowing


def folds(size: float, count: int = 4) -> list[Errors]:
    """Folds whose errors are some share of the standard deviation that the law gives them."""
    rng = np.random.default_rng(0)
    one = np.ones(200)
    return [
        Errors(size * 0.05 * rng.standard_normal(200), 0.05**2 * one, 0.1 * one, "cost")
        for _ in range(count)
    ]


MANY = 10**6


def test_intervals_that_two_backtests_judge_stay():
    assert narrowing(error_ratios(folds(0.5, count=2)), MANY) == 1.0


def test_intervals_twice_as_wide_as_the_errors_shrink_by_half():
    assert narrowing(error_ratios(folds(0.5)), MANY) == pytest.approx(0.5, abs=0.1)


def test_few_runs_shrink_intervals_less():
    many, few = (narrowing(error_ratios(folds(0.5)), n) for n in (MANY, 40))
    assert few == pytest.approx(np.sqrt(many), abs=1e-3)


def test_one_fold_with_large_errors_widens_intervals_up_to_a_bound():
    ratios = error_ratios([*folds(0.5), *folds(1.5, count=1)])
    worst = max(np.quantile(each, 0.95) for each in ratios)
    assert narrowing(ratios, MANY) == pytest.approx(min(worst, WIDENED), abs=1e-3)
    assert narrowing(error_ratios([*folds(0.5), *folds(20.0, count=1)]), MANY) == WIDENED


def test_the_band_has_the_factor():
    N = np.repeat(np.logspace(6, 9, 6), 3)
    X = np.tile([1.0, 4.0, 16.0], 6)
    noise = 1 + 0.002 * np.random.default_rng(0).standard_normal(18)
    runs = {"N": N, "X": X, "loss": (1.5 + 30 / N**0.2 * X**-0.1) * noise}
    law = laws.fit(runs, variables=["N", "X"], cost="N*X")
    assert 0 < law.narrowing <= WIDENED
    low, value, high = law.band(N=1e10, X=8.0)
    whole = replace(law, narrowing=1.0).band(N=1e10, X=8.0)
    share = np.log(high / low) / np.log(whole[2] / whole[0])
    assert float(share) == pytest.approx(law.narrowing, rel=1e-6)
    assert low < value < high
