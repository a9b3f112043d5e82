"""Plans from logs of a known law, by the functions of `bench/known_law.py`."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "bench" / "known_law.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("known_law", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_optimum_is_a_minimum(bench):
    for law in bench.LAWS.values():
        n, d = bench.optimum(law, 1e21)
        assert 6 * n * d == pytest.approx(1e21)
        best = bench.loss_of(law, n, d)
        for factor in (0.9, 1.1):
            assert bench.loss_of(law, n * factor, d / factor) > best


def test_plans_by_the_true_form_are_near_the_optimum(bench):
    law = bench.LAWS["Hoffmann et al."]
    found = [row for seed in range(3) for row in bench.judge(law, seed, "chinchilla", 50)]
    near = bench.summary(found, 1.0)
    # The bound for unbiased estimates is a standard deviation of 0.12 of log N: 97 % within 1.3.
    assert near["within_1.3"] >= 0.66
    assert near["loss_covered"] >= 0.66
