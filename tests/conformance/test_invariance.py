"""What must not matter: the unit, the origin, the order and the repetition of what is given.

The table has a row for every public name of `train.game`, `models.quantisation` and `laws`. In it
for each change stands a check, or in words why the mathematics has no such invariance.
"""

import importlib
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from allometry import laws
from allometry.models import quantisation
from allometry.train import game
from allometry.train.game import Game, NormalForm

CHANGES = ("scale", "shift", "order", "duplication")
UNITS = (2.0**-40, 1e-9, 1e7, 2.0**50)


def rng_of(seed):
    return np.random.default_rng(seed)


# Games: integers, so that a shift is exact.


def tables(seed):
    rng = rng_of(seed)
    m, n = rng.integers(1, 5, 2).tolist()
    return rng.integers(-9, 10, (2, m, n)).astype(float)


def profiles(found):
    return sorted(tuple(np.concatenate(pair).round(9).tolist()) for pair in found)


def every(A, B):
    return profiles(game.support_enumeration(NormalForm((A, B))))


def game_scale(seed):
    A, B = tables(seed)
    for unit in UNITS:
        assert every(unit * A, B / unit) == every(A, B)
        scaled = NormalForm((unit * A, unit * B))
        assert scaled.is_equilibrium(game.lemke_howson(scaled))
        assert scaled.pure_equilibria() == NormalForm((A, B)).pure_equilibria()
        value, x, y = game.minimax(unit * A)
        assert value == pytest.approx(unit * game.minimax(A)[0], rel=1e-9, abs=1e-9 * unit)
        assert NormalForm.zero_sum(A).is_equilibrium((x, y), 1e-8)


def game_shift(seed):
    A, B = tables(seed)
    for origin in (-1e6, 1e9):
        assert every(A + origin, B - origin) == every(A, B)
        moved = NormalForm((A + origin, B + origin))
        assert moved.is_equilibrium(game.lemke_howson(moved))
        assert NormalForm((A, B)).is_equilibrium(game.lemke_howson(moved))
        assert game.minimax(A + origin)[0] - origin == pytest.approx(game.minimax(A)[0], abs=1e-6)
    # What the other does is no reason of one's own: a constant for each of its actions.
    column = rng_of(seed + 1).integers(-9, 10, A.shape[1])
    assert every(A + column, B) == every(A, B)


def game_order(seed):
    A, B = tables(seed)
    rng = rng_of(seed + 1)
    rows, columns = rng.permutation(A.shape[0]), rng.permutation(A.shape[1])
    turned = game.support_enumeration(NormalForm((A[rows][:, columns], B[rows][:, columns])))
    back = [(x[rows.argsort()], y[columns.argsort()]) for x, y in turned]
    assert profiles(back) == every(A, B)
    value = game.minimax(A[rows][:, columns])[0]
    assert value == pytest.approx(game.minimax(A)[0], abs=1e-9)
    moved = NormalForm((A[rows][:, columns], B[rows][:, columns]))
    x, y = game.lemke_howson(moved)
    assert NormalForm((A, B)).is_equilibrium((x[rows.argsort()], y[columns.argsort()]))


def game_duplication(seed):
    """An action listed twice changes no value, and there still is an equilibrium to be found."""
    A, B = tables(seed)
    twice = np.append(A, A[:1], 0), np.append(B, B[:1], 0)
    value = game.minimax(twice[0])[0]
    assert value == pytest.approx(game.minimax(A)[0], abs=1e-9)
    x, y = game.lemke_howson(NormalForm(twice))
    x = np.append(x[0] + x[-1], x[1:-1])
    assert NormalForm((A, B)).is_equilibrium((x, y))


def bowls(unit, origin=0.0):
    """Two players, each in a bowl that the other tilts; at rest where both are at the origin."""

    def cost(i):
        return lambda p: unit * ((p[i] - origin) ** 2 + (p[0] - origin) * (p[1] - origin)).sum()

    return Game((cost(0), cost(1)))


def verdict(made, at):
    found = game.local_nash(made, at)
    return found.stationary, found.nash, found.strict, found.attracting


def nash_scale(seed):
    start = rng_of(seed).normal(size=2)
    for unit in (1e-12, 1e9):
        at, off = (torch.zeros(1), torch.zeros(1)), tuple(torch.tensor([v]) for v in start)
        assert verdict(bowls(unit), at) == verdict(bowls(1.0), at) == (True,) * 4
        assert verdict(bowls(unit), off) == verdict(bowls(1.0), off)
        torch.testing.assert_close(
            game.jacobian(bowls(unit), off) / unit, game.jacobian(bowls(1.0), off)
        )


