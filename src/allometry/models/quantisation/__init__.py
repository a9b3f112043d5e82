"""Quantisers: Lloyd-Max for scalars, LBG for vectors, and theoretical bounds."""

from allometry.models.quantisation.scalar import ScalarQuantiser, lloyd_max, lloyd_max_sample
from allometry.models.quantisation.vector import (
    VectorQuantiser,
    lbg,
    nearest,
    shannon_bound,
    space_filling_gain,
)

__all__ = [
    "ScalarQuantiser",
    "VectorQuantiser",
    "lbg",
    "lloyd_max",
    "lloyd_max_sample",
    "nearest",
    "shannon_bound",
    "space_filling_gain",
]
