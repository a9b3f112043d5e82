"""The table of extrapolation error across families, and how it corrects a law."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allometry import laws
from allometry.laws import calibration_table
from allometry.laws.backtests import Fold
from allometry.laws.calibration import (
    UNCALIBRATED,
    calibrate,
    calibration_warnings,
    e_folds_beyond,
    own_slope,
    pulled_back,
)
from allometry.laws.calibration_table import constants
from allometry.laws.runs_table import read


def runs(sizes=8, lengths=5, noise=0.004, seed=0):
    N, D = np.meshgrid(np.geomspace(1e7, 1e9, sizes), np.geomspace(1e9, 1e11, lengths))
    N, D = N.reshape(-1), D.reshape(-1)
    exact = 1.69 + 406.4 / N**0.34 + 410.7 / D**0.28
    return {
        "N": N,
        "D": D,
        "loss": exact * np.exp(noise * np.random.default_rng(seed).standard_normal(len(N))),
    }


@pytest.fixture(scope="module")
def law():
    return laws.fit(runs(), bootstrap=60)


def test_the_table_names_its_groups_and_a_hash():
    table = calibration_table.TABLE
    assert len(table["groups"]) >= 20
    assert len(set(table["groups"])) == len(table["groups"])
    assert len(table["hash"]) == len(hashlib.sha256().hexdigest()[:16])
    path = Path(calibration_table.__file__).with_suffix(".json")
    assert json.loads(path.read_text()) == table


def test_a_law_says_which_table_it_used(law):
    told = law.to_dict()["calibration"]
    assert told["version"] == calibration_table.TABLE["version"]
    assert told["hash"] == law.calibration.digest
    assert told["kind"] == "grid"
    json.dumps(told)


def test_the_formula_of_the_correction(law):
    """The value and the interval from the stored numbers, computed again here."""
    logs, _ = law.points({"N": [3e10, 1e8], "D": [2e12, 5e9]})
    top = {v: float(x.max()) for v, x in law.table.logs.items()}
    excess = max(top["N"] + top["D"] + np.log(6) - top["C"], 0) / 2
    back = {"N": np.array([top["N"] - excess]), "D": np.array([top["D"] - excess])}
    back["C"] = np.log(6) + back["N"] + back["D"]
    first = {v: x[:1] for v, x in logs.items()}
    decline = law.average(back) - law.average(first)
    beyond = (first["C"] - back["C"]) / 2
    c = law.calibration
    expected = law.average(first) - c.kappa * decline - c.rate * np.minimum(beyond, c.reach)
    lo, mid, hi = law.band(N=[3e10, 1e8], D=[2e12, 5e9])
    assert np.log(mid[0]) == pytest.approx(expected[0], abs=1e-12)
    assert np.log(mid[1]) == pytest.approx(law.average(logs)[1], abs=1e-12)  # among the runs
    assert law(N=[3e10, 1e8], D=[2e12, 5e9]) == pytest.approx(mid)
    assert (lo < mid).all()
    assert (mid < hi).all()


def test_a_form_asked_for_by_name_keeps_its_value():
    law = laws.fit(runs(), "chinchilla", bootstrap=60)
    p = {k: v.value for k, v in law.params.items()}
    exact = p["E"] + p["A"] / 1e11 ** p["alpha"] + p["B"] / 1e13 ** p["beta"]
    e = law.predict(N=1e11, D=1e13)
    assert e.value == pytest.approx(exact, rel=1e-9)
    assert e.lo < e.value < e.hi
    assert not law.calibration.moves_value


def test_points_are_pulled_back_to_the_ends_of_the_runs():
    seen = {"N": np.array([0.0, 2.0]), "D": np.array([0.0, 3.0]), "C": np.array([0.0, 4.0])}
    logs = {"N": np.array([1.0, 5.0, 2.0]), "D": np.array([1.0, 6.0, 3.0])}
    logs["C"] = logs["N"] + logs["D"]
    back = pulled_back(logs, seen, ("N", "D"))
    assert back["N"].tolist() == [1.0, 1.5, 1.5]
    assert back["D"].tolist() == [1.0, 2.5, 2.5]
    assert (back["C"] <= 4.0).all()
    assert e_folds_beyond(logs, back).tolist() == [0.0, 3.5, 0.5]
    one = pulled_back({"D": np.array([1.0, 7.0])}, seen, ("D",))
    assert one["D"].tolist() == [1.0, 3.0]


def fold(kappa, rng, noise=0.001, n=12):
    decline = np.linspace(0.05, 0.3, n)
    rate = constants("grid").rate
    beyond = np.linspace(0.5, 2, n)
    error = -kappa * decline - rate * beyond + noise * rng.standard_normal(n)
    return Fold(error, np.full(n, noise**2), 4 * decline, noise, 20, 40, decline, beyond)


def test_backtests_move_kappa_towards_what_they_show():
    rng = np.random.default_rng(0)
    table = read(runs(30, 30))
    folds = [fold(0.5, rng) for _ in range(4)]
    found = own_slope(folds, constants("grid"), table.configurations)
    assert found is not None
    assert found[0] == pytest.approx(0.5, abs=0.01)
    prior, told = calibrate([], table), calibrate(folds, table)
    assert prior.own is None
    assert prior.kappa == constants("grid").kappa
    assert prior.kappa < told.kappa < 0.5
    assert told.spread < prior.spread
    # Fewer configurations and folds that disagree know less.
    few = calibrate(folds, read(runs(3, 3)))
    unlike = calibrate([fold(k, rng) for k in (0.0, 1.0, 0.0, 1.0)], table)
    assert prior.kappa < few.kappa < told.kappa
    assert unlike.own_sd > told.own_sd


def test_a_family_unlike_all_others_is_named():
    rng = np.random.default_rng(0)
    table = read(runs(30, 30))
    assert not calibration_warnings(calibrate([fold(0.05, rng)] * 3, table))
    (text,) = calibration_warnings(calibrate([fold(1.8, rng)] * 3, table))
    assert "unlike" in text


def test_a_form_without_irreducible_loss_gets_no_correction_of_the_table():
    table = read(runs())
    bare = calibrate([], table, irreducible=0.0)
    assert bare.rate == bare.kappa == 0.0
    assert calibrate([], table).rate == constants("grid").rate


def test_an_uncalibrated_law_is_the_average_of_its_forms(law):
    plain = replace(law, calibration=UNCALIBRATED)
    logs, _ = plain.points({"N": [1e11], "D": [1e13]})
    assert np.log(plain(N=[1e11], D=[1e13])) == pytest.approx(plain.average(logs))


def test_the_variance_of_the_draws_counts_in_full_among_the_runs(law):
    known = replace(law.calibration, draws=0.25)
    assert known.draws_share(np.array([0.0, 0.5, 1.0, 9.0])).tolist() == [1.0, 0.5, 0.25, 0.25]
    # Draws of few runs are too alike rather than too different.
    share = replace(constants("grid"), draws=0.25).share_of_draws
    assert 1 > share(5) > share(50) > share(5000) > 0.25
    assert share(15) == pytest.approx(0.5)
    assert constants("curve").share_of_draws(50) == 1.0


def test_smooth_families_are_expected_to_be_extrapolated_better():
    known = replace(constants("grid"), noise_power=0.5)
    assert known.median_error(0.01) == pytest.approx(known.tau)
    assert known.median_error(0.0025) == pytest.approx(known.tau / 2)
    assert known.median_error(0.0) > 0


def test_beyond_its_evidence_a_prediction_says_so_and_widens(law):
    beyond = {"N": 1e12, "D": 1e14}
    near = replace(law, calibration=replace(law.calibration, reach=1.0))
    far = replace(law, calibration=replace(law.calibration, reach=50.0, rate=0.0))
    near = replace(near, calibration=replace(near.calibration, rate=0.0))
    told, silent = near.predict(**beyond), far.predict(**beyond)
    assert told.value == pytest.approx(silent.value)
    assert told.lo < silent.lo < silent.hi < told.hi
    assert "evidence up to 7.39 times" in told.method
    assert "evidence" not in silent.method + near.predict(N=1e8, D=1e10).method
    top = float(np.exp(law.table.logs["C"].max()))
    assert any("calibrated on (7.39 times)" in text for text in near.plan(40 * top).warnings)
    assert not any("calibrated on" in text for text in near.plan(5 * top).warnings)
    # A law saved before there was a table has no reach to exceed.
    old = replace(law, calibration=UNCALIBRATED).predict(**beyond)
    assert "evidence" not in old.method


def test_two_levels_of_compute_that_differ_by_rounding_alone():
    """A regression: a backtest without any run to predict ended in an IndexError."""
    columns = runs(6, 4)
    C = 6 * columns["N"] * columns["D"]
    top = np.argsort(C)[-2:]
    C[top] = np.exp(np.round(np.log(C[top[1]]), 6) + np.array([0.0, 0.7e-6]))
    law = laws.fit(columns | {"C": C}, bootstrap=0)
    assert all(len(fold.error) for fold in law.folds)
    assert law.members


def test_checkpoints_along_a_falling_rate_are_not_taken_for_runs():
    steps = np.arange(1.0, 31.0)
    loss = 2 + 3 / steps**0.5
    falling = {"D": steps, "loss": loss, "lr": np.cos(steps / 20)}
    constant = falling | {"lr": np.full(30, 1e-3)}
    assert any("falling rate" in note for note in read(falling).notes)
    assert not any("falling rate" in note for note in read(constant).notes)
    # Rates that differ between the runs of one size are tuned, not scheduled.
    tuned = falling | {"lr": np.tile([1e-3, 3e-3], 15)}
    assert not any("falling rate" in note for note in read(tuned).notes)
