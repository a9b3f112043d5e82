"""Quantisers against the tables of their papers and the bounds of theory."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from allometry import InputError
from allometry.models import quantise

GAUSSIAN = {2: 0.36338, 3: 0.190174, 4: 0.117482, 8: 0.034548, 16: 0.009501, 32: 0.002505}


@pytest.mark.parametrize(("K", "published"), GAUSSIAN.items())
def test_the_gaussians_distortions_are_the_published_ones(K, published):
    made = quantise.lloyd_max(stats.norm.pdf, K, -9, 9)
    digits = len(str(published).split(".")[1])
    # A unit of the last printed digit: some tables cut where others round.
    assert made.distortion == pytest.approx(published, abs=1.05 * 10.0**-digits)
    np.testing.assert_allclose(made.levels, -made.levels[::-1], atol=1e-6)


def test_two_levels_have_a_closed_form():
    made = quantise.lloyd_max(stats.norm.pdf, 2, -9, 9)
    np.testing.assert_allclose(made.levels, [-math.sqrt(2 / math.pi), math.sqrt(2 / math.pi)])
    assert made.distortion == pytest.approx(1 - 2 / math.pi, abs=1e-9)


def test_the_uniform_law_is_cut_evenly():
    made = quantise.lloyd_max(lambda x: np.ones_like(x), 8, 0, 1)
    np.testing.assert_allclose(made.levels, (np.arange(8) + 0.5) / 8, atol=1e-6)
    assert made.distortion == pytest.approx(1 / (12 * 64), rel=1e-6)


def test_both_conditions_hold_on_a_sample():
    x = np.random.default_rng(0).gamma(2.0, size=3000)
    made = quantise.lloyd_max_sample(x, 6)
    code = made.encode(x)
    nearest = np.abs(x[:, None] - made.levels).argmin(1)
    assert (code == nearest).all()
    for k in range(6):
        assert made.levels[k] == pytest.approx(x[code == k].mean(), abs=1e-8)
    assert made.distortion == pytest.approx(((made.decode(code) - x) ** 2).mean(), rel=1e-9)


def test_lbg_in_one_dimension_is_near_lloyd_max():
    x = np.random.default_rng(0).normal(size=20_000)
    best = quantise.lloyd_max_sample(x, 8).distortion
    made = quantise.lbg(torch.from_numpy(x)[:, None], 8)
    # LBG stops early and may find a neighbouring optimum.
    assert best <= made.distortion * (1 + 1e-9)
    assert made.distortion < 1.03 * best
    torch.testing.assert_close(made.distortion_on(torch.from_numpy(x)[:, None]), made.distortion)


def test_vectors_fill_space_better_than_numbers():
    """Two dimensions: cells tend to hexagons, whose gain over squares is 1.0392."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(12_000, 2, generator=rng)
    made = quantise.lbg(x, 64, tolerance=1e-4)
    gain = quantise.space_filling_gain(made.distortion, 64, 1.0, 2)
    assert 1.0 < gain < 1.0392 * 1.01


def test_no_quantiser_beats_shannon():
    entropy = stats.norm.entropy()
    for K, distortion in GAUSSIAN.items():
        bound = quantise.shannon_bound(entropy, math.log2(K))
        assert bound == pytest.approx(1 / K**2)
        assert distortion > bound
    # Towards high rate the gap is that of Panter and Dite, sqrt(3) pi / 2.
    assert GAUSSIAN[32] * 32**2 == pytest.approx(math.sqrt(3) * math.pi / 2, rel=0.07)


def test_every_code_of_lbg_is_in_use():
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
    made = quantise.lbg(x, 50)
    assert len(made.encode(x).unique()) == 50


def test_mistakes_are_told():
    with pytest.raises(InputError, match="K must be 1 to"):
        quantise.lbg(torch.zeros(3, 2), 4)
    with pytest.raises(InputError, match="high must be above low"):
        quantise.lloyd_max(stats.norm.pdf, 2, 1, 0)