def nash_shift(seed):
    origin = float(rng_of(seed).integers(-1000, 1000))
    at = (torch.full((1,), origin), torch.full((1,), origin))
    assert verdict(bowls(1.0, origin), at) == (True,) * 4
    zero = (torch.zeros(1), torch.zeros(1))
    torch.testing.assert_close(
        game.jacobian(bowls(1.0, origin), at), game.jacobian(bowls(1.0), zero)
    )


def update_scale(seed):
    """A cost in another unit, stepped at a rate in its inverse, goes the same way."""
    start = tuple(torch.tensor([v]) for v in rng_of(seed).normal(size=2))
    kinds = (game.simultaneous, game.alternating, game.extragradient, game.optimistic)
    for kind in (*kinds, lambda lr: game.unrolled(lr, 2)):
        one = kind(0.1)(bowls(1.0), start, None)[0]
        other = kind(0.1 / 4096)(bowls(4096.0), start, None)[0]
        torch.testing.assert_close(one, other)


def update_shift(seed):
    start = tuple(torch.tensor([v]) for v in rng_of(seed).integers(-5, 5, 2).astype(float))
    kinds = (game.simultaneous, game.alternating, game.extragradient, game.optimistic)
    for kind in (*kinds, lambda lr: game.unrolled(lr, 2)):
        one = kind(0.125)(bowls(1.0), start, None)[0]
        moved = kind(0.125)(bowls(1.0, 64.0), tuple(p + 64 for p in start), None)[0]
        torch.testing.assert_close(tuple(p + 64 for p in one), moved)


# Quantisers: multiples of 1/64, exact at every offset tried.


def sample(seed, n=60, d=1):
    return rng_of(seed).integers(-500, 500, (n, d)) / 64


def scalar_scale(seed):
    x = sample(seed)[:, 0]
    one = quantisation.lloyd_max_sample(x, 5)
    for unit in UNITS:
        other = quantisation.lloyd_max_sample(unit * x, 5)
        assert other.distortion == pytest.approx(unit**2 * one.distortion, rel=1e-9)


def scalar_shift(seed):
    x = sample(seed)[:, 0]
    one, other = quantisation.lloyd_max_sample(x, 5), quantisation.lloyd_max_sample(x + 2.0**30, 5)
    assert other.distortion == pytest.approx(one.distortion, rel=1e-9)
    assert (other.encode(x + 2.0**30) == one.encode(x)).all()


def scalar_order(seed):
    x = sample(seed)[:, 0]
    one, other = quantisation.lloyd_max_sample(x, 5), quantisation.lloyd_max_sample(x[::-1], 5)
    np.testing.assert_array_equal(one.levels, other.levels)


def scalar_duplication(seed):
    x = sample(seed)[:, 0]
    one, other = (
        quantisation.lloyd_max_sample(x, 5),
        quantisation.lloyd_max_sample(np.tile(x, 3), 5),
    )
    assert other.distortion == pytest.approx(one.distortion, rel=1e-9)


@cache
def bell(unit, origin):
    def pdf(x):
        return stats.norm.pdf((x - origin) / unit)

    made = quantisation.lloyd_max(pdf, 4, origin - 8 * unit, origin + 8 * unit, tolerance=1e-8)
    return made.distortion / unit**2


def density_scale(_):
    for unit in (2.0**-20, 2.0**30):
        assert bell(unit, 0.0) == pytest.approx(bell(1.0, 0.0), rel=1e-6)


def density_shift(_):
    assert bell(1.0, 2.0**20) == pytest.approx(bell(1.0, 0.0), rel=1e-6)


def exact_nearest(x, codes):
    return (x.double()[:, None] - codes.double()).square().sum(2)


def vectors(seed):
    return torch.from_numpy(sample(seed, 80, 2)).float()


def nearest_scale(seed):
    x = vectors(seed)
    for unit in (2.0**-40, 2.0**40):
        index = quantisation.nearest(unit * x, unit * x[:12])[0]
        far = exact_nearest(x, x[:12])
        assert (far.gather(1, index[:, None])[:, 0] == far.min(1).values).all()


