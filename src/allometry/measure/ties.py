r"""Nearest neighbours with ties: counts, categories, rounded numbers.

The choice among several nearest rows must not depend on the order of the rows: real rows come
before samples, so the first would always be real. Here all of them share the vote.

Letters: $N$ rows, $U$ distinct ones, $B$ labellings.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from allometry.measure.pair_blocks import BLOCK, differences, nearest

MOST = 512
"""Largest number of tied neighbours per distinct row; of more, a random subset is used."""


def slack(*sets: Float[Tensor, "_ d"]) -> float:
    """Largest difference of two equal distances due to rounding of the rows.

    Each number is known to its last digit, so a distance is known to the norm of the last digits
    of the largest numbers in each column.
    """
    eps = max(torch.finfo(s.dtype).eps for s in sets)
    largest = torch.stack([s.abs().amax(0).double() for s in sets]).amax(0)
    return (4 + sets[0].shape[1] ** 0.5) * eps * float(largest.norm())


def merged(distances: Float[Tensor, " n"], within: float) -> Float[Tensor, " n"]:
    """Distances with those that differ only by rounding made equal."""
    ordered, order = distances.double().sort()
    starts = torch.cat([torch.ones(1, dtype=torch.bool), ordered.diff() > within])
    firsts = ordered[starts][starts.cumsum(0) - 1]
    return torch.empty_like(firsts).scatter_(0, order, firsts)


@final
@dataclass(frozen=True, eq=False)
class Neighbours:
    """All nearest rows of each row of a set, excluding itself.

    Args:
        group: Index of the distinct row that each row equals.
        sizes: Multiplicity of each distinct row.
        near: Nearest distinct rows (columns) of each distinct row; itself if it is repeated.
    """

    group: Int[ndarray, " N"]
    sizes: Int[ndarray, " U"]
    near: sparse.csr_array

    @cached_property
    def own(self) -> Float[ndarray, " U"]:
        """1 where the nearest rows are equal ones, among which a row does not count itself."""
        return self.near.diagonal()

    @cached_property
    def total(self) -> Float[ndarray, " U"]:
        """Number of nearest rows of a row of each group."""
        return self.near @ self.sizes.astype(np.float64) - self.own

    def covariance(self, e: Float[ndarray, " N"], *, mutual: bool) -> float:
        r"""$\sum_{i \ne j} w_{ij} e_i e_j$ over rows linked in the neighbour graph.

        A row divides a weight of 1 among its nearest rows. A pair has the larger of its two
        weights, or with `mutual` the smaller, which is 0 unless each is nearest to the other.
        """
        shared = sparse.csr_array(sparse.diags_array(1 / self.total) @ self.near)
        back = sparse.csr_array(shared.T)
        links = shared.minimum(back) if mutual else shared.maximum(back)
        sums, squares = self.member.T @ e, self.member.T @ (e * e)
        return float(sums @ (links @ sums) - links.diagonal() @ squares)

    @cached_property
    def member(self) -> sparse.csr_array:
        """(N, U): the group of each row, as indicators."""
        N = len(self.group)
        return sparse.csr_array(
            (np.ones(N), self.group, np.arange(N + 1)), shape=(N, len(self.sizes))
        )

    def votes(self, is_real: Bool[ndarray, " N"]) -> Float[ndarray, " N"]:
        """Share of the nearest rows of each row that have its own label."""
        real, samples = self._same(is_real[None])
        return np.where(is_real, real[0][self.group], samples[0][self.group])

    def sums(
        self, labels: Bool[ndarray, "B N"]
    ) -> tuple[Float[ndarray, " B"], Float[ndarray, " B"]]:
        """`votes` summed over the real rows and over the samples, for each labelling."""
        real, samples = self._same(labels)
        reals = self._count(labels)
        return (reals * real).sum(1), ((self.sizes - reals) * samples).sum(1)

    def _count(self, labels: Bool[ndarray, "B N"]) -> Float[ndarray, "B U"]:
        return np.asarray((self.member.T @ labels.T.astype(np.float64)).T)

    def _same(
        self, labels: Bool[ndarray, "B N"]
    ) -> tuple[Float[ndarray, "B U"], Float[ndarray, "B U"]]:
        """Votes of a real row, and of a sample, in each group."""
        near_real = np.asarray((self.near @ self._count(labels).T).T)
        near_all = self.near @ self.sizes.astype(np.float64)
        # For a group without samples, the vote of a sample is multiplied by 0 later.
        real = (near_real - self.own) / self.total
        return real, (near_all - near_real - self.own) / self.total


def tied_neighbours(z: Float[Tensor, "N d"], rng: torch.Generator) -> Neighbours:
    """The nearest rows of every row, including all ties.

    Args:
        z: Rows, at least 2.
        rng: Random generator for the choice among more than `MOST` tied rows.
    """
    distinct, group, sizes = torch.unique(z, dim=0, return_inverse=True, return_counts=True)
    U = len(distinct)
    if U == 1:
        return Neighbours(group.numpy(), sizes.numpy(), sparse.csr_array(np.ones((1, 1))))
    distance, index = nearest(distinct, distinct, min(2, U - 1), itself=True)
    distance = distance.double()
    repeated, most = sizes > 1, slack(z)
    radius = torch.where(repeated, 0.0, distance[:, 0]) + most
    first = torch.where(repeated, torch.arange(U), index[:, 0])
    # The nearest row other than `first`: is it tied?
    second = torch.where(repeated, distance[:, 0], distance[:, -1])
    alone = second > radius if U > 2 else ~repeated | (second > radius)
    rows, columns = [alone.nonzero()[:, 0]], [first[alone]]
    for some in (~alone).nonzero()[:, 0].split(max(1, BLOCK * BLOCK // U)):
        far = differences(distinct[some], distinct)
        far[torch.arange(len(some)), some] = torch.where(repeated[some], 0.0, torch.inf).double()
        i, j = _drawn(far <= radius[some, None], rng)
        rows.append(some[i])
        columns.append(j)
    i, j = torch.cat(rows).numpy(), torch.cat(columns).numpy()
    near = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(U, U))
    return Neighbours(group.numpy(), sizes.numpy(), near)


def _drawn(
    near: Bool[Tensor, "n m"], rng: torch.Generator
) -> tuple[Int[Tensor, " t"], Int[Tensor, " t"]]:
    """Indices of the true entries, at most `MOST` of each row, drawn at random."""
    if bool((near.sum(1) > MOST).any()):
        keys = torch.where(near, torch.rand(near.shape, generator=rng), 2.0)
        near = near & (keys <= keys.kthvalue(MOST, dim=1, keepdim=True).values)
    i, j = near.nonzero().unbind(1)
    return i, j
