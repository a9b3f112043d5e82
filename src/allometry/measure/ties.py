r"""Nearest neighbours where several rows are equally near: counts, categories, rounded numbers.

Which of several nearest rows is named must not depend on the order of the rows: real rows come
before samples, so "the first" would always be real. Here all of them are named, and share.

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
"""Equally near distinct rows that are kept of one row; if there are more, drawn at random."""


def slack(*sets: Float[Tensor, "_ d"]) -> float:
    """How far two equal distances may differ because the rows themselves are rounded.

    Rows are known to their last digit only, so a distance between them to the norm of the last
    digits of the largest numbers in each column.
    """
    eps = max(torch.finfo(s.dtype).eps for s in sets)
    largest = torch.stack([s.abs().amax(0).double() for s in sets]).amax(0)
    return (4 + sets[0].shape[1] ** 0.5) * eps * float(largest.norm())


def merged(distances: Float[Tensor, " n"], within: float) -> Float[Tensor, " n"]:
    """Distances in which those that differ by rounding alone are made equal."""
    ordered, order = distances.double().sort()
    starts = torch.cat([torch.ones(1, dtype=torch.bool), ordered.diff() > within])
    firsts = ordered[starts][starts.cumsum(0) - 1]
    return torch.empty_like(firsts).scatter_(0, order, firsts)


@final
@dataclass(frozen=True, eq=False)
class Neighbours:
    """All rows that are nearest to each row of a set, itself left out.

    Args:
        group: Which distinct row each row equals.
        sizes: Rows that equal each distinct row.
        near: Nearest distinct rows (columns) of each distinct row; its own where it is repeated.
    """

    group: Int[ndarray, " N"]
    sizes: Int[ndarray, " U"]
    near: sparse.csr_array

    @cached_property
    def own(self) -> Float[ndarray, " U"]:
        """1 where equal rows are a row's nearest, among which it must not count itself."""
        return self.near.diagonal()

    @cached_property
    def total(self) -> Float[ndarray, " U"]:
        """How many rows are nearest to a row of each group."""
        return self.near @ self.sizes.astype(np.float64) - self.own

    def covariance(self, e: Float[ndarray, " N"], *, mutual: bool) -> float:
        r"""$\sum_{i \ne j} w_{ij} e_i e_j$ over rows that are linked by being nearest.

        A row shares a weight of 1 among its nearest rows; a pair has the larger of its two
        weights, or the smaller, which is 0 unless they are `mutual`.
        """
        shared = sparse.csr_array(sparse.diags_array(1 / self.total) @ self.near)
        back = sparse.csr_array(shared.T)
        links = shared.minimum(back) if mutual else shared.maximum(back)
        sums, squares = self.member.T @ e, self.member.T @ (e * e)
        return float(sums @ (links @ sums) - links.diagonal() @ squares)

    @cached_property
    def member(self) -> sparse.csr_array:
        """(N, U): which group a row belongs to."""
        N = len(self.group)
        return sparse.csr_array(
            (np.ones(N), self.group, np.arange(N + 1)), shape=(N, len(self.sizes))
        )

    def votes(self, is_real: Bool[ndarray, " N"]) -> Float[ndarray, " N"]:
        """Share of each row's nearest rows that carry its own label."""
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
        # Where no sample is in a group, a sample's vote there is multiplied by 0 later.
        real = (near_real - self.own) / self.total
        return real, (near_all - near_real - self.own) / self.total


def tied_neighbours(z: Float[Tensor, "N d"], rng: torch.Generator) -> Neighbours:
    """The nearest rows of every row, all of those that are equally near.

    Args:
        z: Rows, at least 2.
        rng: Draws among more than `MOST` equally near distinct rows.
    """
    distinct, group, sizes = torch.unique(z, dim=0, return_inverse=True, return_counts=True)
    U = len(distinct)
    if U == 1:
        return Neighbours(group.numpy(), sizes.numpy(), sparse.csr_array(np.ones((1, 1))))
    distance, index = nearest(distinct, distinct, min(2, U - 1), itself=True)
    distance = distance.double()
    repeated, most = sizes > 1, slack(z)
    reach = torch.where(repeated, 0.0, distance[:, 0]) + most
    first = torch.where(repeated, torch.arange(U), index[:, 0])
    # The nearest other row that `first` is not: is it as near?
    second = torch.where(repeated, distance[:, 0], distance[:, -1])
    alone = second > reach if U > 2 else ~repeated | (second > reach)
    rows, columns = [alone.nonzero()[:, 0]], [first[alone]]
    for some in (~alone).nonzero()[:, 0].split(max(1, BLOCK * BLOCK // U)):
        far = differences(distinct[some], distinct)
        far[torch.arange(len(some)), some] = torch.where(repeated[some], 0.0, torch.inf).double()
        i, j = _drawn(far <= reach[some, None], rng)
        rows.append(some[i])
        columns.append(j)
    i, j = torch.cat(rows).numpy(), torch.cat(columns).numpy()
    near = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(U, U))
    return Neighbours(group.numpy(), sizes.numpy(), near)


def _drawn(
    near: Bool[Tensor, "n m"], rng: torch.Generator
) -> tuple[Int[Tensor, " t"], Int[Tensor, " t"]]:
    """Places of the true entries, of each row at most `MOST` drawn at random."""
    if bool((near.sum(1) > MOST).any()):
        keys = torch.where(near, torch.rand(near.shape, generator=rng), 2.0)
        near = near & (keys <= keys.kthvalue(MOST, dim=1, keepdim=True).values)
    i, j = near.nonzero().unbind(1)
    return i, j