def nearest_shift(seed):
    x = vectors(seed)
    for origin in (1024.0, -65536.0):
        index = quantisation.nearest(x + origin, x[:12] + origin)[0]
        far = exact_nearest(x, x[:12])
        assert (far.gather(1, index[:, None])[:, 0] == far.min(1).values).all()


def nearest_order(seed):
    x = vectors(seed)
    turn = torch.from_numpy(rng_of(seed).permutation(80))
    squares = quantisation.nearest(x, x[:12])[1]
    assert torch.equal(quantisation.nearest(x[turn], x[:12])[1], squares[turn])
    assert torch.equal(quantisation.nearest(x, x[:12].flip(0))[1], squares)


def nearest_duplication(seed):
    x = vectors(seed)
    codes = torch.cat([x[:12], x[:12]])
    assert torch.equal(quantisation.nearest(x, codes)[1], quantisation.nearest(x, x[:12])[1])


def lbg_scale(seed):
    x = vectors(seed)
    one = quantisation.lbg(x, 6).distortion
    for unit in (2.0**-30, 2.0**30):
        assert quantisation.lbg(unit * x, 6).distortion == pytest.approx(unit**2 * one, rel=1e-5)


def lbg_shift(seed):
    """Other digits of the mean may lead to another optimum, seldom a much poorer one."""
    x = vectors(seed)
    ratio = (
        quantisation.lbg(x + 1024, 6, restarts=4).distortion
        / quantisation.lbg(x, 6, restarts=4).distortion
    )
    assert 0.7 < ratio < 1.4


def bound_scale(seed):
    h, unit = float(rng_of(seed).normal()), 37.0
    moved = quantisation.shannon_bound(h + np.log(unit), 2.0)
    assert moved == pytest.approx(unit**2 * quantisation.shannon_bound(h, 2.0))


def gain_scale(_):
    assert quantisation.space_filling_gain(0.3 * 9.0, 8, 5.0 * 9.0, 2) == pytest.approx(
        quantisation.space_filling_gain(0.3, 8, 5.0, 2)
    )


# Laws.


def runs(seed, n=9):
    rng = rng_of(seed)
    N = np.geomspace(1e4, 1e7, n)
    return N, (1.5 + 40 / N**0.3) * np.exp(0.003 * rng.normal(size=n))


@cache
def law(seed, unit=1.0, loss_unit=1.0, turned=False, again=0):
    N, y = runs(seed)
    order = rng_of(seed + 1).permutation(len(N)) if turned else np.arange(len(N))
    order = np.append(order, order[:again])
    data = {"N": unit * N[order], "loss": loss_unit * y[order]}
    return laws.fit(data, "floor", bootstrap=40)


def fit_scale(seed):
    one = law(seed)
    for unit in (2.0**-10, 2.0**20):
        assert law(seed, unit).params["alpha"].value == pytest.approx(
            one.params["alpha"].value, rel=1e-3
        )
        there = law(seed, unit).predict(N=1e8 * unit).item()
        assert there.value == pytest.approx(one.predict(N=1e8).item().value, rel=1e-3)
        at = law(seed, unit).solve(1.8, "N").value / unit
        assert at == pytest.approx(one.solve(1.8, "N").value, rel=0.02)
    scaled = law(seed, 1.0, 8.0)
    assert scaled.params["E"].value == pytest.approx(8 * one.params["E"].value, rel=1e-3)
    top = one.predict(N=1e8).item().interval[1]
    assert scaled.predict(N=1e8).item().hi == pytest.approx(8 * top, rel=1e-2)


def fit_order(seed):
    one, other = law(seed), law(seed, turned=True)
    for name, value in one.params.items():
        assert other.params[name].value == pytest.approx(value.value, rel=1e-3)


def fit_duplication(seed):
    one, other = law(seed), law(seed, again=3)
    assert other.n == one.n
    assert other.params == one.params


def pairs(seed, n=15):
    rng = rng_of(seed)
    x = np.exp(rng.uniform(0, 8, n))
    return x, 3 * x**0.7 * np.exp(0.1 * rng.normal(size=n))


