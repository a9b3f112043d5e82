"""Points: distributions on R^d with exact densities, and the target that samples from one."""

from allometry.targets.points.density import Density, Modal
from allometry.targets.points.mixture import (
    Mixture,
    eight_gaussians,
    grid,
    random_mixture,
    ring,
)
from allometry.targets.points.points_target import Points
from allometry.targets.points.shapes import (
    Banana,
    Checkerboard,
    Funnel,
    Rings,
    Spirals,
    TwoMoons,
)

__all__ = [
    "Banana",
    "Checkerboard",
    "Density",
    "Funnel",
    "Mixture",
    "Modal",
    "Points",
    "Rings",
    "Spirals",
    "TwoMoons",
    "eight_gaussians",
    "grid",
    "random_mixture",
    "ring",
]
