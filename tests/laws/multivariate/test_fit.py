"""Laws in any variables: known answers, groups, intervals, optima, designs."""

from typing import Any, cast

import numpy as np
import pytest

from allometry import InputError, laws
from allometry.laws.multivariate import campaigns
from allometry.laws.multivariate.expression_forms import ExpressionForm, Link
from allometry.laws.multivariate.form_library import LIBRARY


def grid(rng, noise=0.0):
    N, X = (a.reshape(-1) for a in np.meshgrid(np.logspace(7, 9, 6), [1.0, 4, 16, 64]))
    loss = 1.6 + 30 / N**0.2 * X**-0.06
    return {"N": N, "X": X, "loss": loss * np.exp(noise * rng.normal(size=len(N)))}


def test_an_expression_recovers_its_parameters():
    data = grid(np.random.default_rng(0))
    law = laws.fit(data, "E + A/(N^alpha*X^beta)", variables=["N", "X"])
    found = {name: e.value for name, e in law.params.items()}
    assert found == pytest.approx({"E": 1.6, "A": 30, "alpha": 0.2, "beta": 0.06}, rel=1e-3)


def test_an_expression_without_variables_takes_them_from_the_columns():
    D = np.logspace(3, 7, 12)
    law = laws.fit({"D": D, "loss": 2 + 50 / D**0.4}, "E + B/D^beta")
    assert law.params["beta"].value == pytest.approx(0.4, rel=1e-3)


def test_a_python_function_of_any_variables():
    data = grid(np.random.default_rng(0))

    def mine(N, X, E=1.0, A=10.0, a=0.3, b=0.1):
        return E + A / (N**a * X**b)

    law = laws.fit(data, mine, variables=["N", "X"])
    assert law.params["a"].value == pytest.approx(0.2, rel=1e-2)


@pytest.mark.parametrize(
    ("name", "truth", "columns"),
    [
        ("fine_tuned", {"A": 8.0, "alpha": 0.1, "beta": 0.12, "E": 1.1},
         {"X": np.logspace(8, 10, 4), "D": np.logspace(3, 6, 6)}),
        ("vocabulary", {"A": 40.0, "alpha": 0.25, "B": 3.0, "nu": 0.3, "C": 90.0, "beta": 0.28,
                        "E": 1.5},
         {"N": np.logspace(7, 9, 4), "V": np.logspace(3.5, 5, 4), "D": np.logspace(8.5, 11, 5)}),
        ("parallel_streams", {"A": 1e6, "k": 0.4, "alpha": 0.2, "E": 1.0},
         {"N": np.logspace(8.5, 9.7, 6), "P": np.array([1.0, 2, 4, 8])}),
        ("routed_bilinear", {"d": 2.2, "a": -0.08, "b": -0.12, "c": 0.004},
         {"N": np.logspace(7, 9.2, 6), "X": np.array([1.0, 4, 16, 64, 256])}),
        ("pass_at_k", {"a": 1.4, "b": 0.4}, {"k": np.logspace(0, 4, 12)}),
    ],
)  # fmt: skip
def test_published_forms_recover_their_parameters(name, truth, columns):
    mesh = np.meshgrid(*columns.values(), indexing="ij")
    data = {k: m.reshape(-1) for k, m in zip(columns, mesh, strict=True)}
    form = ExpressionForm(name, LIBRARY[name].text, list(columns), Link(True, 1.0))
    natural = np.array([[truth[letter] for letter in form.letters]])
    data["loss"] = form.response(natural, np.stack([data[v] for v in form.variables]))[0]
    law = laws.fit(data, name, variables=list(columns))
    assert law(**data) == pytest.approx(data["loss"], rel=2e-4)
    exponents = [p for p in truth if p in ("alpha", "beta", "nu", "k", "a", "b")]
    for letter in exponents:
        assert law.params[letter].value == pytest.approx(truth[letter], rel=0.05), letter


