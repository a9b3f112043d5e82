"""Costs of plans, inference over the model's life, and next runs that test the form."""

import numpy as np
import pytest

import allometry as al
from allometry.laws import hardware, plan_costs
from allometry.laws.design_problem import APART

E, A, alpha, B, beta = 1.69, 406.4, 0.34, 410.7, 0.28  # Hoffmann et al. 2022


def runs(low=1e7, high=3e9, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(low, high, 6), 4)
    D = N * np.tile([5.0, 12.0, 30.0, 80.0], 6)
    loss = (E + A / N**alpha + B / D**beta) * np.exp(noise * rng.standard_normal(24))
    return {"N": N, "D": D, "loss": loss}


@pytest.fixture(scope="module")
def exact():
    return al.laws.fit(runs(), "chinchilla", bootstrap=0, delta=float("inf"))


@pytest.fixture(scope="module")
def averaged():
    return al.laws.fit(runs(1e6, 1e9, noise=0.005), bootstrap=100)


def cheapest(loss, tokens):
    """Least 6ND + 2NT at that loss, by a fine grid over N (Sardana et al. 2024, Eq. 3)."""
    N = np.geomspace(1e8, 1e12, 200_001)
    left = loss - E - A / N**alpha
    N = N[left > 0]
    D = (B / left[left > 0]) ** (1 / beta)
    total = 6 * N * D + 2 * N * tokens
    i = int(total.argmin())
    return N[i], D[i], total[i]


@pytest.mark.parametrize("tokens", [1e11, 1e12, 1e13])
def test_inference_is_planned_for_at_least_total_cost_of_the_loss(exact, tokens):
    plan = exact.plan(1e23, inference_tokens=tokens)
    N, D, total = cheapest(plan.loss.value, tokens)
    assert total == pytest.approx(1e23, rel=2e-3)
    assert plan.N.value == pytest.approx(N, rel=0.02)
    assert plan.D.value == pytest.approx(D, rel=0.03)
    life = plan_costs.lifetime(exact, plan, tokens)
    assert life.inference == 2 * plan.N.value * tokens
    assert life.total == pytest.approx(1e23)
    # The compute-optimal model of that loss, by the closed form of Hoffmann et al., Eq. 4.
    G = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    assert life.other is not None
    assert life.other.N is not None
    assert life.saved is not None
    best = G * (life.other.compute / 6) ** (beta / (alpha + beta))
    assert life.other.N.value == pytest.approx(best, rel=0.01)
    assert life.saved > 0


def test_a_loss_is_reached_with_inference_and_limited_data(exact):
    budget = plan_costs.budget_to_reach(exact, 2.0, inference_tokens=1e12).value
    assert budget == pytest.approx(cheapest(2.0, 1e12)[2], rel=2e-3)
    limited = plan_costs.budget_to_reach(exact, 2.0, unique=1e11).value
    assert exact.plan(limited, unique=1e11).loss.value == pytest.approx(2.0, rel=1e-4)
    assert limited > plan_costs.budget_to_reach(exact, 2.0).value
    with pytest.raises(al.UnidentifiedError, match="unique data"):
        plan_costs.budget_to_reach(exact, 1.8, unique=1e8)


def test_usage_by_hand():
    # 1e22 FLOPs at 0.4 x 989e12 FLOP/s are 7021.7 H100-hours; 2.5 and 0.7 kW each.
    used = plan_costs.usage(1e22, hardware.parse("64xH100", price=2.5))
    hours = 1e22 / (0.4 * 989e12) / 3600
    assert used.accelerator_hours.value == pytest.approx(hours, rel=1e-12)
    assert used.hours.value == pytest.approx(hours / 64, rel=1e-12)
    assert used.cost is not None
    assert used.energy is not None
    assert used.cost.value == pytest.approx(hours * 2.5, rel=1e-12)
    assert used.energy.value == pytest.approx(hours * 0.7, rel=1e-12)
    asked = plan_costs.usage(al.Estimate(1e22, lo=5e21, hi=3e22), hardware.parse("64xH100"))
    assert asked.hours.interval == pytest.approx((hours / 128, 3 * hours / 64))
    assert asked.cost is None


