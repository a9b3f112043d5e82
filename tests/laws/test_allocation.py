"""Compute-optimal allocation: fitted near the frontier, with backtested intervals."""

import numpy as np
import pandas as pd
import pytest

import allometry as al
from allometry.laws import inverse
from allometry.laws.inverse import lowest_size


def grid(seed: int = 0, noise: float = 0.005) -> pd.DataFrame:
    """Eight sizes by eight lengths of an additive law."""
    rng = np.random.default_rng(seed)
    N, D = (a.ravel() for a in np.meshgrid(np.geomspace(1e6, 1e9, 8), np.geomspace(1e8, 1e11, 8)))
    loss = (1.7 + 300 / N**0.35 + 900 / D**0.35) * np.exp(noise * rng.standard_normal(64))
    return pd.DataFrame({"N": N, "D": D, "loss": loss})


def optimum(compute: float) -> float:
    """The size with the least of 300 / N^0.35 + 900 / D^0.35 where 6 N D is the compute."""
    return (300 / 900) ** (1 / 0.7) * (compute / 6) ** 0.5


@pytest.fixture(scope="module")
def law():
    return al.laws.fit(grid(), bootstrap=100)


@pytest.fixture(scope="module")
def llama(shared_data) -> pd.DataFrame:
    runs = pd.read_csv(shared_data / "openathena_isoflops" / "isoflops_extract.csv")
    runs = runs[runs.experiment == "llama_3__raw_loss"]
    return runs.rename(columns={"params": "N", "tokens": "D", "budget": "C"})


def test_a_named_form_uses_its_own_allocation():
    named = al.laws.fit(grid(), "chinchilla", bootstrap=100)
    assert named.allocation.law is named
    assert named.allocation.extrapolation_error is None
    draws = named.members[0].form.public(named.members[0].draws, named.members[0].centre)
    G = (draws["alpha"] * draws["A"] / (draws["beta"] * draws["B"])) ** (
        1 / (draws["alpha"] + draws["beta"])
    )
    sizes = G * (1e24 / 6) ** (draws["beta"] / (draws["alpha"] + draws["beta"]))
    lo, hi = np.quantile(sizes, [0.025, 0.975])
    assert named.plan(1e24).N.lo == pytest.approx(lo, rel=0.01)
    assert named.plan(1e24).N.hi == pytest.approx(hi, rel=0.01)


def test_an_average_uses_forms_with_irreducible_loss_and_two_exponents(law):
    assert {m.form.name for m in law.allocation.law.members} <= {"chinchilla", "coupled"}
    assert sum(m.weight for m in law.allocation.law.members) == pytest.approx(1.0)
    assert law.allocation.law.allocation.law is law.allocation.law


@pytest.mark.parametrize("compute", [1e20, 6e21, 1e23])
def test_the_interval_covers_the_known_optimum(law, compute):
    plan = law.plan(compute)
    assert plan.N.value == pytest.approx(optimum(compute), rel=0.3)
    assert plan.N.lo < optimum(compute) < plan.N.hi
    assert plan.N.lo * plan.D.hi == pytest.approx(compute / 6, rel=1e-6)
    assert plan.N.hi * plan.D.lo == pytest.approx(compute / 6, rel=1e-6)


def test_the_interval_widens_with_the_budget(law):
    widths = [np.log(p.N.hi / p.N.lo) for p in map(law.plan, (6e20, 6e21, 6e22, 6e24))]
    assert widths == sorted(widths)


def test_plan_prediction_and_inverse_agree(law):
    plan = law.plan(1e22)
    assert law.predict(C=[1e22])[0].value == pytest.approx(plan.loss.value, rel=1e-5)
    assert law.solve(plan.loss.value).value == pytest.approx(1e22, rel=0.01)
    assert law(N=plan.N.value, D=plan.D.value) == pytest.approx(plan.loss.value, rel=1e-9)
    N, D = law.allocation.at(float(np.log(1e22)))
    assert N.value == pytest.approx(plan.N.value, rel=0.01)
    assert D.hi == pytest.approx(plan.D.hi, rel=0.05)


def test_equal_draws_have_zero_width_inside_the_runs(law):
    at = law.allocation.size_estimate(np.full(30, 20.0), law.allocation.max_log_compute)
    assert at.lo == pytest.approx(at.value, rel=1e-6)
    assert at.hi == pytest.approx(at.value, rel=1e-6)


