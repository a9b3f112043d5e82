"""The best split of a budget: read from efficient runs, with an interval that has been tried."""

import numpy as np
import pandas as pd
import pytest

import allometry as al
from allometry.laws.inverse import lowest_size


def grid(seed: int = 0, noise: float = 0.005) -> pd.DataFrame:
    """Eight sizes by eight lengths of an additive law."""
    rng = np.random.default_rng(seed)
    N, D = (a.ravel() for a in np.meshgrid(np.geomspace(1e6, 1e9, 8), np.geomspace(1e8, 1e11, 8)))
    loss = (1.7 + 300 / N**0.35 + 900 / D**0.35) * np.exp(noise * rng.standard_normal(64))
    return pd.DataFrame({"N": N, "D": D, "loss": loss})


def optimum(compute: float) -> float:
    """The size with the least of 300 / N^.35 + 900 / D^.35 where 6 N D is the compute."""
    return (300 / 900) ** (1 / 0.7) * (compute / 6) ** 0.5


@pytest.fixture(scope="module")
def law():
    return al.laws.fit(grid(), bootstrap=100)


@pytest.fixture(scope="module")
def llama(shared_data) -> pd.DataFrame:
    runs = pd.read_csv(shared_data / "openathena_isoflops" / "isoflops_extract.csv")
    runs = runs[runs.experiment == "llama_3__raw_loss"]
    return runs.rename(columns={"params": "N", "tokens": "D", "budget": "C"})


def test_a_form_asked_for_by_name_splits_by_itself():
    named = al.laws.fit(grid(), "chinchilla", bootstrap=100)
    assert named.split.law is named
    assert named.split.drift is None
    draws = named.members[0].form.public(named.members[0].draws, named.members[0].centre)
    G = (draws["alpha"] * draws["A"] / (draws["beta"] * draws["B"])) ** (
        1 / (draws["alpha"] + draws["beta"])
    )
    sizes = G * (1e24 / 6) ** (draws["beta"] / (draws["alpha"] + draws["beta"]))
    lo, hi = np.quantile(sizes, [0.025, 0.975])
    assert named.plan(1e24).N.lo == pytest.approx(lo, rel=0.01)
    assert named.plan(1e24).N.hi == pytest.approx(hi, rel=0.01)


def test_the_average_reads_it_from_forms_with_a_floor_and_two_exponents(law):
    assert {m.form.name for m in law.split.law.members} <= {"chinchilla", "coupled"}
    assert sum(m.weight for m in law.split.law.members) == pytest.approx(1.0)
    assert law.split.law.split.law is law.split.law


@pytest.mark.parametrize("compute", [1e20, 6e21, 1e23])
def test_the_known_optimum_is_found_and_held(law, compute):
    plan = law.plan(compute)
    assert plan.N.value == pytest.approx(optimum(compute), rel=0.3)
    assert plan.N.lo < optimum(compute) < plan.N.hi
    assert plan.N.lo * plan.D.hi == pytest.approx(compute / 6, rel=1e-6)
    assert plan.N.hi * plan.D.lo == pytest.approx(compute / 6, rel=1e-6)


def test_doubt_about_the_split_grows_with_the_way(law):
    widths = [np.log(p.N.hi / p.N.lo) for p in map(law.plan, (6e20, 6e21, 6e22, 6e24))]
    assert widths == sorted(widths)


def test_plan_prediction_and_inverse_agree(law):
    plan = law.plan(1e22)
    assert law.predict(C=[1e22])[0].value == pytest.approx(plan.loss.value, rel=1e-5)
    assert law.solve(plan.loss.value).value == pytest.approx(1e22, rel=0.01)
    assert law(N=plan.N.value, D=plan.D.value) == pytest.approx(plan.loss.value, rel=1e-9)
    N, D = law.split.at(float(np.log(1e22)))
    assert N.value == pytest.approx(plan.N.value, rel=0.01)
    assert D.hi == pytest.approx(plan.D.hi, rel=0.05)


def test_draws_that_all_agree_have_no_width_among_the_runs(law):
    at = law.split.sizes(np.full(30, 20.0), law.split.top)
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


def test_without_draws_the_runs_alone_speak():
    law = al.laws.fit(grid(), bootstrap=0)
    assert law.split.told == 1.0
    assert law.plan(1e23).N.lo is None


def test_habit_is_asked_for_only_beyond_the_runs(law):
    top = law.split.top
    assert not law.split.shift(np.array([top - 2, top])).any()
    assert not law.split.shifts(top).any()
    # What habit adds is its part of the difference between its exponent and the runs'.
    there = law.split.shift(np.array([top + 2.0]))[0]
    low, high = lowest_size(law.split.law, np.array([top, top + 2.0]))
    assert there == pytest.approx((1 - law.split.told) * (1.0 - (high - low)), abs=1e-9)


def test_larger_budgets_of_llama_have_the_sizes_foretold(llama):
    """From budgets up to 6e19: the lowest point of the runs at 1e21, by their own parabola."""
    small = llama[llama.C <= 6e19][["N", "D", "C", "loss"]]
    there = llama[llama.C == 1e21]
    n = np.log(there.N.to_numpy(float))
    bend, slope, _ = np.polyfit(n - n.mean(), np.log(there.loss.to_numpy(float)), 2)
    truth = float(np.exp(n.mean() - slope / (2 * bend)))
    plan = al.laws.fit(small, bootstrap=100).plan(1e21)
    assert plan.N.lo < truth < plan.N.hi
    named = al.laws.fit(small, "chinchilla", bootstrap=20).plan(1e21)
    assert abs(np.log(plan.N.value / truth)) < abs(np.log(named.N.value / truth))


def test_the_compute_that_a_loss_took_is_held(llama):
    """The least loss at 1e22, from budgets up to 3e20; the draws' interval ended below it."""
    small = llama[llama.C <= 3e20][["N", "D", "C", "loss"]]
    need = al.laws.fit(small, bootstrap=100).solve(float(llama[llama.C == 1e22].loss.min()))
    assert need.lo < 1e22 < need.hi
    assert need.value == pytest.approx(1e22, rel=0.3)


def test_the_size_that_was_published_for_llama_is_held(llama):
    """402B parameters for 3.8e25 FLOPs, by section 3.2.1 of the Llama 3 paper."""
    plan = al.laws.fit(llama[["N", "D", "C", "loss"]], bootstrap=200).plan(3.8e25)
    assert plan.N.lo < 402e9 < plan.N.hi
    assert plan.N.value == pytest.approx(402e9, rel=0.5)


@pytest.mark.filterwarnings("error")
def test_draws_that_may_go_anywhere_give_no_end_and_no_warning():
    """Losses without a law among 37 runs, split by the efficient ones alone."""
    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(4, 9, 37), 10 ** rng.uniform(6, 11, 37)
    columns = {"N": N, "D": D, "loss": rng.uniform(1, 5, 37)}
    law = al.laws.fit(columns, efficient=True, bootstrap=30)
    far = law.plan(6e6 * float((N * D).max()))
    assert far.loss.lo <= far.loss.value < far.loss.hi == np.inf
    assert law.solve(0.01).hi == np.inf
