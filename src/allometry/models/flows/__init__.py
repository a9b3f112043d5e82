"""Normalizing flows: invertible layers, and complete flows by their published name."""

from allometry.models.flows.autoregressive import InverseAutoregressive, MaskedAutoregressive
from allometry.models.flows.continuous import Continuous
from allometry.models.flows.coupling import AffineCoupling, SplineCoupling
from allometry.models.flows.dequantisation import Dequantised
from allometry.models.flows.discrete import DiscreteFlow, ModularShift
from allometry.models.flows.flow import Flow
from allometry.models.flows.glow import ImageCoupling, MultiScale, Squeeze
from allometry.models.flows.invertible_linear import (
    ActNorm,
    Flatten,
    InvertibleLinear,
    Permutation,
)
from allometry.models.flows.marginal import Marginal
from allometry.models.flows.named_flows import (
    affine_coupling,
    continuous,
    discrete,
    glow,
    image_splines,
    inverse_autoregressive,
    linear,
    masked_autoregressive,
    planar,
    radial,
    spline_coupling,
)
from allometry.models.flows.planar import Planar, Radial
from allometry.models.flows.spline import spline, spline_inverse
from allometry.models.flows.transform import Transform

__all__ = [
    "ActNorm",
    "AffineCoupling",
    "Continuous",
    "Dequantised",
    "DiscreteFlow",
    "Flatten",
    "Flow",
    "ImageCoupling",
    "InverseAutoregressive",
    "InvertibleLinear",
    "Marginal",
    "MaskedAutoregressive",
    "ModularShift",
    "MultiScale",
    "Permutation",
    "Planar",
    "Radial",
    "SplineCoupling",
    "Squeeze",
    "Transform",
    "affine_coupling",
    "continuous",
    "discrete",
    "glow",
    "image_splines",
    "inverse_autoregressive",
    "linear",
    "masked_autoregressive",
    "planar",
    "radial",
    "spline",
    "spline_coupling",
    "spline_inverse",
]
