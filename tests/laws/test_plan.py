import numpy as np
import pytest

from allometry import Estimate, laws


def test_one_budget_of_data_still_gives_a_plan_along_the_runs():
    """Counted FLOPs bend against 6ND at small sizes (the readout); the plan must not mind."""
    N = np.geomspace(1e3, 5e4, 6).repeat(2)
    D = np.full(12, 2e5)
    rng = np.random.default_rng(0)
    loss = (1.0 + 30 * N**-0.4) * np.exp(0.003 * rng.standard_normal(12))
    law = laws.fit({"N": N, "D": D, "C": 6 * (N + 900) * D, "loss": loss}, bootstrap=200)
    plan = law.plan(compute=6 * 1e6 * 2e5)
    assert abs(plan.D.value / 2e5 - 1) < 1e-9
    assert abs(plan.N.value / 1e6 - 1) < 0.1  # the overhead of the readout is gone at this size
    assert plan.loss.covers(1.0 + 30 * 1e6**-0.4)


def test_a_law_answers_in_the_shape_it_is_asked_in():
    """Sizes against budgets, as a chart of the frontier asks."""
    N = np.geomspace(1e3, 1e6, 6)[:, None] * np.ones(4)
    D = np.geomspace(1e5, 1e7, 4)[None] * np.ones((6, 1))
    loss = 1.0 + 30 * N**-0.4 + 200 * D**-0.4
    data = {"N": N.ravel(), "D": D.ravel(), "loss": loss.ravel()}
    law = laws.fit(data, "chinchilla", bootstrap=50)
    assert law(N=N, D=D).shape == (6, 4)
    assert law(N=N[:, :1], D=D[:1]) == pytest.approx(loss, rel=1e-3)
    assert law.predict(N=N, D=D).shape == (6, 4)
    one, (same,) = law.predict(N=1e4, D=1e6), law.predict(N=[1e4], D=[1e6])
    assert isinstance(one, Estimate)
    assert one == same == one.item()
    assert law.predict(N=np.float64(1e4), D=np.array(1e6)) == one
    assert law.predict(N=1e4, D=[1e6, 1e7]).shape == (2,)
    assert law(N=1e4, D=1e6).shape == ()