def line_scale(seed):
    x, y = pairs(seed)
    for method in ("ols", "sma", "deming", "theil-sen"):
        one = laws.allometry(x, y, method=method)
        other = laws.allometry(1e9 * x, 1e-7 * y, method=method)
        assert other.exponent.value == pytest.approx(one.exponent.value, rel=1e-9)
        assert other.exponent.interval == pytest.approx(one.exponent.interval, rel=1e-6)
        assert other.r2 == pytest.approx(one.r2, rel=1e-9)
        tested = [laws.isometry(a * x, b * y, method=method) for a, b in ((1, 1), (1e9, 1e-7))]
        assert tested[1] == pytest.approx(tested[0], rel=1e-6, abs=1e-12)
    groups = {"a": (x, y), "b": pairs(seed + 1)}
    moved = {k: (1e6 * u, 1e-5 * v) for k, (u, v) in groups.items()}
    (one, p), (other, q) = laws.common_exponent(groups), laws.common_exponent(moved)
    assert other.value == pytest.approx(one.value, rel=1e-9)
    assert q == pytest.approx(p, rel=1e-6, abs=1e-12)


def line_order(seed):
    x, y = pairs(seed)
    turn = rng_of(seed + 1).permutation(len(x))
    for method in ("ols", "sma", "deming", "theil-sen"):
        one = laws.allometry(x, y, method=method).exponent
        other = laws.allometry(x[turn], y[turn], method=method).exponent
        assert other.interval == pytest.approx(one.interval, rel=1e-9)
    groups = {"a": (x, y), "b": pairs(seed + 1)}
    back = dict(reversed(groups.items()))
    ours, theirs = laws.common_exponent(groups), laws.common_exponent(back)
    assert theirs[0].value == pytest.approx(ours[0].value, rel=1e-9)


def training_curve(seed, n=60):
    steps = np.arange(1, n + 1) * 50.0
    noise = np.exp(0.003 * rng_of(seed).normal(size=n))
    return steps, (2 + 30 * steps**-0.5) * noise


def forecast_scale(seed):
    steps, losses = training_curve(seed)
    one = laws.forecast(steps, losses, 2 * steps[-1])
    other = laws.forecast(8 * steps, 4 * losses, 16 * steps[-1])
    assert other.value == pytest.approx(4 * one.value, rel=1e-6)
    assert other.interval == pytest.approx([4 * end for end in one.interval], rel=1e-6)


