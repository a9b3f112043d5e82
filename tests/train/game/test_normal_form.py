"""Equilibria against known ones, against one another, and against their definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry._core.errors import InputError
from allometry.train.game import (
    NormalForm,
    lemke_howson,
    minimax,
    normal_form,
    support_enumeration,
)

LECTURE = NormalForm.of([[(4, 2), (2, 3)], [(6, -1), (0, 0)]])
PRISONERS = NormalForm.of([[(-1, -1), (-3, 0)], [(0, -3), (-2, -2)]])
SEXES = NormalForm.of([[(3, 2), (0, 0)], [(0, 0), (2, 3)]])
ROCK = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def test_the_bimatrix_of_the_docs():
    """The second column is better in both rows (3 > 2, 0 > -1); then the first row is (2 > 0)."""
    assert LECTURE.pure_equilibria() == [(0, 1)]
    ((x, y),) = support_enumeration(LECTURE)
    assert x.tolist() == [1, 0]
    assert y.tolist() == [0, 1]
    assert LECTURE.expected((x, y)).tolist() == [2, 3]


def test_known_games():
    assert PRISONERS.pure_equilibria() == [(1, 1)]
    assert SEXES.pure_equilibria() == [(0, 0), (1, 1)]
    mixed = [e for e in support_enumeration(SEXES) if e[0].max() < 1]
    # The closed form: each plays the own favourite with 3/5.
    np.testing.assert_allclose(np.concatenate(mixed[0]), [0.6, 0.4, 0.4, 0.6])
    assert len(support_enumeration(SEXES)) == 3


def test_rock_paper_scissors():
    value, x, y = minimax(ROCK)
    assert value == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose([x, y], 1 / 3, atol=1e-12)
    found = NormalForm.zero_sum(ROCK).fictitious_play(20_000)
    np.testing.assert_allclose(found, 1 / 3, atol=0.02)
    path, rests = NormalForm.zero_sum(ROCK).best_response_path((0, 0))
    assert not rests
    assert len(path) > 3


def test_best_replies_rest_at_the_prisoners_equilibrium():
    path, rests = PRISONERS.best_response_path((0, 0))
    assert rests
    assert path[-1] == (1, 1)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 4), n=st.integers(1, 4))
def test_solvers_agree_on_random_games(seed, m, n):
    rng = np.random.default_rng(seed)
    game = NormalForm((rng.normal(size=(m, n)), rng.normal(size=(m, n))))
    every = support_enumeration(game)
    # Nondegenerate games, as random ones are, have an odd number of equilibria (Wilson).
    assert len(every) % 2 == 1
    for x, y in every:
        assert (game.gains((x, y)) < 1e-9).all()
    for label in range(m + n):
        x, y = lemke_howson(game, label)
        assert any(np.allclose(x, u) and np.allclose(y, v) for u, v in every)
    pure = {(int(x.argmax()), int(y.argmax())) for x, y in every if x.max() == y.max() == 1}
    assert set(game.pure_equilibria()) == pure


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 5), n=st.integers(1, 5))
def test_minimax_is_maximin_and_an_equilibrium(seed, m, n):
    A = np.random.default_rng(seed).normal(size=(m, n))
    value, x, y = minimax(A)
    assert NormalForm.zero_sum(A).is_equilibrium((x, y), 1e-7)
    assert x @ A @ y == pytest.approx(value, abs=1e-7)
    u, v = lemke_howson(NormalForm.zero_sum(A))
    assert u @ A @ v == pytest.approx(value, abs=1e-7)


def test_lemke_howson_does_not_cycle_on_a_degenerate_game():
    game = NormalForm.of([[(0, 0), (0, 0)], [(0, 0), (0, 0)]])
    assert all(game.is_equilibrium(lemke_howson(game, k)) for k in range(4))


def test_three_players():
    """Majority: all win by agreeing."""
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = table[1, 1, 1] = 1
    game = NormalForm((table, table, table))
    # If two disagree, no single player can repair it only if the third agrees with neither.
    assert (0, 0, 0) in game.pure_equilibria()
    assert (1, 1, 1) in game.pure_equilibria()
    half = [np.array([0.5, 0.5])] * 3
    assert game.expected(half).tolist() == [0.25] * 3
    assert game.is_equilibrium(half)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NormalForm((np.ones((2, 2)), np.ones((2, 3)))), "one table per player"),
        (lambda: NormalForm((np.full((2, 2), np.nan),) * 2), "be finite"),
        (lambda: lemke_howson(PRISONERS, 9), "lie between 0 and 3"),
        (lambda: support_enumeration(NormalForm((np.ones(2),))), "have two players"),
        (lambda: PRISONERS.best_response_path((0, 7)), "one action per player"),
        (lambda: minimax(np.ones((0, 3))), "be a matrix"),
    ],
)
def test_bad_games_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("entry", [-1e6, 1e6, -1e12, 1e12, 1e300])
def test_one_payoff_out_of_all_proportion(entry):
    """Pivots in floating point ended at other points in 14 of 100 such games, or not at all."""
    rng = np.random.default_rng(0)
    for k in range(15):
        m, n = rng.integers(2, 6, 2).tolist()
        A, B = rng.normal(size=(2, m, n))
        A[k % m, k % n] = entry
        game = NormalForm((A, B))
        every = support_enumeration(game)
        assert len(every) % 2 == 1
        for label in (0, m + n - 1):
            x, y = lemke_howson(game, label)
            # Absolute, in the unit of the ordinary payoffs.
            assert game.gains((x, y)).max() <= 1e-9
            assert any(np.allclose(x, u) and np.allclose(y, v) for u, v in every)
        value, x, y = minimax(A)
        assert (A @ y).max() - (x @ A).min() <= 1e-8
        assert (x @ A).min() - 1e-8 <= value <= (A @ y).max() + 1e-8


def test_a_small_gain_is_not_hidden_by_a_huge_payoff():
    game = NormalForm.of([[(0, 0), (-1e12, 0)], [(1e-3, 0), (0, 0)]])
    first, second = np.eye(2)
    assert not game.is_equilibrium((first, first))
    assert game.is_equilibrium((second, first))


@pytest.mark.parametrize("unit", [1e-300, 1e-10, 1.0, 1e8, 1e150])
def test_a_game_has_as_many_equilibria_in_any_unit(unit):
    found = support_enumeration(NormalForm(tuple(unit * t for t in SEXES.payoffs)))
    assert len(found) == 3
    for pair, known in zip(found, support_enumeration(SEXES), strict=True):
        np.testing.assert_allclose(np.concatenate(pair), np.concatenate(known))


def test_exact_pivots_are_the_fallback(monkeypatch):
    """Where floating point is stuck, fractions still end at an equilibrium, also of ties."""
    monkeypatch.setattr(normal_form, "_pivoted", lambda A, B, label: None)
    rng = np.random.default_rng(1)
    for _ in range(60):
        m, n = rng.integers(1, 6, 2).tolist()
        # Small whole numbers: many games with ties.
        game = NormalForm(tuple(rng.integers(0, 3, (2, m, n)).astype(float)))
        for label in range(m + n):
            assert game.gains(lemke_howson(game, label)).max() <= 1e-15 * 10


def test_the_unit_of_payoff_does_not_matter_in_a_degenerate_game():
    """Rounding of 1e-9 times a payoff made a probability of 0 negative: one was lost."""
    A = np.array([[6, 7, -8, 6], [8, -5, -6, -8], [6, 8, 2, 2], [5, -9, 6, 8.0]])
    B = np.array([[-7, 9, 7, -4], [0, 6, 8, -8], [3, -1, -3, 6], [4, -2, 7, 0.0]])

    def found(a, b):
        pairs = support_enumeration(NormalForm((a, b)))
        return sorted(tuple(np.concatenate(pair).round(9).tolist()) for pair in pairs)

    assert len(found(A, B)) == 8
    assert found(1e-9 * A, B / 1e-9) == found(A, B)
