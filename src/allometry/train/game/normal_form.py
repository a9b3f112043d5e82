"""Games in normal form: payoff tables and their equilibria.

Notation: N players, player i with $m_i$ actions; A and B the payoffs of two players, rows the
first's actions and columns the second's; x and y their mixed strategies.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import linprog

from allometry._core.errors import InputError, require
from allometry.train.game.rational_equilibria import PIVOTS, exact_mixture, exact_pivots, whole

ROUNDING = 4 * float(np.finfo(float).eps)
"""Relative rounding error of one product in a sum of payoffs."""

Strategy = Float[ndarray, " _"]


@final
@dataclass(frozen=True)
class NormalForm:
    """An N-player game.

    Args:
        payoffs: One table for each player, of shape $(m_1, ..., m_N)$; higher is better.

    Example:
        >>> from allometry.train.game import NormalForm
        >>> NormalForm.of([[(4, 2), (2, 3)], [(6, -1), (0, 0)]]).pure_equilibria()
        [(0, 1)]
    """

    payoffs: tuple[Float[ndarray, "*actions"], ...]

    def __post_init__(self) -> None:
        tables = tuple(np.asarray(t, dtype=np.float64) for t in self.payoffs)
        shapes = {t.shape for t in tables}
        require(len(tables) >= 1, "payoffs", "have a table for each player", len(tables))
        require(
            shapes == {tables[0].shape} and tables[0].ndim == len(tables),
            "payoffs",
            "be one table per player, with one axis per player",
            sorted(shapes),
        )
        require(min(tables[0].shape) >= 1, "payoffs", "give every player an action", shapes)
        require(all(np.isfinite(t).all() for t in tables), "payoffs", "be finite", "nan or inf")
        object.__setattr__(self, "payoffs", tables)

    @staticmethod
    def of(table: Sequence) -> "NormalForm":
        """From a nested table whose entries are the payoffs of all players: `[[(4, 2), ...]]`."""
        whole = np.asarray(table, dtype=np.float64)
        return NormalForm(tuple(np.moveaxis(whole, -1, 0)))

    @staticmethod
    def zero_sum(A: Float[ndarray, "m n"]) -> "NormalForm":
        """A zero-sum game of two players."""
        A = np.asarray(A, dtype=np.float64)
        return NormalForm((A, -A))

    @property
    def players(self) -> int:
        """N."""
        return len(self.payoffs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of actions of each player."""
        return self.payoffs[0].shape

    def values(self, player: int, strategies: Sequence[Strategy]) -> Float[ndarray, " _"]:
        """Expected payoff of each action of `player` against the others' strategies."""
        return _values(self.payoffs[player], player, strategies)

    def expected(self, strategies: Sequence[Strategy]) -> Float[ndarray, " _"]:
        """Expected payoff of each player."""
        each = [self.values(i, strategies) @ s for i, s in enumerate(strategies)]
        return np.array(each)

    def gains(self, strategies: Sequence[Strategy]) -> Float[ndarray, " _"]:
        """Gain of each player by a unilateral deviation; all 0 at a Nash equilibrium."""
        best = [self.values(i, strategies).max() for i in range(self.players)]
        return np.array(best) - self.expected(strategies)

    def is_equilibrium(self, strategies: Sequence[Strategy], tolerance: float = 1e-9) -> bool:
        """Whether no player gains by a unilateral deviation.

        A gain counts if it exceeds `tolerance` times the player's `spread` and the rounding error,
        so that neither the unit nor the origin of the payoffs matters.
        """
        for i, table in enumerate(self.payoffs):
            centred, own = table - np.median(table), np.asarray(strategies[i])
            worth = _values(centred, i, strategies)
            summed = _values(np.abs(centred), i, strategies)
            rounding = ROUNDING * table.size * (summed + summed @ own)
            if (worth - worth @ own > tolerance * self.spread(i) + rounding).any():
                return False
        return True

    def spread(self, player: int) -> float:
        """Scale of a player's payoffs: median absolute deviation from their median.

        Payoffs equal to the median are excluded. The scale is robust, so a few extreme payoffs
        cannot hide gains among the others.
        """
        table = self.payoffs[player]
        far = np.abs(table - np.median(table))
        return float(np.quantile(far[far > 0], 0.5, method="lower")) if far.any() else 0.0

    def pure_equilibria(self) -> list[tuple[int, ...]]:
        """All equilibria in pure strategies, as actions."""
        best = np.ones(self.shape, dtype=bool)
        for i, table in enumerate(self.payoffs):
            best &= table >= table.max(axis=i, keepdims=True)
        return [tuple(map(int, at)) for at in np.argwhere(best)]

    def best_response_path(
        self, start: Sequence[int], rounds: int = 100
    ) -> tuple[list[tuple[int, ...]], bool]:
        """Sequential best responses: the visited profiles, and whether they converge.

        Players cycle if they return to an earlier profile or do not converge within `rounds`.
        """
        here = tuple(start)
        legal = len(here) == self.players and all(
            0 <= a < m for a, m in zip(here, self.shape, strict=False)
        )
        require(legal, "start", f"be one action per player within {self.shape}", start)
        path, seen = [here], {here}
        for _ in range(rounds):
            before = here
            for i in range(self.players):
                at = (*here[:i], slice(None), *here[i + 1 :])
                row = self.payoffs[i][at]
                if row[here[i]] < row.max():
                    here = (*here[:i], int(row.argmax()), *here[i + 1 :])
                    path.append(here)
            if here == before:
                return path, True
            if here in seen:
                return path, False
            seen.add(here)
        return path, False

    def fictitious_play(self, rounds: int = 10_000) -> list[Strategy]:
        """Fictitious play: best responses to empirical frequencies; returns the frequencies.

        They converge to an equilibrium in zero-sum games (Robinson), in 2 x n games and in
        potential games, not in all. `gains` measures the distance.

        References: `robinson1951`.
        """
        counts = [np.zeros(m) for m in self.shape]
        for c in counts:
            c[0] = 1.0
        for _ in range(rounds):
            shares = [c / c.sum() for c in counts]
            replies = [int(self.values(i, shares).argmax()) for i in range(self.players)]
            for c, a in zip(counts, replies, strict=True):
                c[a] += 1
        return [c / c.sum() for c in counts]