def recipe_rows(seed, unit=1.0, order=None):
    rng = rng_of(seed)
    C = np.repeat(np.logspace(17, 20, 4), 6)
    recipe = np.tile([0, 1], 12)
    loss = (1.8 + 900 * (C * (1 + 0.5 * recipe)) ** -0.15) * np.exp(rng.normal(0, 0.004, 24))
    frame = {"recipe": recipe, "C": unit * C, "loss": loss, "seed": np.arange(24) // 2 % 3}
    order = np.arange(24) if order is None else order
    return laws.compare_recipes({k: v[order] for k, v in frame.items()}, at=unit * 1e21)


def same_verdict(one, other):
    assert one.winner == other.winner
    # Posterior draws differ by the last digits of the mode they are drawn around.
    assert other.multiplier.value == pytest.approx(one.multiplier.value, rel=0.02)
    assert other.rivals[0].e_value == pytest.approx(one.rivals[0].e_value, rel=1e-3)


def recipes_scale(seed):
    for unit in UNITS:
        same_verdict(recipe_rows(seed), recipe_rows(seed, unit))


def recipes_order(seed):
    same_verdict(recipe_rows(seed), recipe_rows(seed, order=rng_of(seed).permutation(24)))


def pool_rows(seed, scale=1.0, order=None):
    rng = rng_of(seed)
    N = 10 ** rng.uniform(6, 9, 12)
    order = np.arange(12) if order is None else order
    return order[
        laws.choose_runs(
            {"N": N[order], "cost": scale * N[order]},
            None,
            variables=["N"],
            target={"N": [1e10]},
            budget=scale * 0.4 * N.sum(),
        )
    ]


def pool_scale(seed):
    assert list(pool_rows(seed)) == list(pool_rows(seed, scale=2.0**-40))


def pool_order(seed):
    assert set(pool_rows(seed)) == set(pool_rows(seed, order=rng_of(seed + 1).permutation(12)))


VALUE = "It is a value or a description, not a routine."
LOGS = "Sizes and losses have a true zero: a shift of them is another law."
MORE = "More points are more evidence: they narrow the interval."
MANY = "It answers with the laws of `fit`, one for each table."
LAW = "It takes a fitted law, whose invariances are those of `fit`."
ASKED = "It takes numbers that were published, with no data."
STEPS = "A step takes places, not a sample: there is nothing to reorder or repeat."
TRAINED = "It trains on random batches: checked by the tests of games, not by an identity."
TIME = "Points along one training are in order of time, one at each step."
TASK = "Checked by its own tests; its curve is a loss in nats, in the unit that it is given."


def row(scale, shift, order, duplication):
    return dict(zip(CHANGES, (scale, shift, order, duplication), strict=True))


def no(reason):
    return row(reason, reason, reason, reason)


SOLVER = row(game_scale, game_shift, game_order, game_duplication)
STEP = row(update_scale, update_shift, STEPS, STEPS)
LINE = row(line_scale, LOGS, line_order, MORE)
TABLE = {
    "train.game": {
        "NormalForm": SOLVER,
        "lemke_howson": SOLVER,
        "minimax": SOLVER,
        "support_enumeration": row(
            game_scale,
            game_shift,
            game_order,
            "A repeated action makes the game degenerate: it has a continuum of equilibria.",
        ),
        "Game": STEP,
        "LocalNash": no(VALUE),
        "local_nash": row(nash_scale, nash_shift, STEPS, STEPS),
        "jacobian": row(nash_scale, nash_shift, STEPS, STEPS),
        **dict.fromkeys(
            ("simultaneous", "alternating", "extragradient", "optimistic", "unrolled"), STEP
        ),
        "dirac": no("A game of two numbers with its data at 0: there is nothing to change."),
        **dict.fromkeys(("GANSettings", "GANTraining", "History"), no(TRAINED)),
    },
    "models.quantisation": {
        "ScalarQuantiser": no(VALUE),
        "VectorQuantiser": no(VALUE),
        "lloyd_max": row(density_scale, density_shift, *["A density has no rows."] * 2),
        "lloyd_max_sample": row(scalar_scale, scalar_shift, scalar_order, scalar_duplication),
        "nearest": row(nearest_scale, nearest_shift, nearest_order, nearest_duplication),
        "lbg": row(lbg_scale, lbg_shift, *["A local optimum may be another one."] * 2),
        "shannon_bound": row(bound_scale, *["A shift changes no entropy, which it takes."] * 3),
        "space_filling_gain": row(gain_scale, *["It takes three numbers, no data."] * 3),
    },
    "laws": {
        "fit": row(fit_scale, LOGS, fit_order, fit_duplication),
        "extrapolate": row(fit_scale, LOGS, fit_order, fit_duplication),
        "fit_many": no(MANY),
        "choose_family": no(MANY),
        "transfer": no(MANY),
        **dict.fromkeys(
            ("forecast", "watch", "Watcher", "optuna_pruner"),
            row(forecast_scale, LOGS, TIME, TIME),
        ),
        "choose_runs": row(pool_scale, LOGS, pool_order, "A repeated candidate is one more run."),
        "compare_recipes": row(
            recipes_scale, LOGS, recipes_order, "A repeated run is one more run of its size."
        ),
        "allocations": no(MANY),
        **dict.fromkeys(("allometry", "isometry", "common_exponent"), LINE),
        **dict.fromkeys(
            ("budget", "crossing_of", "identified", "load", "next_runs", "profile", "replay"),
            no(LAW),
        ),
        **dict.fromkeys(
            (
                *("branching", "compare", "consistent", "hardware", "kaplan", "mammals"),
                *("memory", "published", "small_scale"),
            ),
            no(ASKED),
        ),
        **dict.fromkeys(("fit_schedule", "task_curve"), no(TASK)),
        **dict.fromkeys(
            [
                "Allometry",
                "LossCurve",
                "Design",
                "FORMS",
                "FamilyChoice",
                "Form",
                "LIBRARY",
                "Law",
                "MultiPowerLaw",
                "Plan",
                "PoolDesign",
                "Replay",
                "RecipeComparison",
                "TaskCurve",
                "TrainingState",
                "VariableLaw",
            ],
            no(VALUE),
        ),
    },
}
CHECKS = sorted(
    {
        c
        for package in TABLE.values()
        for kinds in package.values()
        for c in kinds.values()
        if callable(c)
    },
    key=lambda c: c.__name__,
)


@pytest.mark.parametrize("package", TABLE)
def test_every_public_name_has_a_row(package):
    assert set(TABLE[package]) == set(importlib.import_module(f"allometry.{package}").__all__)


def test_every_row_has_a_check_or_a_reason_for_each_change():
    for kinds in (kinds for package in TABLE.values() for kinds in package.values()):
        assert tuple(kinds) == CHANGES
        assert all(callable(c) or c.endswith(".") for c in kinds.values())


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_what_must_not_matter_does_not(check, seed):
    check(seed)
