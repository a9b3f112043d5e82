r"""Low-level statistics of images: power spectrum, contrast, filter responses.

Letters: $f$ spatial frequency in cycles per image, $\alpha$ the slope of $\log$ power.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.sample_inputs import Array, image_pair, images


def spectrum_slopes(data: Array) -> Float[Tensor, " n"]:
    r"""The slope of $\log$ power on $\log f$ of each image; near -2 for natural scenes.

    Power is averaged over channels and over rings of one frequency up to the Nyquist frequency,
    after subtraction of the mean. Least squares over rings.

    References: `torralba2003`.
    """
    x = images(data, "data").double()
    n, _, h, w = x.shape
    require(min(h, w) >= 6, "data", "have sides of at least 6 pixels", (h, w))
    x = x - x.mean((2, 3), keepdim=True)
    power = torch.fft.fft2(x).abs().pow(2).mean(1)
    fy = torch.fft.fftfreq(h, dtype=torch.float64)[:, None]
    fx = torch.fft.fftfreq(w, dtype=torch.float64)[None, :]
    ring = (torch.sqrt(fy**2 + fx**2) * min(h, w)).round().long()
    rings = min(h, w) // 2
    chosen = (ring >= 1) & (ring <= rings)
    sums = torch.zeros(n, rings + 1, dtype=torch.float64)
    sums.index_add_(1, ring[chosen], power[:, chosen])
    logs = torch.zeros(rings + 1, dtype=torch.float64)
    frequency = torch.sqrt(fy**2 + fx**2)[chosen] * min(h, w)
    logs.index_add_(0, ring[chosen], frequency.log())
    counts = torch.bincount(ring[chosen], minlength=rings + 1)
    u = logs[1:] / counts[1:]
    v = (sums[:, 1:] / counts[1:]).clamp(min=1e-300).log()
    u = u - u.mean()
    flat = x.flatten(1).abs().amax(1) == 0
    require(not bool(flat.any()), "data", "have no constant image", int(flat.sum()))
    return v @ u / (u @ u)


def contrasts(data: Array) -> Float[Tensor, " n"]:
    """The standard deviation of the pixels of each image."""
    return images(data, "data").double().flatten(1).std(1, correction=0)


def filter_responses(data: Array) -> Float[Tensor, " n"]:
    r"""The mean $\log$ energy of eight Gabor filters (two scales, four directions) of each image.

    References: `simoncelli2001`.
    """
    x = images(data, "data").double()
    n, c, h, w = x.shape
    energy = torch.zeros(n, dtype=torch.float64)
    bank = [_gabor(scale, angle * math.pi / 4) for scale in (2.5, 5.0) for angle in range(4)]
    flat = (x - x.mean((2, 3), keepdim=True)).reshape(n * c, 1, h, w)
    # A constant image has no energy; it counts as 1e-24 of the mean energy.
    least = 1e-24 * float(flat.pow(2).mean()) or 1e-300
    for even, odd in bank:
        pad = even.shape[-1] // 2
        pad = min(pad, h - 1, w - 1)
        z = functional.pad(flat, (pad,) * 4, mode="reflect")
        if min(z.shape[2:]) < even.shape[-1]:
            continue
        response = sum(functional.conv2d(z, part[None, None]).pow(2) for part in (even, odd))
        energy += torch.as_tensor(response).reshape(n, -1).mean(1).clamp(min=least).log()
    return energy / len(bank)


def _gabor(wavelength: float, angle: float) -> tuple[Tensor, Tensor]:
    half = math.ceil(wavelength)
    at = torch.arange(-half, half + 1, dtype=torch.float64)
    yy, xx = torch.meshgrid(at, at, indexing="ij")
    along = xx * math.cos(angle) + yy * math.sin(angle)
    envelope = torch.exp(-(xx**2 + yy**2) / (2 * (wavelength / 2) ** 2))
    phase = 2 * math.pi * along / wavelength
    even, odd = envelope * torch.cos(phase), envelope * torch.sin(phase)
    # No response to a constant: the mean of the even filter is subtracted under its envelope.
    even = even - envelope * even.sum() / envelope.sum()
    return even / even.norm(), odd / odd.norm()


def spectrum_slope_difference(real: Array, samples: Array) -> Estimate:
    """Mean slope of the power spectrum of samples minus that of real images.

    References: `torralba2003`.
    """
    x, y = image_pair(real, samples)
    return uncertainty.difference(spectrum_slopes(y), spectrum_slopes(x), "two means over images")


def contrast_difference(real: Array, samples: Array) -> Estimate:
    """Mean contrast of samples minus that of real images."""
    x, y = image_pair(real, samples)
    return uncertainty.difference(contrasts(y), contrasts(x), "two means over images")


def filter_response_difference(real: Array, samples: Array) -> Estimate:
    """Mean log energy of Gabor responses of samples minus that of real images.

    References: `simoncelli2001`.
    """
    x, y = image_pair(real, samples)
    return uncertainty.difference(
        filter_responses(y), filter_responses(x), "two means over images"
    )
