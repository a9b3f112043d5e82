"""Quantisers against the tables of their papers and the bounds of theory."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from allometry import InputError
from allometry.models import quantisation

GAUSSIAN = {2: 0.36338, 3: 0.190174, 4: 0.117482, 8: 0.034548, 16: 0.009501, 32: 0.002505}


@pytest.mark.parametrize(("K", "published"), GAUSSIAN.items())
def test_the_gaussians_distortions_are_the_published_ones(K, published):
    made = quantisation.lloyd_max(stats.norm.pdf, K, -9, 9)
    digits = len(str(published).split(".")[1])
    # A unit of the last printed digit: some tables cut where others round.
    assert made.distortion == pytest.approx(published, abs=1.05 * 10.0**-digits)
    np.testing.assert_allclose(made.levels, -made.levels[::-1], atol=1e-6)


def test_two_levels_have_a_closed_form():
    made = quantisation.lloyd_max(stats.norm.pdf, 2, -9, 9)
    np.testing.assert_allclose(made.levels, [-math.sqrt(2 / math.pi), math.sqrt(2 / math.pi)])
    assert made.distortion == pytest.approx(1 - 2 / math.pi, abs=1e-9)


def test_the_uniform_law_is_cut_evenly():
    made = quantisation.lloyd_max(lambda x: np.ones_like(x), 8, 0, 1)
    np.testing.assert_allclose(made.levels, (np.arange(8) + 0.5) / 8, atol=1e-6)
    assert made.distortion == pytest.approx(1 / (12 * 64), rel=1e-6)


def test_both_conditions_hold_on_a_sample():
    x = np.random.default_rng(0).gamma(2.0, size=3000)
    made = quantisation.lloyd_max_sample(x, 6)
    code = made.encode(x)
    nearest = np.abs(x[:, None] - made.levels).argmin(1)
    assert (code == nearest).all()
    for k in range(6):
        assert made.levels[k] == pytest.approx(x[code == k].mean(), abs=1e-8)
    assert made.distortion == pytest.approx(((made.decode(code) - x) ** 2).mean(), rel=1e-9)


def test_lbg_in_one_dimension_is_near_lloyd_max():
    x = np.random.default_rng(0).normal(size=20_000)
    best = quantisation.lloyd_max_sample(x, 8).distortion
    made = quantisation.lbg(torch.from_numpy(x)[:, None], 8)
    # LBG stops early and may find a neighbouring optimum.
    assert best <= made.distortion * (1 + 1e-9)
    assert made.distortion < 1.03 * best
    torch.testing.assert_close(made.distortion_on(torch.from_numpy(x)[:, None]), made.distortion)


def test_vectors_fill_space_better_than_numbers():
    """Two dimensions: cells tend to hexagons, whose gain over squares is 1.0392."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(12_000, 2, generator=rng)
    made = quantisation.lbg(x, 64, tolerance=1e-4)
    gain = quantisation.space_filling_gain(made.distortion, 64, 1.0, 2)
    assert 1.0 < gain < 1.0392 * 1.01


def test_no_quantiser_beats_shannon():
    entropy = stats.norm.entropy()
    for K, distortion in GAUSSIAN.items():
        bound = quantisation.shannon_bound(entropy, math.log2(K))
        assert bound == pytest.approx(1 / K**2)
        assert distortion > bound
    # Towards high rate the gap is that of Panter and Dite, sqrt(3) pi / 2.
    assert GAUSSIAN[32] * 32**2 == pytest.approx(math.sqrt(3) * math.pi / 2, rel=0.07)


def test_every_code_of_lbg_is_in_use():
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
    made = quantisation.lbg(x, 50)
    assert len(made.encode(x).unique()) == 50


def test_mistakes_are_reported():
    with pytest.raises(InputError, match="K must be 1 to"):
        quantisation.lbg(torch.zeros(3, 2), 4)
    with pytest.raises(InputError, match="high must be above low"):
        quantisation.lloyd_max(stats.norm.pdf, 2, 1, 0)


def test_the_sample_quantiser_is_the_best_of_all_divisions():
    """Against every division into cells; Lloyd's iteration from quantiles was up to 1.3 times."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        x = np.sort(np.round(rng.normal(size=rng.integers(3, 12)) ** 3, 1))
        K = int(rng.integers(1, min(5, len(np.unique(x))) + 1))
        cells = itertools.combinations(range(1, len(x)), K - 1)
        least = min(sum(((c - c.mean()) ** 2).sum() for c in np.split(x, cut)) for cut in cells)
        made = quantisation.lloyd_max_sample(x, K)
        assert made.best
        assert made.distortion == pytest.approx(least / len(x), abs=1e-12)


def test_a_large_sample_is_begun_at_a_coarser_ones_best():
    x = np.random.default_rng(1).gamma(2.0, size=60_000)
    made = quantisation.lloyd_max_sample(x, 24)
    assert not made.best
    # Panter and Dite's law for many levels, of this density: near it, from below or above.
    root = special.gamma(4 / 3) * 3 ** (4 / 3)  # the integral of (x e^-x)^(1/3)
    assert made.distortion == pytest.approx(root**3 / (12 * 24**2), rel=0.1)


def test_a_density_with_three_bumps_is_not_left_in_a_poor_optimum():
    """Begun at quantiles, all levels but one stayed in the heavy bump: 12 times the distortion."""

    def pdf(x):
        bumps = [(0.66, 0.0), (0.18, 24.5), (0.16, 28.0)]
        return sum(w * stats.norm.pdf(x, at, 0.3) for w, at in bumps)

    made = quantisation.lloyd_max(pdf, 3, -5, 35)
    assert made.distortion == pytest.approx(0.09, rel=1e-3)  # a level for each bump
    np.testing.assert_allclose(made.levels, [0.0, 24.5, 28.0], atol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e6, 1e8])
def test_distortion_far_from_the_origin(offset):
    """It was negative: a difference of two second moments about 0."""
    x = np.random.default_rng(2).integers(-1000, 1000, 500) / 256  # exact at every offset
    here, there = (
        quantisation.lloyd_max_sample(x, 12),
        quantisation.lloyd_max_sample(x + offset, 12),
    )
    assert there.distortion == pytest.approx(here.distortion, rel=1e-9)
    np.testing.assert_allclose(there.levels - offset, here.levels, atol=4e-8)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_nearest_code_far_from_the_origin(offset, dtype):
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(3000, 2, generator=rng, dtype=torch.float64).add(offset).to(dtype)
    # Two far groups of codes that are near to one another within.
    codes = torch.cat([x[:40], x[:1] + 0.01 * torch.randn(20, 2, generator=rng) + 300]).to(dtype)
    index, squares = quantisation.nearest(x, codes)
    exact = (x.double()[:, None] - codes.double()).square().sum(2)
    torch.testing.assert_close(exact.gather(1, index[:, None])[:, 0], exact.min(1).values)
    torch.testing.assert_close(squares.double(), exact.min(1).values, rtol=1e-4, atol=1e-12)


def test_lbg_far_from_the_origin_in_float32():
    x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(4))
    x = (x * 64).round() / 64  # exact at the offset
    here, there = quantisation.lbg(x.float(), 16), quantisation.lbg(x.float() + 1e3, 16)
    assert there.distortion == pytest.approx(here.distortion, rel=0.02)


def test_restarts_never_make_a_codebook_worse():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(5)) ** 3
    errors = [quantisation.lbg(x, 12, restarts=r).distortion for r in (0, 2, 6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]
    assert len(quantisation.lbg(torch.zeros(5, 2), 3, restarts=1).codes) == 3
