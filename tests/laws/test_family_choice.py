"""The choice between families by their laws in compute."""

import numpy as np
import pytest

import allometry as al
from allometry.laws import choose_family

C = np.repeat(np.geomspace(1e9, 1e12, 5), 2)


def runs(E: float, A: float, alpha: float, seed: int, noise: float = 0.01):
    rng = np.random.default_rng(seed)
    return C, (E + A * C**-alpha) * (1 + noise * rng.standard_normal(len(C)))


def test_the_better_family_is_chosen_at_every_budget():
    found = choose_family({"a": runs(1, 50, 0.25, 1), "b": runs(2, 50, 0.25, 2)})
    assert [r.contenders for r in found.rankings] == [["a"]] * 3
    assert [r.C for r in found.rankings] == pytest.approx([1e12, 1e13, 1e14])
    assert found.crossovers == {}
    assert found.words()[0] == "At 1e12 FLOP, a has the lowest loss (probability 1.00)."


def test_a_family_that_falls_faster_overtakes_where_the_laws_cross():
    # 10 C^-0.1 and 1000 C^-0.25 are equal at C = 100^(1/0.15) = 2.15e13.
    first, second = runs(0, 10, 0.1, 1, 0.002), runs(0, 1000, 0.25, 2, 0.002)
    found = choose_family({"slow": first, "fast": second})
    at = found.crossovers["slow", "fast"]
    assert at.covers(100 ** (1 / 0.15))
    assert at.value == pytest.approx(100 ** (1 / 0.15), rel=0.5)
    assert next(iter(found.rankings[0].probabilities)) == "slow"
    assert next(iter(found.rankings[-1].probabilities)) == "fast"


def test_families_at_the_entropy_share_the_first_place():
    found = choose_family(
        {"a": runs(0, 200, 0.3, 1, 0.001), "b": runs(0, 250, 0.31, 2, 0.001)},
        multiples=(1, 1e3),
        least=0.02,
    )
    assert found.rankings[1].probabilities == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.02)
    assert all(f.predictions[1].value == 0.02 for f in found.forecasts)


def test_a_family_without_a_law_is_named_with_the_reason():
    few = (C[:2], np.array([2.0, 1.9]))
    found = choose_family({"a": runs(1, 50, 0.25, 1), "b": runs(2, 50, 0.25, 2), "few": few})
    without = found.forecasts[2]
    assert without.law is None
    assert without.why
    assert "few" not in found.rankings[0].probabilities


def test_wrong_input_is_refused():
    with pytest.raises(al.InputError, match="have at least 2"):
        choose_family({"a": runs(1, 50, 0.25, 1)})
    with pytest.raises(al.InputError, match="as many measures as runs"):
        choose_family({"a": runs(1, 50, 0.25, 1), "b": ([1e9], [1.0, 2.0])})
