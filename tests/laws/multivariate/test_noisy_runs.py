"""Noise between runs: in the choice of forms and of the next runs."""

import numpy as np
import pytest

from allometry.laws.multivariate import pool
from allometry.laws.multivariate.backtests import Errors
from allometry.laws.multivariate.pool_problem import assemble
from allometry.laws.multivariate.selection import _score


def runs(noise: float, repeats: int = 3) -> dict[str, np.ndarray]:
    N, X = (
        np.repeat(a.reshape(-1), repeats)
        for a in np.meshgrid(np.logspace(7, 8.5, 4), [1.0, 4, 16])
    )
    away = np.random.default_rng(0).standard_normal(len(N))
    return {"N": N, "X": X, "loss": 30 / (N**0.2 * X**0.08) * np.exp(noise * away)}


def design(noise: float) -> pool.PoolDesign:
    table = runs(noise)
    new = {"N": np.array([1e7, 3e8, 1e9]), "X": np.array([1.0, 16.0, 16.0])}
    goal = {"N": np.array([4e9, 4e9]), "X": np.array([4.0, 64.0])}
    return pool.design(
        new, table, variables=["N", "X"], response="loss", cost="N*X", target=goal,
        budget=1e12, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_a_pool_finds_the_noise_of_the_runs(noise):
    table = runs(noise)
    every = np.ones(len(table["N"]), bool)
    problem = assemble((table, every), (table, every), (table, every), ["N", "X"], "loss", None)
    found = pool._posterior_draws(problem, np.random.default_rng(0))[1]
    assert found == pytest.approx(noise, rel=0.35)


def test_noise_is_at_least_what_forms_miss():
    table = runs(0.0)
    every = np.ones(len(table["N"]), bool)
    problem = assemble((table, every), (table, every), (table, every), ["N", "X"], "loss", None)
    assert pool._posterior_draws(problem, np.random.default_rng(0))[1] == pool.NOISE


def test_a_noisy_run_removes_a_smaller_share_of_the_variance():
    quiet, noisy = (design(noise) for noise in (0.0, 0.08))
    first = [(d.widths[0] / d.now) ** 2 for d in (quiet, noisy)]
    assert noisy.now > quiet.now
    assert first[0] < first[1] < 1


def test_scores_of_forms_differ_more_without_the_noise():
    rng = np.random.default_rng(0)
    away, one = 0.02 * rng.standard_normal(400), np.ones(400)
    right, biased = ([Errors(away + bias, 4e-4 * one, 0.1 * one, "cost")] for bias in (0.0, 0.015))
    plain = _score(biased) / _score(right)
    without = _score(biased, 0.02) / _score(right, 0.02)
    assert plain < 1.8
    assert without > 1.5 * plain  # 0.28 of the variance of the noise is left: 2.8 against 1.55


def test_a_fold_of_four_runs_keeps_its_noise():
    few = [Errors(np.full(4, 0.02), np.full(4, 4e-4), np.full(4, 0.1), "cost")]
    assert _score(few, 0.02) == _score(few)
