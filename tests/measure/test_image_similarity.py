import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from allometry import InputError
from allometry.measure import ms_ssim, psnr, sharpness_difference, ssim
from allometry.measure.image_similarity import data_range, nearest_pairs, random_pairs


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    x = rng.random((4, 40, 33))
    x = (x + np.roll(x, 1, 1) + np.roll(x, 1, 2)) / 3
    return x, np.clip(x + 0.05 * rng.normal(size=x.shape), 0, 1)


def test_ssim_is_scikit_images(batch):
    x, y = batch
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    theirs = [
        structural_similarity(a, b, data_range=1, **options) for a, b in zip(x, y, strict=True)
    ]
    assert ssim(x, y, span=1).value == pytest.approx(np.mean(theirs), abs=1e-12)


def test_ssim_of_colour_is_scikit_images(batch):
    x, y = (np.stack([b, b**2, 1 - b], 1) for b in batch)
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    theirs = [
        structural_similarity(a, b, data_range=1, channel_axis=0, **options)
        for a, b in zip(x, y, strict=True)
    ]
    assert ssim(x, y, span=1).value == pytest.approx(np.mean(theirs), abs=1e-12)


def test_psnr_is_scikit_images(batch):
    x, y = batch
    theirs = [peak_signal_noise_ratio(a, b, data_range=1) for a, b in zip(x, y, strict=True)]
    assert psnr(x, y, span=1).value == pytest.approx(np.mean(theirs))


def test_ms_ssim_is_torchmetrics(recwarn):
    from torchmetrics.functional.image import (
        multiscale_structural_similarity_index_measure as theirs,
    )

    rng = torch.Generator().manual_seed(0)
    x = torch.rand(2, 1, 192, 192, generator=rng)
    y = (x + 0.1 * torch.randn(x.shape, generator=rng)).clamp(0, 1)
    wanted = float(theirs(y, x, data_range=1.0))
    # torchmetrics pads its windows by reflection; ours lie inside the image.
    assert ms_ssim(x, y, span=1).value == pytest.approx(wanted, abs=2e-3)


def test_equal_images_have_the_largest_similarity(batch):
    x, _ = batch
    assert ssim(x, x, span=1).value == pytest.approx(1)
    assert ms_ssim(x, x, span=1).value == pytest.approx(1)
    assert psnr(x, x, span=1).value == 100
    assert sharpness_difference(x, x, span=1).value == 100


def test_sharpness_of_a_ramp():
    # |dx| + |dy| of i*a + j*b is a + b, and 0 for a constant: 10 log10(1/(a+b)).
    i, j = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    ramp = (0.05 * i + 0.02 * j)[None]
    found = sharpness_difference(ramp, np.zeros_like(ramp), span=1)
    assert found.value == pytest.approx(10 * math.log10(1 / 0.07))


def test_blurring_is_less_sharp(batch):
    x, _ = batch
    blurred = (x + np.roll(x, 1, 1) + np.roll(x, 1, 2)) / 3
    assert sharpness_difference(x, blurred, span=1).hi < 30


def test_small_images_have_small_windows():
    x = np.random.default_rng(0).random((3, 8, 8))
    assert ssim(x, x, span=1).value == pytest.approx(1)
    assert "1 scales" in ms_ssim(x, x, span=1).method


def test_pairs_and_ranges(batch):
    x, y = batch
    near, made = nearest_pairs(x, y[::-1].copy())
    torch.testing.assert_close(near[:, 0], torch.as_tensor(x[::-1].copy()))
    torch.testing.assert_close(made[:, 0], torch.as_tensor(y[::-1].copy()))
    a, b = random_pairs(x)
    assert len(a) == len(b) == 2
    assert data_range(x) == 1
    assert data_range(255 * x) == 255
    assert data_range(16 * np.ones((1, 4, 4))) == 16
    assert data_range(np.array([[[-1.0, 1.0], [0.0, 0.0]]])) == 2


def test_invalid_input_raises(batch):
    x, y = batch
    with pytest.raises(InputError, match="be 4 images, one for each"):
        ssim(x, y[:2], span=1)
    with pytest.raises(InputError, match="span must be positive"):
        psnr(x, y, span=0)
