"""A Gaussian process on what a form leaves over."""

import numpy as np
import pytest

from allometry import laws
from allometry.laws.multivariate.backtests import half_width
from allometry.laws.multivariate.candidates import compose
from allometry.laws.multivariate.groups import fit_groups
from allometry.laws.multivariate.processes import WITH_PROCESS, Process, fit_process
from allometry.laws.multivariate.roles import guess
from allometry.laws.multivariate.variable_runs import read


def uneven_bowls(n=150, seed=0):
    """Losses with a wave along the learning rate, the same for every size."""
    rng = np.random.default_rng(seed)
    N = 10 ** rng.uniform(7, 9, n)
    lr = 10 ** rng.uniform(-4, -2, n)
    return {"N": N, "lr": lr, "loss": wave(N, lr) * np.exp(0.001 * rng.normal(size=n)), "C": N}


def wave(N, lr):
    return 1.7 + 40 / N**0.2 + 0.1 * np.sin(3 * np.log(lr))


def fitted(name, data):
    table = read(data, ["N", "lr"], "loss", "C")
    form = next(f for f in compose(table) if f.name == name)
    rng = np.random.default_rng(0)
    trend = fit_groups(form, table, [np.arange(table.n)], starts=4, rng=rng, delta=0.03)[0]
    return table, trend, fit_process(table, np.arange(table.n), rng, trend=trend)


def test_it_adds_what_the_form_lacks_and_vanishes_far_away():
    table, trend, process = fitted("additive + bowl", uneven_bowls())
    inside = np.array([[1e8, 3e8], [1e-3, 3e-3]])
    group = np.zeros(2, int)
    truth = table.link(wave(*inside))
    assert np.abs(process.value(inside, group) - truth).max() < 0.01
    assert np.abs(trend.value(inside, group) - truth).max() > 0.01
    far = np.array([[1e25, 1e25], [1e-3, 3e-3]])
    assert process.value(far, group) == pytest.approx(trend.value(far, group), abs=2e-3)
    assert (process.variance(far, group) > trend.variance(far, group)).all()


def test_auto_chooses_it_where_forms_leave_structure(tmp_path):
    data = uneven_bowls()
    law = laws.fit(data, variables=["N", "lr"], cost="C")
    process = next(m for m in law.members if isinstance(m, Process) and m.trend is not None)
    assert process.name.endswith(WITH_PROCESS)
    lr = np.array([2e-4, 1e-3, 5e-3])
    assert law(N=2e9, lr=lr) == pytest.approx(wave(2e9, lr), rel=0.02)
    again = laws.load(law.save(tmp_path / "law.json"))
    assert again(N=2e9, lr=lr) == pytest.approx(law(N=2e9, lr=lr), rel=1e-12)


def test_no_points_give_an_empty_band():
    data = {"N": np.logspace(6, 9, 12), "loss": 2 + np.logspace(6, 9, 12) ** -0.1}
    lower, value, upper = laws.fit(data, variables=["N"]).band(N=np.empty(0))
    assert lower.shape == value.shape == upper.shape == (0,)
    none = np.empty(0)
    assert half_width(none, 0.01, 5, none, np.ones(41) / 41).shape == (0,)


@pytest.mark.parametrize("name", ["lr", "bsz", "gbs", "gbsz_seqs", "eta", "LearningRate", "mbs"])
def test_names_of_rates_and_batches_are_tuned(name):
    assert guess({name: np.array([1.0, 2, 4, 8])}, {}) == {name: "tuned"}