def _values(table: ndarray, player: int, strategies: Sequence[Strategy]) -> ndarray:
    """Mean of a table over the strategies of all players but one."""
    table = np.moveaxis(table, player, 0)
    others = [np.asarray(s) for i, s in enumerate(strategies) if i != player]
    for s in reversed(others):
        table = table @ s
    return table


def support_enumeration(
    game: NormalForm, tolerance: float = 1e-9
) -> list[tuple[Strategy, Strategy]]:
    """All equilibria of a nondegenerate two-player game, by enumeration of supports.

    On supports of equal size each player makes the other indifferent: two linear systems. Floating
    point only rules candidates out; the others are solved again in exact arithmetic.

    Args:
        game: A game of two players.
        tolerance: As for `NormalForm.is_equilibrium`.

    References: `nisan2007` Algorithm 3.4.
    """
    A, B = _two(game)
    exact, other = whole(A), whole(B.T)
    A, B = _unit(A), _unit(B.T)
    found: list[tuple[Strategy, Strategy]] = []
    m, n = A.shape
    for size in range(1, min(m, n) + 1):
        for I in itertools.combinations(range(m), size):  # noqa: E741 - the book's letter
            for J in itertools.combinations(range(n), size):
                here, there = np.ix_(I, J), np.ix_(J, I)
                if _infeasible(A[here]) or _infeasible(B[there]):
                    continue
                y, x = exact_mixture(exact[here]), exact_mixture(other[there])
                if x is None or y is None:
                    continue
                pair = _spread_out(x, I, m), _spread_out(y, J, n)
                if game.is_equilibrium(pair, tolerance) and not any(
                    _same(pair[0], u) and _same(pair[1], v) for u, v in found
                ):
                    found.append(pair)
    return found


def _infeasible(block: Float[ndarray, "k k"]) -> bool:
    """Whether the mixture that equalises the rows certainly has a negative probability."""
    k = len(block)
    system = np.vstack([block[1:] - block[:1], np.ones(k)])
    # Rows are scaled to one size, so that one huge payoff does not dominate.
    size = np.abs(system).max(1, keepdims=True)
    if not size.all():
        return False
    system = system / size
    with np.errstate(all="ignore"):
        try:
            inverse = np.linalg.inv(system)
        except np.linalg.LinAlgError:
            return False
        solved = inverse[:, -1]
        doubt = 1e3 * k * np.finfo(float).eps * np.abs(inverse).sum(1).max() ** 2
    return bool((solved < -doubt).any())


def _spread_out(shares: Sequence[Any], support: Sequence[int], size: int) -> Strategy:
    out = np.zeros(size)
    out[list(support)] = [float(s) for s in shares]
    return out


def _same(x: Strategy, y: Strategy) -> bool:
    """Equality up to rounding, also for tiny probabilities."""
    return bool(np.allclose(x, y, rtol=1e-9, atol=0.0))


