import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.measure import audit
from allometry.measure.corruptions import collapsed, drop_modes, found_modes, frozen, noisy, turned
from allometry.measure.desiderata import EXPERIMENTS, badness

ONLY = [
    "precision",
    "birthday",
    "nearest_neighbour",
    "copying",
    "authenticity",
    "vendi",
    "frechet_distance",
    "ms_ssim",
]


@pytest.fixture(scope="module")
def audited():
    found = audit(rows=300, repeats=3, only=ONLY)
    return {v.name: v for v in found.verdicts}


def test_each_metric_detects_its_corruptions(audited):
    assert audited["precision"].sees("noise")
    assert not audited["precision"].sees("drop")
    assert audited["recall"].sees("drop")
    assert audited["recall"].sees("collapse")
    assert audited["birthday_support"].sees("collapse")
    assert audited["copying"].sees("memorise")
    assert audited["authenticity"].sees("memorise")
    assert not audited["frechet_distance"].sees("memorise")
    assert audited["frechet_distance"].sees("drop")
    assert audited["nearest_neighbour_accuracy_samples"].sees("collapse")
    assert audited["vendi_score"].sees("collapse")


def test_the_bias_of_frechets_distance_shows_in_a_quarter_of_the_samples(audited):
    assert audited["frechet_distance"].effects["size"] > 3


def test_noise_is_ranked(audited):
    assert audited["precision"].ranking > 0.89
    assert audited["vendi_score"].ranking < 0


def test_verdicts_are_serialised(audited):
    for v in audited.values():
        assert set(v.effects) <= set(EXPERIMENTS)
        assert len(v.meets) == 7
        assert all(0 <= m <= 1 for m in v.meets)
        json.dumps(v.to_dict(), allow_nan=False)


def test_user_data_without_labels():
    x = np.random.default_rng(0).normal(size=(240, 3))
    found = audit(x, rows=80, repeats=2, only=["precision", "inception"])
    assert "inception_score" in found.skipped
    assert {v.name for v in found.verdicts} == {"precision", "recall", "density", "coverage"}


def test_invalid_input_raises():
    with pytest.raises(InputError, match="at least 150 rows"):
        audit(np.zeros((20, 2)))
    with pytest.raises(InputError, match="repeats must be at least 2"):
        audit(repeats=1)


@given(st.floats(-5, 5))
def test_badness_orients_every_metric(value):
    assert badness(value, "higher", "x") == -badness(value, "lower", "x")
    assert badness(0.5 + value, "near 0.5", "x") == pytest.approx(abs(value))


def test_corruptions():
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(100, 8, 8, generator=rng)
    modes = torch.arange(100) % 10
    assert float((noisy(x, 0.5, rng) - x).std()) == pytest.approx(0.5, rel=0.05)
    kept = drop_modes(x, modes, 60, 0.3, rng)
    assert len(kept) == 60
    index = [int((x == row).flatten(1).all(1).nonzero()[0]) for row in kept]
    assert {i % 10 for i in index} <= set(range(7))
    assert len(torch.unique(collapsed(x, 5, 0.0, rng), dim=0)) <= 5
    still = frozen(x, x).flatten(1)
    assert torch.linalg.matrix_rank(still - still.mean(0)) == 32
    torch.testing.assert_close(turned(x, degrees=0.0, pixels=0), x)
    moved = turned(x, degrees=0.0, pixels=1)
    torch.testing.assert_close(moved[:, :, 1:], x[:, :, :-1])
    rows = torch.randn(50, 3, generator=rng)
    torch.testing.assert_close(turned(rows, degrees=0.0, pixels=0), rows)
    assert len(found_modes(rows).unique()) > 2
