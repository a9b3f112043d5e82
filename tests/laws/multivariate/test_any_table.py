"""Tables of every kind: a law with finite intervals, or a refusal in words."""

import numpy as np
import pytest

from allometry import laws


def columns(n=24, seed=0, **more):
    rng = np.random.default_rng(seed)
    N = np.exp(rng.uniform(np.log(1e7), np.log(1e9), n))
    return {"N": N, "loss": 1.5 + 30 / N**0.25, "cost": N} | more


def finite_band(data, variables, at, **options):
    law = laws.fit(data, variables=variables, **options)
    lower, value, upper = law.band(**at)
    for array in (lower, value, upper):
        assert np.isfinite(array).all()
    assert (lower <= value).all()
    assert (value <= upper).all()
    return law


def test_columns_may_have_the_names_of_parameters():
    rng = np.random.default_rng(0)
    E = 2.0 ** rng.integers(0, 6, 24)
    data = columns(E=E, A=rng.uniform(1, 2, 24))
    data["loss"] = 1.5 + 30 / data["N"] ** 0.25 * E**-0.1
    at = {"N": 4e9, "E": 64.0, "A": 1.5}
    law = finite_band(data, ["N", "E", "A"], at)
    assert float(law(**at)) == pytest.approx(1.5 + 30 / 4e9**0.25 * 64**-0.1, rel=0.02)


def test_columns_may_have_any_names():
    data = columns(**{"train/params (M)": columns()["N"], "log": np.arange(1.0, 25), "2x": 1.0})
    names = ["train/params (M)", "log"]
    law = finite_band(data, names, {"train/params (M)": 2e9, "log": 3.0})
    assert law.variables == tuple(names)
    assert set(law.roles) == set(names)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_runs_give_a_wide_band_and_a_warning(n):
    data = {k: v[:n] for k, v in columns(X=np.arange(1.0, 25)).items()}
    law = finite_band(data, ["N", "X"], {"N": 2e9, "X": np.array([1.0, 30.0])})
    assert law.warnings
    lower, value, upper = law.band(N=2e9, X=3.0)
    assert float((upper - lower) / value) > 0.02


@pytest.mark.parametrize("what", ["response", "variables", "labels alone"])
def test_what_takes_a_single_value_gives_a_constant_and_a_warning(what):
    data = columns(X=np.full(24, 3.0), family=["a", "b"] * 12)
    variables = {"response": ["N"], "variables": ["X"], "labels alone": ["family"]}[what]
    if what == "response":
        data["loss"] = np.full(24, 2.0)
    at = {"N": 1e10, "X": 4.0, "family": "a"}
    law = finite_band(data, variables, {k: at[k] for k in variables})
    assert any("single value" in sentence for sentence in law.warnings)


def test_an_accuracy_rises_to_a_ceiling():
    rng = np.random.default_rng(0)
    N = np.exp(rng.uniform(np.log(1e5), np.log(1e8), 40))
    data = {"N": N, "accuracy": 0.9 - 2 / N**0.2 + 0.002 * rng.normal(size=40)}
    law = finite_band(data, ["N"], {"N": 1e9}, response="accuracy")
    assert float(law(N=1e9)) == pytest.approx(0.9 - 2 / 1e9**0.2, abs=0.02)


def test_a_column_of_logs_enters_as_it_is():
    x = np.linspace(18, 22, 20)
    data = {"log_flops": x, "loss": 1.8 + 2 * np.exp(-0.4 * (x - 18))}
    law = finite_band(data, ["log_flops"], {"log_flops": 24.0})
    assert float(law(log_flops=24.0)) == pytest.approx(1.8 + 2 * np.exp(-2.4), rel=0.02)


def test_a_constant_column_stays_a_variable_of_an_expression():
    data = columns(D=np.full(24, 1e9))
    law = laws.fit(data, "E + A/N^alpha + B/D^beta", variables=["N", "D"])
    assert set(law.params) == {"E", "A", "alpha", "B", "beta"}
    assert any("D takes a single value" in sentence for sentence in law.warnings)


def test_unseen_groups_take_the_mean_over_groups():
    data = columns(family=["a", "b", "c"] * 8)
    law = finite_band(data, ["N", "family"], {"N": 2e9, "family": "new"})
    assert float(law(N=2e9, family="new")) == pytest.approx(1.5 + 30 / 2e9**0.25, rel=0.05)


def test_rows_that_are_not_finite_are_never_chosen():
    data = columns()
    data["N"][3] = np.nan
    seen = {"N": [1e7, np.nan, 3e7], "loss": [2.0, 1.9, np.nan]}
    rows = laws.choose_runs(data, seen, variables=["N"], target={"N": [1e10, np.nan]}, budget=1e9)
    assert rows
    assert 3 not in rows
    assert np.nansum(data["cost"][rows]) <= 1e9


@pytest.mark.parametrize("observed", [None, {}, {"N": [], "loss": []}])
def test_an_empty_campaign_may_begin_in_any_way(observed):
    data = columns()
    rows = laws.choose_runs(data, observed, variables=["N"], target={"N": [1e10]}, budget=3e8)
    assert len(rows) == len(set(rows)) > 1