def test_compute_to_reach_a_loss_has_the_ends_of_the_band(law):
    need = law.solve(2.2)
    lo, mid, hi = (law.predict(C=[c])[0] for c in (need.lo, need.value, need.hi))
    assert lo.lo == pytest.approx(2.2, rel=1e-3)
    assert mid.value == pytest.approx(2.2, rel=1e-3)
    assert hi.hi == pytest.approx(2.2, rel=1e-3)
    size = law.solve(2.3, "N", D=1e11)
    assert law.predict(N=[size.hi], D=[1e11])[0].hi == pytest.approx(2.3, rel=1e-3)


def test_without_draws_the_prior_has_no_weight():
    law = al.laws.fit(grid(), bootstrap=0)
    assert law.allocation.data_weight == 1.0
    assert law.plan(1e23).N.lo is None


def test_the_prior_acts_only_beyond_the_runs(law):
    top = law.allocation.max_log_compute
    assert not law.allocation.prior_shift(np.array([top - 2, top])).any()
    assert not law.allocation.prior_shifts(top).any()
    # The shift is the prior's weight times the difference of the two exponents.
    shift = law.allocation.prior_shift(np.array([top + 2.0]))[0]
    low, high = lowest_size(law.allocation.law, np.array([top, top + 2.0]))
    expected = (1 - law.allocation.data_weight) * (1.0 - (high - low))
    assert shift == pytest.approx(expected, abs=1e-9)


def test_the_plan_covers_the_optimal_size_of_a_larger_llama_budget(llama):
    """Fit budgets up to 6e19; the truth is the minimum of a parabola through the runs at 1e21."""
    small = llama[llama.C <= 6e19][["N", "D", "C", "loss"]]
    larger = llama[llama.C == 1e21]
    n = np.log(larger.N.to_numpy(float))
    bend, slope, _ = np.polyfit(n - n.mean(), np.log(larger.loss.to_numpy(float)), 2)
    truth = float(np.exp(n.mean() - slope / (2 * bend)))
    plan = al.laws.fit(small, bootstrap=100).plan(1e21)
    assert plan.N.lo < truth < plan.N.hi
    named = al.laws.fit(small, "chinchilla", bootstrap=20).plan(1e21)
    assert abs(np.log(plan.N.value / truth)) < abs(np.log(named.N.value / truth))


def test_the_interval_covers_the_compute_of_a_known_loss(llama):
    """The lowest loss at 1e22, from budgets up to 3e20; the draws alone did not cover it."""
    small = llama[llama.C <= 3e20][["N", "D", "C", "loss"]]
    need = al.laws.fit(small, bootstrap=100).solve(float(llama[llama.C == 1e22].loss.min()))
    assert need.lo < 1e22 < need.hi
    named = al.laws.fit(small, "chinchilla", bootstrap=20)
    plain = named.solve(float(llama[llama.C == 1e22].loss.min()))
    # Forms with more freedom than the additive law say 6e21, and that law 3.3e22.
    assert abs(np.log(need.value / 1e22)) < abs(np.log(plain.value / 1e22))
    assert need.value == pytest.approx(1e22, rel=0.5)


def test_the_interval_covers_the_published_size_of_llama(llama):
    """402B parameters for 3.8e25 FLOPs, by section 3.2.1 of the Llama 3 paper."""
    plan = al.laws.fit(llama[["N", "D", "C", "loss"]], bootstrap=200).plan(3.8e25)
    assert plan.N.lo < 402e9 < plan.N.hi
    assert plan.N.value == pytest.approx(402e9, rel=0.5)


@pytest.mark.filterwarnings("error")
def test_unbounded_draws_give_an_infinite_end_and_no_warning():
    """Random losses of 37 runs, with weights near the frontier."""
    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(4, 9, 37), 10 ** rng.uniform(6, 11, 37)
    columns = {"N": N, "D": D, "loss": rng.uniform(1, 5, 37)}
    law = al.laws.fit(columns, efficient=True, bootstrap=30)
    far = law.plan(6e6 * float((N * D).max()))
    assert far.loss.lo <= far.loss.value < far.loss.hi == np.inf
    assert law.solve(0.01).hi == np.inf


def test_the_old_name_of_the_allocation_warns(law):
    with pytest.warns(DeprecationWarning, match=r"law\.split is now law\.allocation"):
        assert law.split is law.allocation


@pytest.mark.parametrize("form", ["auto", "chinchilla", "kaplan"])
def test_the_frontier_is_that_of_a_full_search(form):
    law = al.laws.fit(grid(noise=0.02), form, bootstrap=40)
    c = np.linspace(np.log(1e18), np.log(1e24), 9)
    searched = None
    for away in np.linspace(-12.0, 12.0, 121):
        n = inverse.central_size(law, c) + away
        each = law.curves({"N": n, "D": law.cost.data(c, n), "C": c})
        searched = each if searched is None else np.minimum(searched, each)
    np.testing.assert_array_equal(inverse.frontier(law, c), searched)
