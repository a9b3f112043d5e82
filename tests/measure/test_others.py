"""Retrieval, reconstruction, topology, low-level statistics, description length."""

import math

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import (
    contrast_difference,
    description_length,
    filter_response_difference,
    geometry_score,
    reconstruction_error,
    retrieval_distance,
    retrieval_p_value,
    retrieval_win_rate,
    spectrum_slope_difference,
)
from allometry.measure.image_statistics import contrasts, filter_responses, spectrum_slopes
from allometry.measure.topology import relative_living_times


def test_retrieval():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300, 3))
    far = y + 3
    gaps = np.sqrt(((x[:, None] - y) ** 2).sum(-1)).min(1)
    assert retrieval_distance(x, y).value == pytest.approx(gaps.mean())
    assert retrieval_win_rate(x, y, far).lo > 0.9
    assert retrieval_win_rate(x, y, y).value == 0.5
    assert retrieval_p_value(x, y, far).value == 0.001  # none of 999 permutations
    with pytest.raises(InputError, match="permutations must be at least 19"):
        retrieval_p_value(x, y, far, permutations=9)


def test_a_linear_generator_leaves_the_residual_of_the_projection():
    rng = torch.Generator().manual_seed(0)
    W, x = torch.randn(3, 8, generator=rng), torch.randn(40, 8, generator=rng)
    found = reconstruction_error(lambda z: z @ W, x, 3, restarts=2)
    fitted = x @ torch.linalg.pinv(W) @ W
    assert found.value == pytest.approx(float((x - fitted).pow(2).mean()), rel=1e-3)
    with pytest.raises(InputError, match="generate must give rows of 8 numbers"):
        reconstruction_error(lambda z: z, x, 3)


def circle(n, seed):
    angle = torch.rand(n, generator=torch.Generator().manual_seed(seed)) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_a_circle_has_one_loop_and_a_disc_none():
    loops = relative_living_times(circle(300, 0), repeats=10).mean(0)
    assert loops.argmax() == 1
    assert loops.sum() == pytest.approx(1)
    rng = torch.Generator().manual_seed(0)
    disc = circle(300, 1) * torch.rand(300, 1, generator=rng).sqrt()
    assert relative_living_times(disc, repeats=10).mean(0).argmax() == 0
    eight = torch.cat([circle(200, 2), circle(200, 3) + torch.tensor([2.5, 0.0])])
    assert relative_living_times(eight, repeats=10).mean(0).argmax() == 2
    found = geometry_score(circle(300, 0), disc, repeats=10)
    null = geometry_score(circle(300, 0), circle(300, 4), repeats=10)
    assert found.lo > max(0.2, null.hi)
    assert abs(null.value) < 5 * null.se


@pytest.mark.parametrize("slope", [0.0, -2.0, -3.0])
def test_slopes_of_made_spectra(slope):
    rng = np.random.default_rng(0)
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(64), np.fft.fftfreq(64), indexing="ij")) * 64
    f[0, 0] = 1
    noise = np.fft.fft2(rng.normal(size=(20, 64, 64)))
    x = np.fft.ifft2(noise * f ** (slope / 2)).real
    found = spectrum_slopes(x).numpy()
    assert abs(found.mean() - slope) < 5 * found.std() / math.sqrt(20) + 0.02


def test_low_level_statistics_see_noise_and_contrast():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 16, 16)).cumsum(1).cumsum(2)
    noisy = x + x.std() * rng.normal(size=x.shape)
    assert spectrum_slope_difference(x, noisy).lo > 0.5
    assert contrast_difference(x, 2 * x).value == pytest.approx(float(contrasts(x).mean()))
    # Energies of a doubled image are fourfold.
    assert filter_response_difference(x, 2 * x).value == pytest.approx(math.log(4))
    # A constant added to an image is not seen by any filter.
    torch.testing.assert_close(filter_responses(x), filter_responses(x + 5))
    with pytest.raises(InputError, match="no constant image"):
        spectrum_slopes(np.ones((2, 8, 8)))


def test_description_of_a_gaussian_is_its_entropy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 3)), rng.normal(size=(5000, 3))
    found = description_length(x, y, bin_width=0.25)
    truth = 0.5 * math.log2(2 * math.pi * math.e) + 2
    # Fitting 9 parameters to 5,000 rows costs 9/(2*5000*3) nats a number.
    assert abs(found.value - truth) < 5 * found.se + 0.001
    assert "mixture of 1" in found.method
    # Another law costs its divergence: KL of N(0,1) from N(1,1) is half a nat.
    shifted = description_length(x, y + 1, bin_width=0.25)
    assert abs(shifted.value - truth - 0.5 / math.log(2)) < 5 * shifted.se + 0.01


def test_description_chooses_the_number_of_modes():
    rng = np.random.default_rng(0)
    modes = 20 * rng.normal(size=(4, 2))
    x, y = (modes[rng.integers(4, size=n)] + rng.normal(size=(n, 2)) for n in (500, 1000))
    assert "mixture of 4" in description_length(x, y).method
