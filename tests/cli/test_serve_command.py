"""`allometry serve` as a process: it follows the runs, needs no torch, and ends cleanly."""

import json
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest

from tests.cli.test_without_torch import BLOCKED, RUNS

QUICK = ("--form", "chinchilla", "--bootstrap", "16", "--every", "0.2")


def version(address):
    with urlopen(f"{address}version", timeout=30) as reply:
        return json.load(reply)["version"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_the_runs_without_torch_and_ends_on_ctrl_c(tmp_path, end):
    runs, private = tmp_path / "runs.csv", tmp_path / "private"
    runs.write_text(RUNS)
    private.mkdir()
    command = [sys.executable, "-c", BLOCKED, "serve", "runs.csv", *QUICK]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(private), "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=30) as reply:
            assert b"Scaling law of 12 runs" in reply.read()
        if end == signal.SIGINT:
            first = version(address)
            runs.write_text(f"{RUNS}\n1e9,2e10,2.4\n")
            until = time.monotonic() + 60
            while version(address) == first and time.monotonic() < until:
                time.sleep(0.2)
            with urlopen(address, timeout=30) as reply:
                assert b"Scaling law of 13 runs" in reply.read()
        process.send_signal(end)
        _, messages = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert messages.splitlines()[-1] == "Ended."
    assert "Traceback" not in messages
    assert list(private.iterdir()) == []


def test_mistakes_are_refused_in_one_line(typed, tmp_path):
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "none.csv").write_text("a,b\n1,2\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for line, why in (
            (("missing.csv",), "got no such path"),
            (("none.csv",), "loss"),
            (("runs.csv", "--form", "E+A/N"), "--form must be one of auto, power"),
            (("runs.csv", "--every", "0"), "every must be at least 0.1 seconds"),
            (("runs.csv", "--port", "70000"), "65535"),
            (("runs.csv", "--port", port, *QUICK), "--port must be free"),
        ):
            done = typed("serve", *line, cwd=tmp_path)
            assert done.returncode == 2, done.stderr
            assert why in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert done.stdout == ""
