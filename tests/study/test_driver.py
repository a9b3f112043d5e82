"""The driver's loop, with scripted workers."""

from collections import deque

import pytest

from allometry import Spec
from allometry._core.errors import WorkerError
from allometry.study.execute.driver import Workers, WorkerState, drive
from allometry.study.tasks import Task, single
from tests.study.fakes import FakeRun


class Scripted(Workers):
    """Workers like Ray's: bundles are dispatched before their first message."""

    def __init__(self, *fates):
        super().__init__(1)
        self.fates, self.messages = list(fates), []

    def start(self, index):
        self.members[index] = WorkerState(idle=True)

    def dispatch(self, index, bundle):
        self.members[index].start(bundle)
        key = bundle.tasks[0].key
        self.messages += {
            "lost": [(index, None)],
            "dies": [(index, {"event": "hello"}), (index, None)],
            "does": [
                (index, {"event": "done", "key": key, "columns": {}}),
                (index, {"event": "ready"}),
            ],
        }[self.fates.pop(0)]

    def wait(self):
        now, self.messages = self.messages, []
        return now

    def shut_down(self, index):
        self.messages.append((index, None))

    def remove(self, index):
        del self.members[index]
        return "was lost"

    def close(self):
        pass


def driven(*fates):
    task = Task(Spec(FakeRun, name="r"), 1.0)
    return [event.kind for event in drive(Scripted(*fates), deque([single(task)]), 1)]


def test_a_run_that_never_started_is_not_counted_as_failed():
    """A node that is cut off may be chosen once more before the cluster knows."""
    assert driven("dies", "lost", "does") == ["started", "started", "started", "done"]


def test_a_run_whose_workers_exit_twice_has_failed():
    assert driven("dies", "dies") == ["started", "started", "failed"]


def test_workers_that_never_start_end_the_study():
    with pytest.raises(WorkerError, match="Workers don't start"):
        driven("lost", "lost", "lost", "does")
