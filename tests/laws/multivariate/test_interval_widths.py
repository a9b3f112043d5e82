"""Widths of intervals judged by the errors of backtests."""

from dataclasses import replace

import numpy as np
import pytest

from allometry import laws
from allometry.laws.multivariate.backtests import Errors, error_ratios, narrowing


def folds(size: float, count: int = 4) -> list[Errors]:
    """Folds whose errors are some share of the standard deviation that the law gives them."""
    rng = np.random.default_rng(0)
    one = np.ones(200)
    return [
        Errors(size * 0.05 * rng.standard_normal(200), 0.05**2 * one, 0.1 * one, "cost")
        for _ in range(count)
    ]


def test_intervals_as_wide_as_the_errors_stay():
    assert narrowing(error_ratios(folds(1.1))) == 1.0
    assert narrowing(error_ratios(folds(0.5, count=2))) == 1.0


def test_intervals_twice_as_wide_as_the_errors_shrink_by_half():
    assert narrowing(error_ratios(folds(0.5))) == pytest.approx(0.5, abs=0.1)


def test_one_fold_with_large_errors_keeps_the_width():
    assert narrowing(error_ratios([*folds(0.5), *folds(1.5, count=1)])) == 1.0


def test_the_band_has_the_factor():
    N = np.repeat(np.logspace(6, 9, 6), 3)
    X = np.tile([1.0, 4.0, 16.0], 6)
    noise = 1 + 0.002 * np.random.default_rng(0).standard_normal(18)
    runs = {"N": N, "X": X, "loss": (1.5 + 30 / N**0.2 * X**-0.1) * noise}
    law = laws.fit(runs, variables=["N", "X"], cost="N*X")
    assert 0 < law.narrowing <= 1
    low, value, high = law.band(N=1e10, X=8.0)
    whole = replace(law, narrowing=1.0).band(N=1e10, X=8.0)
    share = np.log(high / low) / np.log(whole[2] / whole[0])
    assert float(share) == pytest.approx(law.narrowing, rel=1e-6)
    assert low < value < high
