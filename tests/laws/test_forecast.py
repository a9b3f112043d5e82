"""Forecasts of the final loss: closed forms, invariances, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allometry as al
from allometry._core.errors import InputError

STEP = np.arange(50.0, 5001.0, 50.0)


def test_a_power_law_without_irreducible_loss_is_extrapolated():
    final = al.laws.forecast(STEP, 30 * STEP**-0.1, 20_000)
    assert final.covers(30 * 20_000**-0.1)
    assert final.value == pytest.approx(30 * 20_000**-0.1, rel=0.03)


def test_error_and_width_shrink_along_the_training():
    total = 20_000.0
    step = np.arange(100.0, total + 1, 100.0)
    loss = 2 + 30 * step**-0.5
    widths, errors = [], []
    for cut in (0.25, 0.5, 0.75):
        seen = step <= cut * total
        final = al.laws.forecast(step[seen], loss[seen], total, "constant")
        widths.append(final.hi - final.lo)
        errors.append(abs(final.value - loss[-1]))
    assert widths[0] > widths[1] > widths[2]
    assert errors[2] < errors[0] / 2


def test_a_decay_of_the_rate_lowers_the_forecast():
    loss = 2 + 30 * STEP**-0.5
    decayed = al.laws.forecast(STEP, loss, 6000, "wsd:0.1").value
    assert decayed < al.laws.forecast(STEP, loss, 6000, "constant").value


def test_names_functions_and_arrays_of_one_schedule_agree():
    loss = 2 + 30 * STEP**-0.5
    named = al.laws.forecast(STEP, loss, 8000, "linear").value
    assert al.laws.forecast(STEP, loss, 8000, lambda t: 3 * (1 - t / 8000)).value == (
        pytest.approx(named, rel=1e-9)
    )
    assert al.laws.forecast(STEP, loss, 8000, [1.0, 0.0]).value == pytest.approx(named, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 10), st.floats(0.1, 100), st.integers(0, 100))
def test_units_of_loss_and_step_do_not_matter(scale, unit, seed):
    noise = np.random.default_rng(seed).normal(0, 0.01, len(STEP))
    loss = np.exp(noise) * (2 + 30 * STEP**-0.5)
    one = al.laws.forecast(STEP, loss, 20_000)
    other = al.laws.forecast(STEP * unit, loss * scale, 20_000 * unit)
    assert other.value == pytest.approx(one.value * scale, rel=1e-6)
    assert other.hi == pytest.approx(one.hi * scale, rel=1e-6)


def test_a_finished_training_has_its_own_loss():
    final = al.laws.forecast([1, 2, 3], [3.0, 2.0, 1.5], 3)
    assert final.exact
    assert final.value == 1.5


@pytest.mark.parametrize(
    ("steps", "losses", "total", "schedule"),
    [
        ([1], [1.0], 10, None),
        ([1, 2], [1.0], 10, None),
        ([1, 2], [1.0, float("nan")], 10, None),
        ([1, 2], [1.0, -1.0], 10, None),
        ([1, 20], [2.0, 1.0], 10, None),
        ([1, 2], [2.0, 1.0], 10, "sawtooth"),
        ([1, 2], [2.0, 1.0], 10, "wsd:7"),
        ([1, 2], [2.0, 1.0], 10, lambda t: float("nan")),
        ([1, 2], [2.0, 1.0], 10, [0.0, 0.0]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(steps, losses, total, schedule):
    with pytest.raises(InputError, match="must"):
        al.laws.forecast(steps, losses, total, schedule)


def test_watch_raises_an_alarm_when_the_loss_leaves_its_band():
    loss = 2 + 30 * STEP**-0.5
    assert al.laws.watch(STEP, loss, 20_000).alarm is None
    loss[-1] *= 2
    alarm = al.laws.watch(STEP, loss, 20_000).alarm
    assert alarm is not None
    assert "above its band" in alarm
    loss[-1] = float("nan")
    state = al.laws.watch(STEP, loss, 20_000)
    assert state.stop
    assert state.to_dict()["loss"] is None


def test_stopping_is_safe_only_when_the_loss_to_beat_is_out_of_reach():
    loss = 2 + 30 * STEP**-0.5
    assert al.laws.watch(STEP, loss, 6000, beat=1.0).stop
    assert not al.laws.watch(STEP, loss, 6000, beat=float(loss[-1])).stop


def test_a_rise_that_is_older_than_the_band_gives_an_alarm():
    step = np.arange(100, 5001, 100)
    rng = np.random.default_rng(0)
    loss = (2 + 30 * step**-0.5) * np.exp(rng.normal(0, 0.003, len(step)))
    assert al.laws.watch(step, loss, 20_000).alarm is None
    loss[step >= 4000] *= 1.5
    alarm = al.laws.watch(step, loss, 20_000).alarm
    assert alarm is not None
    assert "above its band" in alarm
