"""Every run ends as done, diverged or failed with its reason, whatever it gives back or raises."""

import json
import re
import sys

import numpy as np
import pytest
import typer.testing

import allometry as al
from allometry import Spec
from allometry.cli import app
from allometry.study import Study, local
from allometry.study.execute.driver import NO_RESULT, Event, order
from allometry.study.execute.executors import Executor
from allometry.study.execute.processes import WorkerProcesses, _message
from allometry.study.execute.worker import Worker
from allometry.study.schedule.packing import Schedule
from allometry.study.study import NO_RESULT as NO_EVENT
from allometry.study.tasks import Bundle, ExecutionOptions, Task, single
from allometry.train import DeviceSettings
from tests.study.fakes import FakeRun
from tests.study.odd_results import DIVERGED, DONE, FAILED, KINDS, OddRun, OddTraining

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)
UNSAVED = "curve that can't be saved"
"""A worker can't know it: the driver meets it when it writes the curve."""


def study(*specs):
    return Study(TEXT, [lambda target, ladder, *, tokens, seeds: list(specs)], [1000], tokens=100)


def tasks(cls, kinds=KINDS):
    specs = [Spec(cls, kind=kind) for kind in kinds]
    return [Task(spec, 0.01) for spec in specs]


def check(frame, kinds=KINDS):
    """Each kind once, with the status it has, and the reason or the loss."""
    assert sorted(frame["shape"]) == sorted(kinds)
    rows = {row["shape"]: row for row in frame.to_dict("records")}
    for kind in kinds:
        row, (_, expected) = rows[kind], KINDS[kind]
        status = "done" if kind in DONE else "diverged" if kind in DIVERGED else "failed"
        assert (kind, row["status"]) == (kind, status)
        if kind in DONE:
            loss = None if np.isnan(row["loss"] or 0.0) else row["loss"]
            assert (kind, loss) == (kind, expected)
        else:
            assert re.search(expected, row["error"]), (kind, row["error"])
            assert len(row["error"]) < 2200


def carried_out(bundle, folder):
    """The events of a bundle, carried out by a worker in this process."""
    (folder / "checkpoints").mkdir()
    said = []
    worker = Worker(lambda line: said.append(json.loads(line)))
    worker.carry_out(order(bundle, folder, 1, DeviceSettings("cpu"), 0))
    return said


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != UNSAVED])
def test_in_process(tmp_path, kind):
    (task,) = tasks(OddRun, [kind])
    *_, end, ready = carried_out(single(task), tmp_path)
    assert ready == {"event": "ready"}
    assert end["key"] == task.key
    expected = KINDS[kind][1]
    if kind in DONE:
        assert end["event"] == "done"
        assert end["columns"]["loss"] == expected
    else:
        assert end["status"] == ("diverged" if kind in DIVERGED else "failed")
        assert re.search(expected, end["error"])


def test_through_worker_processes(tmp_path):
    """One of them makes its worker write what is no message: the worker is replaced."""
    work = [*tasks(OddRun), Task(Spec(OddRun, kind="garbage"), 0.1)]
    asked = study(*(task.spec for task in work))
    runs = asked.run(tmp_path, local(workers=1, threads=1))
    frame = runs.frame()
    check(frame[frame["shape"] != "garbage"])
    (garbage,) = frame[frame["shape"] == "garbage"].to_dict("records")
    assert garbage["status"] == "failed"
    assert garbage["error"] == "the worker wrote something that is no message, 2 times"
    assert runs.state()["waiting"] == 0
    assert {r["key"] for r in runs.journal.read()} == {task.key for task in work}
    # What diverged is not repeated, what failed is.
    left = {task.spec.arguments["kind"] for task in asked.tasks(tmp_path)}
    assert left == {*FAILED, "garbage"}


