"""Each fault done, not imagined: the study goes on, and says what happened."""

import errno
import os
import signal
import time

import pytest

import allometry as al
from allometry import Spec
from allometry._core.errors import StorageError
from allometry.runs.importers import load
from allometry.study import Journal, Study, TensorBoardLogger, local, recipes
from allometry.study.tasks import Task
from allometry.train import DeviceSettings, checkpoint
from allometry.train.loop import Stopped
from tests.study.fakes import FakeRun, SickRun, Tossed, _starts
from tests.study.processes import descendants
from tests.train.test_loop import run, small

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


def study(*specs):
    return Study(TEXT, [lambda target, ladder, *, tokens, seeds: list(specs)], [1000], tokens=100)


def one():
    return local(workers=1, threads=1)


def test_a_worker_that_gets_sigterm_saves_first_and_its_run_continues_elsewhere(tmp_path):
    spec = Spec(FakeRun, name="moved", behaviour="asked to exit once")
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


@pytest.mark.slow
def test_after_sigterm_a_training_resumes_from_its_checkpoint_and_its_log_is_complete(tmp_path):
    """Twice, with SIGTERM; what TensorBoard is shown of it is read back by our own importer."""
    asked = Study(TEXT, [recipes.transformer], [900], seeds=1, tokens=[8e4])
    undisturbed = asked.run(tmp_path / "whole", one()).frame()
    board, events = TensorBoardLogger(tmp_path / "board"), []

    def watch(event):
        board(event)
        events.append(event)
        kinds = [e.kind for e in events]
        if event.kind == "progress" and event.data["step"] > 20 and "stopped" not in kinds:
            # A cluster manager signals every process; the server of the workers goes on.
            for pid, line in descendants().items():
                if "allometry.study.execute" in line:
                    os.kill(pid, signal.SIGTERM)

    frame = asked.run(tmp_path / "broken", one(), watch=watch).frame()
    kinds = [e.kind for e in events]
    assert kinds.count("stopped") == 1
    before, after = events[: kinds.index("stopped")], events[kinds.index("stopped") :]
    last = max(e.data["step"] for e in before if e.kind == "progress")
    assert min(e.data["step"] for e in after if e.kind == "progress") > last
    assert frame["loss"].tolist() == undisturbed["loss"].tolist()

    read = load(tmp_path / "board").columns
    assert read["loss"][-1] == pytest.approx(frame["loss"][0], rel=1e-6)
    assert read["D"][-1] == pytest.approx(frame["D"][0], rel=1e-6)
    assert read["N"][-1] == frame["N"][0]


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_costs_none(tmp_path, monkeypatch):
    undisturbed = run(small())
    path, told = tmp_path / "c.safetensors", []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: no_space() if len(told) == 12 else real(fd))
    with pytest.raises(StorageError, match="the disk is full"):
        run(small(), save_to=path, save_every=0.0, watch=told.append)
    monkeypatch.setattr(os, "fsync", real)
    assert checkpoint.newest(path)[1]["step"] == 11
    assert len(list(tmp_path.iterdir())) == 2  # this one and the one before, no half one
    assert run(small(seed=9), save_to=path).curve == undisturbed.curve


def test_a_disk_that_fills_up_in_the_middle_of_a_line_leaves_no_half_line(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j")
    journal.append({"key": "a", "status": "done"})
    real, calls = os.pwrite, []

    def half(descriptor, data, at):
        calls.append(at)
        return real(descriptor, data[:4], at) if len(calls) == 1 else no_space()

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(StorageError, match="the disk is full"):
        journal.append({"key": "b", "status": "done", "loss": 1.5})
    monkeypatch.setattr(os, "pwrite", real)
    assert (tmp_path / "j").read_bytes() == b'{"key": "a", "status": "done"}\n'
    journal.append({"key": "c", "status": "done"})
    assert [r["key"] for r in journal.read()] == ["a", "c"]


def test_a_full_disk_stops_the_study_and_the_same_command_goes_on(tmp_path):
    """The worker meets it; the run is not blamed for it."""
    full, good = (Spec(FakeRun, name=n, behaviour=n) for n in ("disk full once", "good"))
    asked = study(full, good)
    with pytest.raises(StorageError, match="the disk is full"):
        asked.run(tmp_path, one())
    frame = asked.run(tmp_path, one()).frame()
    assert sorted(frame["status"]) == ["done", "done"]


@pytest.mark.slow
def test_deterministic_runs_do_not_depend_on_what_ran_before_them(tmp_path):
    def losses(folder, on, *names):
        specs = [Spec(Tossed, name=name) for name in names]
        frame = study(*specs).run(tmp_path / folder, local(1, 1, on)).frame()
        return dict(zip(frame["shape"], frame["loss"], strict=True))

    on = DeviceSettings(deterministic=True)
    both, alone = losses("both", on, "a", "b"), losses("alone", on, "b")
    assert both["b"] == alone["b"]
    assert both["a"] != both["b"]
