import os
import signal
import subprocess
import sys
import time

import pytest

from allometry._core.errors import LockedError
from allometry.runs.lock import holder, locked

HOLD = """
import sys, time
from pathlib import Path
from allometry.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_by_name(tmp_path, other):
    with pytest.raises(LockedError, match=rf"in use by process {other.pid} on"), locked(tmp_path):
        pass
    assert f"process {other.pid}" in holder(tmp_path)


def test_a_killed_process_leaves_no_lock(tmp_path, other):
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with locked(tmp_path):
        assert holder(tmp_path) == f"process {os.getpid()} on {os.uname().nodename}"
    assert holder(tmp_path) is None


def test_the_lock_ends_with_the_block(tmp_path):
    for _ in range(2):
        with locked(tmp_path):
            time.sleep(0)