@pytest.mark.parametrize("line", [b"[1, 2]", b"{}", b'{"event": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_message(line):
    assert _message(line) is None


def test_through_packed_runs(tmp_path):
    """One of them is no number when it is measured on the way."""
    work = tasks(OddTraining, [*KINDS, "unmeasurable"])
    bundle = Bundle("0" * 16, tuple(work), ExecutionOptions(size=8))
    asked = study(*(task.spec for task in work))
    runs = asked.run(tmp_path, local(1, 1), schedule=Schedule((bundle,), 1, 1.0))
    frame = runs.frame()
    check(frame[frame["shape"] != "unmeasurable"])
    (lost,) = frame[frame["shape"] == "unmeasurable"].to_dict("records")
    assert lost["status"] == "diverged"
    assert lost["error"].startswith("the measured loss became nan at step 1 of 3")
    assert runs.state()["waiting"] == 0


def test_a_measured_loss_that_is_no_number_is_a_divergence(tmp_path):
    (task,) = tasks(OddTraining, ["unmeasurable"])
    *_, end, _ = carried_out(single(task), tmp_path)
    assert end["status"] == "diverged"
    assert end["error"].startswith("the measured loss became nan at step 1 of 3")


def test_a_worker_that_goes_on_without_a_word_leaves_no_run_open(tmp_path, monkeypatch):
    mute = 'import sys; print(\'{"event": "ready"}\', flush=True)\n'
    mute += "for line in sys.stdin:\n"
    mute += "    if 'stop' in line: break\n"
    mute += '    print(\'{"event": "done", "key": "none of mine"}\')\n'
    mute += '    print(\'{"event": "ready"}\', flush=True)\n'
    command = (sys.executable, "-c", mute)
    made = WorkerProcesses.__init__
    monkeypatch.setattr(
        WorkerProcesses,
        "__init__",
        lambda self, folder, threads, on: made(self, folder, threads, on, command),
    )
    frame = study(Spec(FakeRun, name="a")).run(tmp_path, local(1, 1)).frame()
    assert frame[["status", "error"]].values.tolist() == [["failed", NO_RESULT]]


def test_an_executor_that_forgets_a_run_leaves_none_open(tmp_path):
    class Forgetful(Executor):
        workers, threads, on = 1, 1, DeviceSettings()

        def __call__(self, tasks, folder):
            first, *_ = [t for bundle in tasks for t in bundle.tasks]
            yield Event("started", first, 0)
            yield Event("done", first, 0, {"columns": {}})  # without curve and sample

    specs = [Spec(FakeRun, name=name) for name in "ab"]
    runs = study(*specs).run(tmp_path, Forgetful())
    assert runs.frame()["status"].tolist() == ["failed", "failed"]
    assert runs.frame()["error"].tolist() == ["KeyError: 'curve'", NO_EVENT["error"]]
    assert runs.state()["waiting"] == 0


def test_a_message_that_never_ends_ends_the_worker(tmp_path, monkeypatch):
    monkeypatch.setattr("allometry.study.execute.processes.LARGEST", 1 << 16)
    endless = 'import sys\nprint(\'{"event": "ready"}\', flush=True)\n'
    endless += "while True: sys.stdout.write('x' * 65536)\n"
    command = (sys.executable, "-c", endless)
    made = WorkerProcesses.__init__
    monkeypatch.setattr(
        WorkerProcesses,
        "__init__",
        lambda self, folder, threads, on: made(self, folder, threads, on, command),
    )
    frame = study(Spec(FakeRun, name="a")).run(tmp_path, local(1, 1)).frame()
    assert frame["error"].tolist() == ["the worker wrote a message that is too long, 2 times"]


JOB = """
from allometry import Spec
from allometry.study import Study
from allometry.targets import Text
from tests.study.odd_results import OddRun

def odd():
    text = Text.from_string("she sells sea shells by the sea shore. " * 120)
    specs = [Spec(OddRun, kind=kind) for kind in ("nan", "float32")]
    return Study(text, [lambda target, ladder, *, tokens, seeds: specs], [1000], tokens=100)
"""


def test_the_command_line_says_that_a_run_diverged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_job.py").write_text(JOB)
    words = ["run", "odd_job.py:odd", "-o", "folder", "--workers", "1"]
    result = typer.testing.CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    assert "1 run failed or diverged" in result.output
    state = typer.testing.CliRunner().invoke(app, ["status", "folder", "--json"])
    counts = json.loads(state.output)
    assert (counts["done"], counts["diverged"], counts["waiting"]) == (1, 1, 0)
