"""Complete flows by their published name, built from sizes."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from allometry._core.errors import require
from allometry.models.flows.autoregressive import InverseAutoregressive, MaskedAutoregressive
from allometry.models.flows.continuous import Continuous
from allometry.models.flows.coupling import AffineCoupling, SplineCoupling
from allometry.models.flows.dequantisation import Dequantised
from allometry.models.flows.discrete import DiscreteFlow, ModularShift
from allometry.models.flows.flow import Flow
from allometry.models.flows.glow import glow_levels
from allometry.models.flows.invertible_linear import (
    ActNorm,
    Flatten,
    InvertibleLinear,
    Permutation,
)
from allometry.models.flows.marginal import Marginal
from allometry.models.flows.planar import Planar, Radial
from allometry.models.flows.transform import Transform

Rng = torch.Generator | None


def _seeded(rng: Rng) -> torch.Generator:
    # One generator for all layers: with one seed per layer they would be identical.
    return torch.Generator().manual_seed(0) if rng is None else rng


def planar(dim: int, layers: int = 8, rng: Rng = None) -> Flow:
    """Planar layers.

    References: `rezende2015`.
    """
    rng = _seeded(rng)
    return Flow([Planar(dim, rng) for _ in range(layers)], (dim,))


def radial(dim: int, layers: int = 8, rng: Rng = None) -> Flow:
    """Radial layers.

    References: `rezende2015`.
    """
    rng = _seeded(rng)
    return Flow([Radial(dim, rng) for _ in range(layers)], (dim,))


def _couplings(
    dim: int, layers: int, make: Callable[[bool], Transform], rng: torch.Generator
) -> list[Transform]:
    """ActNorm, then couplings with alternating halves and random permutations between them."""
    made: list[Transform] = [ActNorm(dim)]
    for i in range(layers):
        if i and i % 2 == 0 and dim > 2:
            made.append(Permutation(dim, rng))
        made.append(make(i % 2 == 0))
    return made


def affine_coupling(
    dim: int,
    layers: int = 8,
    width: int = 64,
    depth: int = 2,
    scale: bool = True,
    context: int = 0,
    rng: Rng = None,
) -> Flow:
    """RealNVP on points: alternating affine couplings; NICE with `scale=False`.

    The volume-preserving layers of NICE are followed by one scale per coordinate, as in its paper.

    References: `dinh2017`; `dinh2015`.
    """
    rng = _seeded(rng)

    def make(first: bool) -> Transform:
        return AffineCoupling(dim, first, width, depth, scale, context, rng)

    made = _couplings(dim, layers, make, rng)
    return Flow(made if scale else [*made, ActNorm(dim)], (dim,))


def spline_coupling(
    dim: int,
    layers: int = 6,
    width: int = 64,
    depth: int = 2,
    bins: int = 8,
    bound: float = 5.0,
    context: int = 0,
    rng: Rng = None,
) -> Flow:
    """Alternating rational-quadratic spline couplings.

    References: `durkan2019`.
    """
    rng = _seeded(rng)

    def make(first: bool) -> Transform:
        return SplineCoupling(dim, first, width, depth, bins, bound, context, rng)

    return Flow(_couplings(dim, layers, make, rng), (dim,))


def _autoregressive(
    kind: type[MaskedAutoregressive] | type[InverseAutoregressive],
    dim: int,
    layers: int,
    **sizes: Any,
) -> Flow:
    turning = [kind(dim, i % 2 == 1, **sizes) for i in range(layers)]
    return Flow([ActNorm(dim), *turning], (dim,))


def masked_autoregressive(
    dim: int,
    layers: int = 5,
    width: int = 64,
    depth: int = 2,
    bins: int = 0,
    context: int = 0,
    rng: Rng = None,
) -> Flow:
    """Masked autoregressive layers in alternating order; splines with `bins`.

    References: `papamakarios2017`; `durkan2019`.
    """
    sizes = {"width": width, "depth": depth, "bins": bins, "context": context}
    return _autoregressive(MaskedAutoregressive, dim, layers, rng=_seeded(rng), **sizes)


def inverse_autoregressive(
    dim: int,
    layers: int = 5,
    width: int = 64,
    depth: int = 2,
    bins: int = 0,
    context: int = 0,
    rng: Rng = None,
) -> Flow:
    """Inverse autoregressive layers in alternating order: fast sampling, slow densities.

    References: `kingma2016`.
    """
    sizes = {"width": width, "depth": depth, "bins": bins, "context": context}
    return _autoregressive(InverseAutoregressive, dim, layers, rng=_seeded(rng), **sizes)


def linear(dim: int, rng: Rng = None) -> Flow:
    """One invertible matrix and a shift: a Gaussian."""
    return Flow([ActNorm(dim), InvertibleLinear(dim, _seeded(rng)), ActNorm(dim)], (dim,))


def continuous(
    dim: int,
    width: int = 64,
    depth: int = 2,
    trace: str = "exact",
    tolerance: float = 1e-5,
    context: int = 0,
    rng: Rng = None,
    steps: int | None = None,
) -> Flow:
    """A neural ordinary differential equation; with fixed `steps` it can be vectorised over seeds.

    References: `chen2018`; `grathwohl2019`.
    """
    field = Continuous(dim, width, depth, trace, tolerance, context, _seeded(rng), steps)
    return Flow([ActNorm(dim), field], (dim,))


def glow(
    shape: Sequence[int],
    levels: int = 2,
    steps: int = 4,
    width: int = 64,
    marginal: int = 0,
    rng: Rng = None,
) -> Flow:
    """GLOW on images (channels, height, width).

    Args:
        shape: Shape of an image.
        levels: Number of scales.
        steps: Flow steps per scale.
        width: Hidden channels of the coupling networks.
        marginal: Bins of a first layer with one CDF per pixel; 0 means none.
        rng: Generator of the initial weights; default: seed 0.

    References: `kingma2018`.
    """
    require(len(shape) == 3, "glow.shape", "be (channels, height, width)", tuple(shape))
    first: list[Transform] = [Marginal(tuple(shape), marginal)] if marginal else []
    body = glow_levels(shape, levels, steps, width, _seeded(rng))
    return Flow([*first, body], shape)


def discrete(
    dim: int | Sequence[int],
    K: int,
    layers: int = 2,
    width: int = 64,
    depth: int = 2,
    rng: Rng = None,
) -> DiscreteFlow:
    r"""Modular autoregressive shifts on $\mathbb Z_K^d$ in alternating order.

    Args:
        dim: d, or the shape of an image of d pixels.
        K: Number of symbols.
        layers: Number of shifts.
        width: Width of their hidden layers.
        depth: Number of hidden layers of each.
        rng: Generator of the initial weights; default: seed 0.

    References: `tran2019`.
    """
    rng = _seeded(rng)
    shape = (dim,) if isinstance(dim, int) else tuple(dim)
    d = math.prod(shape)
    made = [ModularShift(d, K, width, depth, i % 2 == 1, rng=rng) for i in range(layers)]
    return DiscreteFlow(made, d, K, shape)


def image_splines(
    shape: Sequence[int],
    levels: int,
    layers: int = 6,
    width: int = 128,
    depth: int = 2,
    bins: int = 8,
    variational: bool = False,
    rng: Rng = None,
) -> Dequantised:
    """Dequantised images of `levels` grey values: one CDF per pixel, then spline couplings.

    Args:
        shape: Shape of an image.
        levels: Number of values of a pixel.
        layers: Number of spline couplings.
        width: Width of their hidden layers.
        depth: Number of hidden layers of each.
        bins: Bins of each spline.
        variational: Learn the dequantisation noise.
        rng: Generator of the initial weights; default: seed 0.

    References: `durkan2019`; `ho2019`.
    """
    rng = _seeded(rng)
    dim = int(torch.Size(shape).numel())
    made: list[Transform] = [Marginal(tuple(shape), levels), Flatten(shape)]
    for i in range(layers):
        made.append(Permutation(dim, rng))
        made.append(SplineCoupling(dim, i % 2 == 0, width, depth, bins, rng=rng))
    noise = affine_coupling(dim, 2, width, 1, context=dim, rng=rng) if variational else None
    if noise is not None:
        with torch.no_grad():
            # The sigmoid of a normal of this scale is nearly uniform, the initial noise.
            cast("ActNorm", noise.transforms[0]).log_scale.fill_(math.log(1.65))
    return Dequantised(Flow([*made, Flatten(shape, back=True)], shape), levels, noise)
