"""Each fault done, not imagined: the study goes on, and says what happened."""

import time

import pytest

import allometry as al
from allometry import Spec
from allometry.study import Study, Task, local, recipes
from allometry.train.loop import Stopped
from tests.study.fakes import FakeRun, SickRun, _starts
from tests.train.test_loop import run, small

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


def study(*specs):
    return Study(TEXT, [lambda target, ladder, *, tokens, seeds: list(specs)], [1000], tokens=100)


def one():
    return local(workers=1, threads=1)


def test_a_worker_told_to_leave_saves_first_and_its_run_goes_on_elsewhere(tmp_path):
    spec = Spec(FakeRun, name="moved", behaviour="told to leave once")
    events = [e.kind for e in one()([Task(spec, 1.0)], tmp_path)]
    assert events == ["started", "stopped", "started", "done"]
    assert (tmp_path / "moved.saved").exists()
    assert _starts(tmp_path, "moved") == 2


def test_out_of_memory_is_recorded_and_the_next_run_is_carried_out(tmp_path):
    hungry, good = (Spec(FakeRun, name=n, behaviour=n) for n in ("hungry", "good"))
    frame = study(hungry, good).run(tmp_path, one()).frame().set_index("shape")
    assert frame.loc["good", "status"] == "done"
    assert frame.loc["hungry", "status"] == "failed"
    assert "memory" in frame.loc["hungry", "error"]


def test_a_loss_that_is_no_number_is_recorded_and_tried_again_at_half_the_rate(tmp_path):
    sick = Spec(SickRun, lr=0.2, bearable=0.1)
    hopeless = Spec(SickRun, lr=0.8, bearable=0.1)
    plain = study(sick).run(tmp_path / "plain", one()).frame()
    assert plain["status"].tolist() == ["diverged"]
    assert "at step 3 of 6" in plain["error"][0]

    def recipe(target, ladder, *, tokens, seeds):
        return [sick, hopeless]

    asked = Study(TEXT, [recipes.retried(recipe)], [1000], tokens=100)
    runs = asked.run(tmp_path / "again", one())
    frame = runs.frame().sort_values("status")
    assert frame["status"].tolist() == ["diverged", "done"]
    assert frame["lr"].tolist()[1] == 0.1
    assert "at step 3 of 6" in frame["retried"].tolist()[1]
    assert list((runs.folder / "checkpoints").iterdir()) == []
    # Once is enough: neither is begun a third time.
    assert asked.tasks(tmp_path / "again") == []


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch, jump):
    undisturbed = run(small())
    real, told = time.time, []
    monkeypatch.setattr(time, "time", lambda: real() + jump * (len(told) % 2))
    path = tmp_path / "c.safetensors"
    with pytest.raises(Stopped):
        run(small(), save_to=path, watch=told.append, stop=lambda: len(told) == 11)
    jumped = run(small(), save_to=path, watch=told.append)
    assert jumped.curve == undisturbed.curve
    assert 0 < jumped.seconds < 600
