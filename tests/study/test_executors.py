import os
import time

import pytest

from allometry import InputError, Spec
from allometry.study import local
from allometry.study.execute.executors import LocalExecutor, longest_first
from allometry.study.tasks import Task
from tests.study.fakes import FakeRun, _starts


def tasks(*behaviours, seconds=0.0):
    specs = [
        Spec(FakeRun, name=f"r{i}", behaviour=b, seconds=seconds) for i, b in enumerate(behaviours)
    ]
    return [Task(spec, spec().work()) for spec in specs]


def ends(events):
    return {
        e.task.spec.arguments["name"]: e for e in events if e.kind in ("done", "failed", "stopped")
    }


def test_every_task_ends_whatever_the_others_do(tmp_path):
    work = tasks("good", "raises", "diverges", "dies", "dies once", "prints", "good")
    told = ends(local(workers=2)(work, tmp_path))
    assert {name: e.kind for name, e in told.items()} == {
        "r0": "done",
        "r1": "failed",
        "r2": "failed",
        "r3": "failed",
        "r4": "done",
        "r5": "done",
        "r6": "done",
    }
    assert told["r1"].data["error"] == "KeyError: 'nothing here'"
    assert told["r2"].data["status"] == "diverged"
    assert told["r3"].data["error"] == "the worker was killed (SIGKILL), 2 times"
    assert _starts(tmp_path, "r3") == 2
    assert _starts(tmp_path, "r4") == 2
    assert _starts(tmp_path, "r0") == 1


def test_workers_share_the_work(tmp_path):
    started = time.monotonic()
    events = list(local(workers=2)(tasks(*["good"] * 4, seconds=0.5), tmp_path))
    assert {e.worker for e in events if e.kind == "done"} == {0, 1}
    assert time.monotonic() - started < 60


def test_the_longest_goes_first(tmp_path):
    specs = [Spec(FakeRun, name=f"r{i}", seconds=0.1 * i) for i in range(3)]
    work = [Task(s, s().work()) for s in specs]
    started = [e for e in local(workers=1)(work, tmp_path) if e.kind == "started"]
    assert [e.task.spec.arguments["name"] for e in started] == ["r2", "r1", "r0"]


def test_of_many_the_shortest_precedes_the_longest():
    specs = [Spec(FakeRun, name=f"r{i}", seconds=0.1 * (i + 1)) for i in range(7)]
    work = [Task(s, s().work()) for s in specs]

    def order(tasks, workers):
        waiting = longest_first(tasks, workers)
        return [bundle.tasks[0].spec.arguments["name"][1:] for bundle in waiting]

    assert "".join(order(work, 2)) == "0654321"
    assert "".join(order(work[:6], 2)) == "543210"


def test_closing_stops_the_workers(tmp_path):
    events = local(workers=2)(tasks("good", "good", seconds=60.0), tmp_path)
    for event in events:
        if event.kind == "progress":
            break
    started = time.monotonic()
    events.close()
    assert time.monotonic() - started < 5


def test_no_task_needs_no_worker(tmp_path):
    assert list(local()([], tmp_path)) == []


def test_threads_are_shared_out():
    cores = len(os.sched_getaffinity(0))
    assert local(workers=cores).threads == 1
    assert local(workers=1).threads == cores


@pytest.mark.parametrize("arguments", [{"workers": 0}, {"threads": 0}])
def test_none_at_all_is_refused(arguments):
    with pytest.raises(InputError, match="be at least 1"):
        local(**arguments)


def test_factories_return_executors_that_show_their_arguments():
    made = local(workers=3, threads=2)
    assert isinstance(made, LocalExecutor)
    assert repr(made).startswith("local(workers=3, threads=2")