def test_limits_reduce_one_form_to_another():
    """Without sparsity the pruned law is additive; with many bits so is the law of precision."""
    N, D = np.logspace(7, 9, 5), np.logspace(9, 11, 5)
    additive = 1.5 + 200.0 / N**0.3 + 400.0 / D**0.3
    pruned = ExpressionForm("p", LIBRARY["pruned"].text, ["N", "D", "S"], Link(True, 1.0))
    given = {"a": 150.0, "b": 0.7, "c": 50.0, "alpha": 0.3, "B": 400.0, "beta": 0.3, "E": 1.5}
    at = {"N": N, "D": D, "S": np.zeros(5)}
    natural = np.array([[given[k] for k in pruned.letters]])
    y = pruned.response(natural, np.stack([at[v] for v in pruned.variables]))[0]
    assert y == pytest.approx(additive, rel=1e-12)
    bits = ExpressionForm("b", LIBRARY["precision"].text, ["N", "D", "P"], Link(True, 1.0))
    given = {"A": 200.0, "alpha": 0.3, "B": 400.0, "beta": 0.3, "E": 1.5, "p": 2.0}
    at["P"] = np.full(5, 400.0)
    natural = np.array([[given[k] for k in bits.letters]])
    y = bits.response(natural, np.stack([at[v] for v in bits.variables]))[0]
    assert y == pytest.approx(additive, rel=1e-12)


def test_auto_predicts_larger_runs_within_its_band():
    data = grid(np.random.default_rng(1), noise=0.003)
    law = laws.fit(data, variables=["N", "X"], cost="N*X")
    truth = 1.6 + 30 / 4e9**0.2 * 256**-0.06
    lo, mid, hi = law.band(N=4e9, X=256.0)
    assert lo < truth < hi
    assert float(mid) == pytest.approx(truth, rel=0.02)
    assert law.to_dict()["variables"] == {"N": "scale", "X": "scale"}


def test_a_response_of_both_signs():
    rng = np.random.default_rng(2)
    D = np.logspace(6, 9, 30)
    data = {"D": D, "gain": -3 + 4000 / D**0.5 + 0.01 * rng.normal(size=30)}
    law = laws.fit(data, variables=["D"], response="gain")
    assert float(law(D=1e10)) == pytest.approx(-3 + 0.04, abs=0.1)


def test_a_small_group_borrows_strength_from_others():
    rng = np.random.default_rng(3)
    N = np.logspace(6, 9, 10)
    rows = [("abcd"[g], n, 1.5 + 0.1 * g + (30 + 5 * g) / n**0.25) for g in range(4) for n in N]
    rows = [r for r in rows if r[0] != "d" or r[1] < 3e7]
    data = {
        "family": [r[0] for r in rows],
        "N": [r[1] for r in rows],
        "loss": [r[2] * np.exp(0.002 * rng.normal()) for r in rows],
    }
    law = laws.fit(data, variables=["N", "family"])
    assert law.roles["family"] == "group"
    truth = 1.8 + 45 / 1e9**0.25
    lo, mid, hi = law.band(N=1e9, family="d")
    assert lo < truth < hi
    assert float(mid) == pytest.approx(truth, rel=0.05)


def test_the_optimum_of_a_bowl_that_moves_with_scale():
    rng = np.random.default_rng(4)
    N, lr = (a.reshape(-1) for a in np.meshgrid(np.logspace(7, 9, 5), np.logspace(-4, -2, 7)))
    best = 1e-3 * (N / 1e8) ** -0.3
    loss = 1.8 + 40 / N**0.22 + 0.03 * np.log(lr / best) ** 2
    data = {"N": N, "lr": lr, "loss": loss * np.exp(0.001 * rng.normal(size=len(N)))}
    law = laws.fit(data, variables=["N", "lr"])
    assert law.roles["lr"] == "tuned"
    found = law.optimum(over=["lr"], N=1e8)
    assert found.at["lr"].covers(1e-3)
    assert found.at["lr"].value == pytest.approx(1e-3, rel=0.25)
    assert min(found.given_up["lr"]) > 0


def test_plans_by_a_cost_of_ones_own():
    N, D = (a.reshape(-1) for a in np.meshgrid(np.logspace(7, 9, 5), np.logspace(8, 10.5, 5)))
    data = {"N": N, "D": D, "loss": 1.7 + 400 / N**0.34 + 410 / D**0.28}
    law = laws.fit(data, "E + A/N^alpha + B/D^beta", variables=["N", "D"], cost="6*N*D")
    found = law.optimum(over=["N", "D"], budget=6e18)
    assert 6 * found.at["N"].value * found.at["D"].value <= 6.0001e18
    G = (0.34 * 400 / (0.28 * 410)) ** (1 / 0.62)
    assert found.at["N"].value == pytest.approx(G * 1e18 ** (0.28 / 0.62), rel=0.15)


