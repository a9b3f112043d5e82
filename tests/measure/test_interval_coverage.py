"""Intervals and levels of every metric by simulation, from bench/measure_coverage.py."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import measure_coverage
import measure_given


def error(draws):
    return math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(measure_coverage.CASES))
def test_intervals_cover(name):
    share = measure_coverage.coverage(name, 500)
    # Coverage must be 92 to 98 %; 500 draws estimate it within two standard errors.
    assert 0.92 - 2 * error(500) <= share <= min(1.0, 0.98 + 2 * error(500))


@pytest.mark.slow
@pytest.mark.parametrize("simulate", measure_given.SIMULATIONS)
def test_intervals_given_the_trained_networks_cover(simulate):
    for name, share in measure_coverage.shares(simulate, 300).items():
        assert 0.92 - 2 * error(300) <= share <= min(1.0, 0.98 + 2 * error(300)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", list(measure_coverage.TESTS))
def test_levels_are_kept(name):
    draws = 1000
    level = measure_coverage.rejections(name, draws)
    assert abs(level - 0.05) < 0.015 + 2 * math.sqrt(0.05 * 0.95 / draws)
    assert measure_coverage.rejections(name, 40, 1.0) > 0.9


@pytest.mark.parametrize("name", ["frechet_distance_infinity", "birthday_support", "precision"])
def test_a_few_intervals_cover_in_every_run(name):
    share = measure_coverage.coverage(name, 150)
    assert abs(share - 0.95) < 0.03 + 5 * error(150)


@pytest.mark.parametrize("simulate", measure_given.SIMULATIONS)
def test_each_simulation_calls_its_metrics(simulate):
    for name, share in measure_coverage.shares(simulate, 8).items():
        assert share >= 0.5, name  # of 8 at 92 %, fewer than 4 is a chance of 1e-4