def lemke_howson(game: NormalForm, label: int = 0) -> tuple[Strategy, Strategy]:
    """One equilibrium of a two-player game by complementary pivoting, dropping `label` first.

    Ties are broken lexicographically, so degenerate games do not cycle. The floating-point result
    is checked; if it is not an equilibrium, the game is solved again in exact arithmetic.

    References: `lemke1964`; `nisan2007` section 3.4.
    """
    A, B = _two(game)
    m, n = A.shape
    require(0 <= label < m + n, "lemke_howson.label", f"lie between 0 and {m + n - 1}", label)
    found = _pivoted(_unit(A), _unit(B), label)
    if found is not None and game.is_equilibrium(found):
        return found
    exact = exact_pivots(A, B, label)
    if exact is None:
        raise InputError(
            f"lemke_howson must end within {PIVOTS:,} pivots; got a game where it did "
            "not. Drop another label, or use support_enumeration."
        )
    return _spread_out(exact[0], range(m), m), _spread_out(exact[1], range(n), n)


def _pivoted(
    A: Float[ndarray, "m n"], B: Float[ndarray, "m n"], label: int
) -> tuple[Strategy, Strategy] | None:
    """Result of floating-point pivots, unchecked; `None` if they fail."""
    m, n = A.shape
    # Payoffs above 0 keep the polytopes bounded; adding a constant changes no equilibrium.
    A, B = A + 1, B + 1
    # Rows: basic variables. Columns: labels 0..m+n-1, then the right-hand side.
    first = np.hstack([B.T, np.eye(n), np.ones((n, 1))])
    second = np.hstack([np.eye(m), A, np.ones((m, 1))])
    basis = [list(range(m, m + n)), list(range(m))]
    tables = [first, second]
    which = 0 if label < m else 1
    entering: int | None = label
    for _ in range(10_000):
        entering = _pivot(tables[which], basis[which], entering)
        if entering is None:
            return None
        if entering == label:
            x, y = np.zeros(m + n), np.zeros(m + n)
            x[basis[0]], y[basis[1]] = tables[0][:, -1], tables[1][:, -1]
            return _shares(x[:m]), _shares(y[m:])
        which = 1 - which
    return None


def _pivot(table: ndarray, basis: list[int], entering: int) -> int | None:
    """Bring `entering` into the basis; returns the label that leaves, if any."""
    column = table[:, entering]
    rows = np.flatnonzero(column > 1e-12)
    if not len(rows):
        return None
    # Right-hand side first, then the other columns: the lexicographic ratio test.
    ratios = np.hstack([table[rows, -1:], table[rows, :-1]]) / column[rows, None]
    order = np.lexsort(ratios.round(12).T[::-1])
    row = int(rows[order[0]])
    table[row] /= table[row, entering]
    for other in range(len(table)):
        if other != row:
            table[other] -= table[other, entering] * table[row]
    leaving, basis[row] = basis[row], entering
    return leaving


def _shares(weights: ndarray) -> Strategy:
    weights = weights.clip(0)
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))


def minimax(A: Float[ndarray, "m n"]) -> tuple[float, Strategy, Strategy]:
    r"""Value and optimal strategies of the zero-sum game A: $\max_x \min_y x^T A y$.

    If the linear programmes of the two players disagree, as they may for payoffs of very different
    size, `lemke_howson` is used instead.

    References: `vonneumann1928`; solved as a linear programme.
    """
    A = np.asarray(A, dtype=np.float64)
    require(A.ndim == 2 and A.size > 0, "minimax.A", "be a matrix", A.shape)
    game = NormalForm.zero_sum(A)
    scaled = _unit(A)
    x, y = _secure(scaled), _secure(1 - scaled.T)
    if x is None or y is None or not game.is_equilibrium((x, y)):
        x, y = lemke_howson(game)
    # Centred, because a far origin would lose precision.
    middle = float(np.median(A))
    return middle + float(x @ (A - middle) @ y), x, y


def _secure(A: Float[ndarray, "m n"]) -> Strategy | None:
    """The maximin strategy of the row player; `None` if the solver fails."""
    m, n = A.shape
    cost = np.zeros(m + 1)
    cost[m] = -1.0
    found: Any = linprog(
        cost,
        A_ub=np.hstack([-A.T, np.ones((n, 1))]),
        b_ub=np.zeros(n),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    return None if found.x is None else _shares(found.x[:m])


def _unit(A: Float[ndarray, "m n"]) -> Float[ndarray, "m n"]:
    """The payoffs scaled to 0 to about 1 by a power of two, which is exact."""
    with np.errstate(over="ignore"):
        low, wide = A.min(), A.max() - A.min()
        if not np.isfinite(wide):
            A, low, wide = A / 4, low / 4, A.max() / 4 - low / 4
    return np.ldexp(A - low, -np.frexp(wide)[1])


def _two(game: NormalForm) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"]]:
    require(game.players == 2, "game", "have two players", game.players)
    return game.payoffs[0].copy(), game.payoffs[1].copy()
