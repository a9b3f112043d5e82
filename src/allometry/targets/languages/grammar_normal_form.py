r"""Weighted grammars: total weights of nonterminals, and a form without ε and unit rules.

A symbol is an int: a nonterminal i >= 0, a terminal t as ~t < 0.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from allometry._core.errors import InputError

Production = tuple[int, tuple[int, ...], float]
"""Left side, right side, weight."""


def totals(rules: list[Production], size: int) -> Float[ndarray, " {size}"]:
    r"""Least solution of $z_X = \sum_{X \to \alpha} w \prod_{Y \in \alpha} z_Y$.

    The total weight of all trees derived from X: with weights that sum to one, the probability
    that a derivation from X ends. Newton's method on the strongly connected components of the
    dependency graph, which converges from below.

    References:
        `etessami2009` on decomposed Newton iteration.
    """
    uses = np.zeros((size, size))
    for left, right, _ in rules:
        for s in right:
            if s >= 0:
                uses[left, s] = 1
    number, label = connected_components(csr_array(uses), directed=True, connection="strong")
    z = np.zeros(size)
    done = np.zeros(size, dtype=bool)
    waiting = set(range(number))
    while waiting:
        # A component is ready when all other components that it uses are solved.
        ready = min(
            c
            for c in waiting
            if all(
                done[j] or label[j] == c
                for i in np.flatnonzero(label == c)
                for j in np.flatnonzero(uses[i])
            )
        )
        members = np.flatnonzero(label == ready)
        z = _newton([r for r in rules if label[r[0]] == ready], members, z)
        done[members] = True
        waiting.remove(ready)
    return z


def _newton(rules: list[Production], members: ndarray, z: ndarray) -> ndarray:
    place = {int(m): i for i, m in enumerate(members)}
    z = z.copy()
    for _ in range(500):
        value, slope = np.zeros(len(members)), np.zeros((len(members), len(members)))
        for left, right, weight in rules:
            inside = [s for s in right if s >= 0]
            factors = z[inside]
            value[place[left]] += weight * factors.prod()
            for at, s in enumerate(inside):
                if s in place:
                    rest = np.delete(factors, at).prod()
                    slope[place[left], place[s]] += weight * rest
        gap = value - z[members]
        try:
            step = np.linalg.solve(np.eye(len(members)) - slope, gap)
        except np.linalg.LinAlgError:
            break  # critical: the derivative is 1 at the solution; floats allow no better one
        if not np.isfinite(step).all() or (step < -1e-9).any():
            break
        z[members] += np.maximum(step, 0)
        if np.abs(z).max() > 1e12:
            raise InputError(
                "grammar weights must have a finite total; the trees' weights diverge."
            )
        if step.max(initial=0) <= 4e-16 * max(1.0, z[members].max()):
            break
    return z


@final
@dataclass(frozen=True)
class Normal:
    """A proper grammar whose rules have one terminal or two symbols on the right.

    Attributes:
        rules: Productions; the weights of each left side sum to one.
        size: Number of nonterminals.
        empty: Probability of the empty word, which `rules` exclude.
        corner: Expected number of times Y is a left corner of Z, including Z itself: (Z, Y).
    """

    rules: list[Production]
    size: int
    empty: float
    corner: Float[ndarray, "z y"]


def normal_form(rules: list[Production], size: int) -> Normal:
    """A grammar of the same distribution without ε rules and unit rules.

    Args:
        rules: A proper grammar that terminates with probability one, with start symbol 0.
        size: Number of nonterminals.
    """
    rules, size = _binary(rules, size)
    empty = totals([r for r in rules if all(s >= 0 for s in r[1])], size)
    empty[empty > 1 - 1e-15] = 1.0
    full = 1 - empty
    merged: dict[tuple[int, tuple[int, ...]], float] = {}

    def add(left: int, right: tuple[int, ...], weight: float) -> None:
        # A nonterminal now excludes the empty word: that probability moves into the weight.
        for s in right:
            weight *= full[s] if s >= 0 else 1.0
        if weight > 0 and full[left] > 0:
            merged[left, right] = merged.get((left, right), 0.0) + weight / full[left]

    for left, right, weight in rules:
        if right:
            add(left, right, weight)
        if len(right) == 2:
            for kept, dropped in ((right[:1], right[1]), (right[1:], right[0])):
                if dropped >= 0 and empty[dropped] > 0:
                    add(left, kept, weight * empty[dropped])
    unit = np.zeros((size, size))
    for (left, right), weight in merged.items():
        if len(right) == 1 and right[0] >= 0:
            unit[left, right[0]] += weight
    closure = np.linalg.inv(np.eye(size) - unit)
    final_rules: dict[tuple[int, tuple[int, ...]], float] = {}
    for (middle, right), weight in merged.items():
        if len(right) == 1 and right[0] >= 0:
            continue
        for left in np.flatnonzero(closure[:, middle] > 0):
            key = (int(left), right)
            final_rules[key] = final_rules.get(key, 0.0) + closure[left, middle] * weight
    first = np.zeros((size, size))
    for (left, right), weight in final_rules.items():
        if right[0] >= 0:
            first[left, right[0]] += weight
    corner = np.linalg.inv(np.eye(size) - first)
    listed = [(left, right, w) for (left, right), w in final_rules.items()]
    return Normal(listed, size, float(empty[0]), corner)


def _binary(rules: list[Production], size: int) -> tuple[list[Production], int]:
    """Binarise: at most two symbols on the right, A -> B C D as A -> B N, N -> C D."""
    binary: list[Production] = []
    for left, right, weight in rules:
        while len(right) > 2:
            binary.append((left, (right[0], size), weight))
            left, right, weight, size = size, right[1:], 1.0, size + 1
        binary.append((left, right, weight))
    return binary, size