def test_memory_that_does_not_fit_is_reported_with_what_would():
    # 405B: 6.48 TB of states; 80 GB cards hold them only with many cards.
    few = plan_costs.memory_fit(405e9, hardware.parse("64xH100"))
    assert few.fits is False
    assert few.recompute == "full"
    assert few.least is not None
    enough = plan_costs.memory_fit(405e9, hardware.parse(f"{few.least}xH100"))
    assert enough.fits
    assert not plan_costs.memory_fit(405e9, hardware.parse(f"{few.least - 1}xH100")).fits
    assert plan_costs.memory_fit(1e9, hardware.parse("H100")).recompute == "attention"


def test_a_budget_below_the_largest_run_buys_nothing_where_distance_is_the_error(averaged):
    # Most of the interval is extrapolation error, which only runs nearer the target reduce.
    design = al.laws.next_runs(averaged, 3e20, compute=1e22, most=6)
    assert design.runs == []
    assert design.needed is not None
    assert design.needed > np.exp(averaged.table.logs["C"]).max() > 3e20
    enough = al.laws.next_runs(averaged, 1.01 * design.needed, compute=1e22, most=6)
    assert enough.runs
    assert enough.after < 0.97 * enough.now


@pytest.mark.parametrize("budget", [3e21, 6e21])
def test_next_runs_are_a_spread_and_no_replicas(averaged, budget):
    law = averaged
    design = al.laws.next_runs(law, budget, compute=1e22, most=6)
    assert len(design.runs) >= 2
    assert design.after < 0.97 * design.now
    configurations = [(r.N or 0.0, r.D or 0.0) for r in design.runs]
    seen = list(zip(*(np.exp(law.table.logs[v]) for v in ("N", "D")), strict=True))
    for i, (n, d) in enumerate(configurations):
        for other_n, other_d in [*seen, *configurations[:i]]:
            away = max(abs(np.log(n / other_n)), abs(np.log(d / other_d)))
            assert away > 0.99 * APART
    if len(configurations) > 3:
        assert len({round(np.log(n), 1) for n, _ in configurations}) > 1
        assert len({round(np.log(d / n), 1) for n, d in configurations}) > 1


def test_a_small_budget_for_a_large_target_is_told_that_no_run_helps(averaged):
    # 1e19 FLOPs were advised to repeat a run of 1M parameters.
    law = averaged
    design = al.laws.next_runs(law, 1e17, compute=1e22)
    assert design.runs == []
    assert design.after == design.now
    assert design.needed is not None
    assert 1e17 < design.needed < 1e22
    enough = al.laws.next_runs(law, 3.2 * design.needed, compute=1e22)
    assert enough.runs


def test_replicas_if_noise_is_asked_about():
    law = al.laws.fit(runs(1e7, 1e9, noise=0.02), bootstrap=100)
    design = al.laws.next_runs(law, 1e20, N=1e9, D=2e10, most=6, replicas=True)
    assert 2 <= len(design.runs) <= 6
    seen = {round(float(x), 6) for x in law.table.logs["C"]}
    assert {round(float(np.log(run.compute)), 6) for run in design.runs} <= seen
    assert len({run.N for run in design.runs}) > 1
    assert design.spent <= 1e20


def test_a_fixed_size_or_fixed_data_come_back_as_given(averaged):
    """The exponential of a log gave 999999999999.999 tokens for 1e12."""
    assert averaged.plan(6e21, D=1e12).D.value == 1e12
    assert averaged.plan(6e21, N=1e9).N.value == 1e9
    assert averaged.plan(6e21).compute == 6e21


def test_an_average_prints_the_parameters_of_every_form(averaged):
    assert averaged.members[0].weight < 0.9
    text, page = str(averaged), averaged._repr_html_()
    assert text.startswith("average of ")
    for member in averaged.members:
        assert member.form.equation in text
        assert f"{member.form.letters[0]} of {member.form.name}" in page
    lines = [line for line in text.splitlines() if line.strip().startswith("alpha = ")]
    assert len(lines) == sum("alpha" in m.form.letters for m in averaged.members)
