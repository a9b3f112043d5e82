r"""The branching network of West, Brown and Enquist, and its exponent at finite size.

Letters: n branches at each fork, N levels below the first vessel, radii $r_k$, lengths $l_k$,
ratios $\beta = r_{k+1}/r_k$ and $\gamma = l_{k+1}/l_k$, $\bar N$ levels of small vessels.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.allometric import Allometry, allometry


@final
@dataclass(frozen=True)
class BranchingNetwork:
    r"""Vessels that fork from an aorta to capillaries of fixed size.

    Metabolic rate B is proportional to the number of capillaries $n^N$, and body mass M to the
    volume of blood $\sum_k n^k \pi r_k^2 l_k$. A network that fills d dimensions has
    $\gamma = n^{-1/d}$. Large vessels conserve their cross-section, $\beta = n^{-1/2}$; in the
    last $\bar N$ levels, where friction dominates, $\beta = n^{-1/3}$. With the
    volume of a capillary as unit,

    $$M = n^N \Big[\sum_{j=0}^{\bar N - 1} n^{j(1/d - 1/3)} +
    n^{\bar N(1/d - 1/3)} \sum_{j=0}^{N - \bar N} n^{j/d}\Big].$$

    Args:
        levels: N.
        small: $\bar N$, at most N.
        branches: n.
        dimension: d.

    References: `west1997` Eqs. (2) to (5); `savage2008` for finite sizes.
    """

    levels: int
    small: int = 0
    branches: int = 2
    dimension: int = 3

    def __post_init__(self) -> None:
        require(self.branches >= 2, "BranchingNetwork.branches", "be at least 2", self.branches)
        require(self.dimension >= 1, "BranchingNetwork.dimension", "be at least 1", self.dimension)
        within = 0 <= self.small <= self.levels
        require(within, "BranchingNetwork.small", f"lie between 0 and {self.levels}", self.small)

    def radii(self) -> Float[ndarray, " N_plus_1"]:
        """The radius of a vessel of each level, aorta first; a capillary has 1."""
        up = np.arange(self.levels, -1, -1)  # forks between a level and the capillaries
        power = np.minimum(up, self.small) / 3 + np.maximum(up - self.small, 0) / 2
        return self.branches**power

    def lengths(self) -> Float[ndarray, " N_plus_1"]:
        """The length of a vessel of each level; a capillary has 1."""
        up = np.arange(self.levels, -1, -1)
        return self.branches ** (up / self.dimension)

    def volumes(self) -> Float[ndarray, " N_plus_1"]:
        """The blood of each level, in units of a capillary."""
        count = float(self.branches) ** np.arange(self.levels + 1)
        return count * self.radii() ** 2 * self.lengths()

    @property
    def capillaries(self) -> float:
        """Their number, to which metabolic rate is proportional."""
        return float(self.branches) ** self.levels

    @property
    def mass(self) -> float:
        """All the blood, to which body mass is proportional."""
        return float(self.volumes().sum())


def limit_exponent(dimension: int = 3) -> float:
    r"""The exponent of an infinite network, $-\log n / \log(\gamma\beta^2) = d/(d + 1)$.

    Example:
        >>> from allometry.laws import branching
        >>> branching.limit_exponent()
        0.75

    References: `west1997` Eq. (4).
    """
    require(dimension >= 1, "limit_exponent.dimension", "be at least 1", dimension)
    return dimension / (dimension + 1)


def grow(
    decades: float = 8.0, *, small: int = 24, branches: int = 2, dimension: int = 3
) -> list[BranchingNetwork]:
    """Networks of growing size, from one without large vessels to `decades` times its mass.

    The defaults are mammals, whose masses span eight decades.
    """
    require(0 < decades <= 200, "grow.decades", "lie between 0 and 200", decades)
    made = [BranchingNetwork(small, small, branches, dimension)]
    while True:
        larger = BranchingNetwork(made[-1].levels + 1, small, branches, dimension)
        if larger.mass > made[0].mass * 10**decades:
            return made
        made.append(larger)


def finite_size_exponent(
    decades: float = 8.0, *, small: int = 24, branches: int = 2, dimension: int = 3
) -> Allometry:
    r"""The exponent that a fit to networks of finite size gives: for mammals 0.81, not 3/4.

    Each level of small vessels has the same volume, so that small animals are nearly isometric,
    and the limit is approached as slowly as $M^{-1/4}$. The source takes 24 levels of small
    vessels for two branches and 15 for three. Its smallest animal has one level more than that,
    which lowers the exponent to 0.80.

    Example:
        >>> from allometry.laws import branching
        >>> round(branching.finite_size_exponent().exponent.value, 2)
        0.81

    References: `savage2008` Figure 7.
    """
    made = grow(decades, small=small, branches=branches, dimension=dimension)
    require(len(made) >= 3, "finite_size_exponent.decades", "span 3 networks", decades)
    return allometry([net.mass for net in made], [net.capillaries for net in made])


def local_exponent(network: BranchingNetwork) -> float:
    """The slope of log B in log M between a network and the next larger one."""
    larger = BranchingNetwork(
        network.levels + 1, network.small, network.branches, network.dimension
    )
    return math.log(network.branches) / math.log(larger.mass / network.mass)
