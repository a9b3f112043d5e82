r"""Similarity of pairs of images: SSIM, MS-SSIM, PSNR, sharpness difference.

The i-th image of one batch is compared with the i-th of the other. For two unpaired sets,
`nearest_pairs` finds the nearest real image of each sample, and `random_pairs` pairs a set with
itself, which shows its diversity.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.pair_blocks import nearest
from allometry.measure.sample_inputs import Array, generator, image_pair, images

_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def _paired(a: Array, b: Array) -> tuple[Tensor, Tensor]:
    x, y = image_pair(a, b)
    require(len(x) == len(y), "samples", f"be {len(x)} images, one for each real one", len(y))
    return x.double(), y.double()


def nearest_pairs(real: Array, samples: Array) -> tuple[Tensor, Tensor]:
    """The nearest real image of each sample, and the samples."""
    x, y = image_pair(real, samples)
    index = nearest(y.flatten(1), x.flatten(1))[1][:, 0]
    return x[index], y


def random_pairs(data: Array, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Disjoint random pairs of one set, as two batches."""
    x = images(data, "data")
    require(len(x) >= 4, "data", "hold at least 4 images", len(x))
    x = x[torch.randperm(len(x), generator=generator(rng))]
    half = len(x) // 2
    return x[:half], x[half : 2 * half]


def data_range(data: Array) -> float:
    """The range of pixel values: 1, 255, or that of the images if neither fits."""
    x = images(data, "data")
    low, high = float(x.min()), float(x.max())
    if low >= 0:
        return 1.0 if high <= 1 else 255.0 if 16 < high <= 255 else high
    return high - low


def ssim(real: Array, samples: Array, *, span: float | int) -> Estimate:
    r"""Mean structural similarity of pairs of images, 1 for equal ones.

    Gaussian windows of 11 pixels and $\sigma = 1.5$, at positions inside the image (smaller
    windows for smaller images), $C_1 = (0.01 L)^2$, $C_2 = (0.03 L)^2$.

    Args:
        real: Images.
        samples: Equally many, compared in pairs.
        span: L, the range of pixel values.

    References: `wang2004` Eq. (13).
    """
    x, y = _paired(real, samples)
    require(span > 0, "ssim.span", "be positive", span)
    return uncertainty.mean(_maps(x, y, span)[0], "independent pairs")


def ms_ssim(real: Array, samples: Array, *, span: float | int) -> Estimate:
    r"""Multi-scale structural similarity: contrast at each scale, luminance at the coarsest.

    Differs from the paper: for images too small for five scales, the weights of the remaining
    scales are normalised to 1; negative means of contrast count as 0.

    References: `wang2003`.
    """
    x, y = _paired(real, samples)
    require(span > 0, "ms_ssim.span", "be positive", span)
    scales = max(1, min(5, 1 + int(math.log2(min(x.shape[2:]) / 11) // 1)))
    weights = torch.tensor(_WEIGHTS[:scales], dtype=x.dtype)
    weights = weights / weights.sum()
    value = torch.ones(len(x), dtype=x.dtype)
    for s in range(scales):
        whole, contrast = _maps(x, y, span)
        part = whole if s == scales - 1 else contrast
        value = value * part.clamp(min=0) ** weights[s]
        if s < scales - 1:
            x, y = functional.avg_pool2d(x, 2), functional.avg_pool2d(y, 2)
    return uncertainty.mean(value, f"independent pairs; {scales} scales")


def _maps(
    x: Float[Tensor, "n c h w"], y: Float[Tensor, "n c h w"], span: float | int
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Mean similarity of each pair, and its contrast-structure factor."""
    size = min(11, *x.shape[2:])
    size -= 1 - size % 2
    at = torch.arange(size, dtype=x.dtype) - size // 2
    window = torch.exp(-(at**2) / (2 * 1.5**2))
    window = window / window.sum()
    n, c = x.shape[:2]

    def smooth(z: Tensor) -> Tensor:
        z = z.reshape(n * c, 1, *z.shape[2:])
        z = functional.conv2d(z, window.reshape(1, 1, -1, 1))
        return functional.conv2d(z, window.reshape(1, 1, 1, -1)).reshape(n, -1)

    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    mx, my = smooth(x), smooth(y)
    vx, vy, cov = smooth(x * x) - mx**2, smooth(y * y) - my**2, smooth(x * y) - mx * my
    contrast = (2 * cov + c2) / (vx + vy + c2)
    luminance = (2 * mx * my + c1) / (mx**2 + my**2 + c1)
    return (luminance * contrast).mean(1), contrast.mean(1)


def psnr(real: Array, samples: Array, *, span: float | int) -> Estimate:
    r"""Peak signal-to-noise ratio $10\log_{10}(L^2/\mathrm{MSE})$ in decibels, mean over pairs.

    Equal images count as 100 dB. It is the mean of the ratios, not the ratio of the mean error.

    References: `mathieu2016`.
    """
    x, y = _paired(real, samples)
    return uncertainty.mean(
        _decibels((x - y).pow(2).flatten(1).mean(1), span), "independent pairs"
    )


def sharpness_difference(real: Array, samples: Array, *, span: float | int) -> Estimate:
    r"""Similarity of gradients in decibels: $10\log_{10}(L^2 / \overline{|\nabla x - \nabla y|})$.

    $\nabla$ is the sum of absolute differences to the left and upper neighbours. Higher is
    more similar.

    References: `mathieu2016`.
    """
    x, y = _paired(real, samples)
    gap = (_gradient(x) - _gradient(y)).abs().flatten(1).mean(1)
    return uncertainty.mean(_decibels(gap, span), "independent pairs")


def _gradient(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c a b"]:
    inner = x[:, :, 1:, 1:]
    return (inner - x[:, :, 1:, :-1]).abs() + (inner - x[:, :, :-1, 1:]).abs()


def _decibels(error: Float[Tensor, " n"], span: float | int) -> Float[Tensor, " n"]:
    require(span > 0, "span", "be positive", span)
    return (10 * torch.log10(span**2 / error.clamp(min=span**2 * 1e-10))).clamp(max=100.0)
