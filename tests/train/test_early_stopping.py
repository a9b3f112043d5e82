"""Who is sent away, on curves whose ends are known."""

import numpy as np
import pytest

from allometry import InputError
from allometry.train import BatchedTrainer, EarlyStopping, Progress
from tests.train.test_packed_loop import ends, training


def fed(judge, floors, upto, steps=1000, noise=0.05, seed=0):
    """Curves E + 4 t^-0.4 whose chance errors are the same for all, as on the same data."""
    chance = noise * np.random.default_rng(seed).standard_normal(steps)
    for t in range(1, upto + 1):
        for name, floor in floors.items():
            judge.watch(name, Progress(t, steps, floor + 4 * t**-0.4 + chance[t - 1]))
    return judge(upto, dict.fromkeys(floors))


def test_a_member_that_ends_far_above_is_sent_away_and_the_best_never():
    floors = {"best": 1.5, "near": 1.52, "far": 2.6}
    gone = [fed(EarlyStopping(), floors, 300, seed=seed) for seed in range(20)]
    assert all("best" not in names and "near" not in names for names in gone)
    assert sum("far" in names for names in gone) >= 18


def test_no_run_ends_too_early_or_alone():
    floors = {"best": 1.5, "far": 4.0}
    assert fed(EarlyStopping(begin=0.3), floors, 250) == []
    assert fed(EarlyStopping(), {"only": 4.0}, 500) == []


def test_slack_keeps_what_a_cool_down_may_still_win():
    floors = {"best": 1.5, "far": 2.6}
    assert fed(EarlyStopping(slack=2.0), floors, 300) == []


def test_ends_are_extrapolated_to_the_last_step():
    judge = EarlyStopping()
    fed(judge, {"a": 1.5, "b": 1.6}, 400, noise=0.002)
    for name, floor in (("a", 1.5), ("b", 1.6)):
        # Means of stretches stand a little above the curve: a few hundredths.
        assert judge.ends[name].value == pytest.approx(floor + 4 * 1000**-0.4, abs=0.05)


def test_in_a_batched_trainer_a_rate_that_learns_nothing_stops_early():
    judge = EarlyStopping()
    trainer = BatchedTrainer({"still": training(lr=1e-6, steps=120), "quick": training(steps=120)})
    found = ends(trainer, judge=judge, watch=judge.watch)
    assert found["still"].trained.curve.step[-1] < 120
    assert found["quick"].trained.curve.step[-1] == 120


def test_shares_out_of_range_are_refused():
    with pytest.raises(InputError, match="between 0 and 1"):
        EarlyStopping(begin=1.5)
