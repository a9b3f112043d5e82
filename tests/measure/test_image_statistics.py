"""Low-level statistics of images."""

import math

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import (
    contrast_difference,
    filter_response_difference,
    spectrum_slope_difference,
)
from allometry.measure.image_statistics import contrasts, filter_responses, spectrum_slopes


@pytest.mark.parametrize("slope", [0.0, -2.0, -3.0])
def test_slopes_of_synthetic_spectra(slope):
    rng = np.random.default_rng(0)
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(64), np.fft.fftfreq(64), indexing="ij")) * 64
    f[0, 0] = 1
    noise = np.fft.fft2(rng.normal(size=(20, 64, 64)))
    x = np.fft.ifft2(noise * f ** (slope / 2)).real
    found = spectrum_slopes(x).numpy()
    assert abs(found.mean() - slope) < 5 * found.std() / math.sqrt(20) + 0.02


def test_low_level_statistics_detect_noise_and_contrast():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 16, 16)).cumsum(1).cumsum(2)
    noisy = x + x.std() * rng.normal(size=x.shape)
    assert spectrum_slope_difference(x, noisy).lo > 0.5
    assert contrast_difference(x, 2 * x).value == pytest.approx(float(contrasts(x).mean()))
    # Energies of a doubled image are fourfold.
    assert filter_response_difference(x, 2 * x).value == pytest.approx(math.log(4))
    # A constant added to an image changes no filter response.
    torch.testing.assert_close(filter_responses(x), filter_responses(x + 5))
    with pytest.raises(InputError, match="no constant image"):
        spectrum_slopes(np.ones((2, 8, 8)))
