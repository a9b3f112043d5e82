"""Intervals and levels of every measure by simulation, from bench/measure_coverage.py."""

import math
import runpy
from pathlib import Path

import pytest

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "measure_coverage.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BENCH["CASES"]))
def test_intervals_cover(name):
    share, se = BENCH["coverage"](name, 500)
    # 92 to 98 % is asked for; 500 draws tell it within two standard errors.
    assert 0.92 - 2 * se <= share <= min(1.0, 0.98 + 2 * se)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BENCH["TESTS"]))
def test_levels_are_kept(name):
    draws = 1000
    level = BENCH["rejections"](name, draws)
    assert abs(level - 0.05) < 0.015 + 2 * math.sqrt(0.05 * 0.95 / draws)
    assert BENCH["rejections"](name, 40, 1.0) > 0.9


@pytest.mark.parametrize("name", ["frechet_distance_infinity", "birthday_support", "precision"])
def test_a_few_intervals_cover_in_every_run(name):
    share, se = BENCH["coverage"](name, 150)
    assert abs(share - 0.95) < 0.03 + 5 * se