def test_chosen_runs_keep_the_budget_and_beat_random_ones():
    rng = np.random.default_rng(5)
    N, X = (a.reshape(-1) for a in np.meshgrid(np.logspace(6, 9, 7), [1.0, 2, 4, 8, 16]))
    loss = (1.5 + 20 / N**0.2 * X**-0.1) * np.exp(0.003 * rng.normal(size=len(N)))
    pool, cost = {"N": N, "X": X, "cost": N * X}, N * X
    target = {"N": np.full(4, 4e9), "X": np.array([4.0, 8, 16, 32])}
    truth = 1.5 + 20 / 4e9**0.2 * target["X"] ** -0.1
    budget = 0.05 * cost.sum()

    def error(rows):
        data = {"N": N[rows], "X": X[rows], "loss": loss[rows]}
        return np.abs(np.log(laws.fit(data, variables=["N", "X"])(**target) / truth)).mean()

    rows = laws.choose_runs(pool, None, variables=["N", "X"], target=target, budget=budget)
    assert cost[rows].sum() <= budget
    assert len(set(rows)) == len(rows) >= 5
    others = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(N))
        left, taken = budget, []
        for i in order:
            if cost[i] <= left:
                left -= cost[i]
                taken.append(i)
        others.append(error(np.array(taken)))
    assert error(np.array(rows)) < np.mean(others)


def test_the_choice_after_few_runs_depends_on_them():
    """Below the number of runs of a fit, the priors are conditioned on what has been run."""
    N = np.array([5.0e8, 5.1e8, 5.2e8, 9e8])
    pool = {"N": N, "cost": N}
    goal = {"N": np.array([5e9])}

    def first(observed: dict | None) -> int:
        return laws.choose_runs(pool, observed, variables=["N"], target=goal, budget=2e9, most=1)[
            0
        ]

    # Three runs of nearly one size leave the slope open: the run of another size comes next.
    assert first({"N": N[:3], "loss": np.array([2.6, 2.59, 2.58])}) == 3


def test_a_replay_takes_runs_one_after_another(monkeypatch):
    """Each choice sees the runs before it; later ones are taken in shares of a fifth."""
    seen: list[tuple[int, int]] = []
    whole = campaigns.choose_runs

    def spy(pool, observed, **options):
        seen.append((len(observed["N"]), options["most"]))
        return whole(pool, observed, **options)

    monkeypatch.setattr(campaigns, "choose_runs", spy)
    N = np.logspace(6, 8, 40)
    pool = {"N": N, "loss": 1.5 + 30 / N**0.25, "cost": N}
    goal = {"N": np.array([4e8]), "loss": np.array([1.5 + 30 / 4e8**0.25])}
    found = laws.replay(pool, variables=["N"], target=goal, shares=[0.02, 0.1])
    assert [n for n, _ in seen[:5]] == [0, 1, 2, 3, 4]
    assert all(most == max(1, n // 5) for n, most in seen)
    assert found.steps[0].spent <= 0.02 * N.sum()


def test_bad_tables_are_refused_in_words():
    data = grid(np.random.default_rng(0))
    for options in (
        {"variables": ["N", "nothing"]},
        {"variables": []},
        {"variables": ["N"], "response": "error"},
        {"variables": ["N", "loss"]},
        {"variables": ["N"], "roles": {"N": "size"}},
        {"variables": ["N"], "cost": "6*N*"},
    ):
        with pytest.raises(InputError, match=r"must .*; got"):
            laws.fit(data, **cast("Any", options))
    law = laws.fit(data, variables=["N", "X"])
    with pytest.raises(InputError, match="must be given"):
        law(N=1e9)
    with pytest.raises(InputError, match="positive"):
        law.band(N=-1.0, X=2.0)
    with pytest.raises(InputError, match=r"must .*; got"):
        laws.choose_runs(data, None, variables=["N"], target={"X": [1.0]}, budget=1.0)
