"""Workers as forks of a server that has imported torch."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allometry.study import Study, local, recipes
from allometry.study.execute import child_processes
from allometry.targets import Text
from tests.study.processes import alive, descendants

WORKER = "allometry.study.execute.worker"
TEXT = Text.from_string("she sells sea shells by the sea shore. " * 300)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


@pytest.fixture
def started():
    children = []

    def start(threads=1):
        children.append(child_processes.start(WORKER, threads=threads))
        assert json.loads(children[-1].stdout.readline()) == {"event": "ready"}
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()


def pid_of(child):
    return int(child.heard.split(b"\n")[0]) if child._listen(10) else 0


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_further_workers_start_without_imports(started):
    server = started().server
    before = cpu_seconds(server.process.pid)
    children = [started() for _ in range(3)]
    each = [cpu_seconds(pid_of(child)) for child in children]
    assert {child.server for child in children} == {server}
    # A new process takes about three seconds of CPU.
    assert max(each) < 0.3
    assert cpu_seconds(server.process.pid) - before < 0.9


def test_exit_codes_are_those_of_the_process(started):
    stopped, killed, invalid = started(), started(), started()
    stopped.stdin.write(b'{"stop": true}\n')
    stopped.stdin.flush()
    assert stopped.wait(20) == 0
    killed.kill()
    assert killed.wait(20) == -signal.SIGKILL
    os.kill(pid_of(invalid), signal.SIGABRT)
    assert invalid.wait(20) == -signal.SIGABRT
    with pytest.raises(subprocess.TimeoutExpired):
        started().wait(0.05)


def test_a_worker_survives_the_death_of_its_server(started):
    first = started()
    first.server.process.kill()
    first.server.process.wait(20)
    first.stdin.write(b'{"stop": true}\n')
    first.stdin.flush()
    assert first.stdout.read() == b""  # it read the order and ended
    assert first.wait(20) == 1  # nobody knows how
    second = started()
    assert second.server is not first.server
    second.server.process.kill()
    second.server.process.wait(20)
    pid = pid_of(second)
    second.kill()
    assert second.stdout.read() == b""
    until = time.monotonic() + 20  # files are closed before the process has ended
    while alive({pid: ""}) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive({pid: ""})


def test_a_worker_has_its_own_environment_folder_and_threads(started, tmp_path, monkeypatch):
    server = started().server
    monkeypatch.setenv("ALLOMETRY_TEST", "seen")
    monkeypatch.chdir(tmp_path)
    child = started()
    assert child.server is server
    pid = pid_of(child)
    assert Path(f"/proc/{pid}/cwd").readlink() == tmp_path
    # A session of its own: Ctrl-C in the terminal is for the driver.
    assert os.getsid(pid) == pid
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 2  # the second reads orders
    assert started(threads=2).server is not server


def test_forks_only_where_they_are_safe(monkeypatch):
    assert child_processes.can_fork("cpu")
    assert not child_processes.can_fork("cuda:0")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not child_processes.can_fork("cpu")


def test_a_server_with_threads_starts_new_processes(tmp_path):
    code = """
import socket, sys, threading
from allometry.study.execute import fork_server
threading.Thread(target=threading.Event().wait, daemon=True).start()
fork_server.PRELOADED = ()
fork_server.threads = lambda counts=iter([1, 2]): next(counts)
fork_server.main()
"""
    path = tmp_path / "server.py"
    path.write_text(code)
    asked = "import sys; from allometry.study.execute import child_processes as c\n"
    asked += f"c.COMMAND = (sys.executable, {str(path)!r})\n"
    asked += f"w = c.start({WORKER!r}, threads=1); print(w.stdout.readline())\n"
    asked += "pid = int(w.heard.split(b'\\n')[0]) if w._listen(10) else 0\n"
    asked += "print(open(f'/proc/{pid}/cmdline').read())\n"
    asked += "w.stdin.write(b'{\"stop\": 1}\\n'); w.stdin.flush(); print(w.wait(10))\n"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert "ready" in done.stdout, done.stderr
    assert WORKER in done.stdout
    assert done.stdout.endswith("0\n")


DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
from allometry.study import Study, local, recipes
from allometry.targets import Text
text = Text.from_string("she sells sea shells by the sea shore. " * 300)
study = Study(text, [recipes.transformer], [2e3], seeds=2, tokens=[1e7])
study.run(sys.argv[1], local(workers=2, threads=1), watch=lambda e: print(e.kind, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_server_and_workers_end_with_the_driver(tmp_path, number):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "study")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with driver, driver.stdout:
        while driver.stdout.readline() != "progress\n":
            assert driver.poll() is None
        known = descendants(driver.pid)
        assert len(known) == 4
        os.kill(driver.pid, number)
        driver.wait(30)
        until = time.monotonic() + 10
        while alive(known) and time.monotonic() < until:
            time.sleep(0.05)
        assert alive(known) == {}


def test_forked_and_new_processes_write_the_same_results(tmp_path, monkeypatch):
    study = Study(TEXT, [recipes.transformer], [900], seeds=1, tokens=[4e3])
    forked = study.run(tmp_path / "forked", local(workers=1, threads=1)).frame()
    monkeypatch.setattr(child_processes, "can_fork", lambda _: False)
    new = study.run(tmp_path / "new", local(workers=1, threads=1)).frame()
    columns = ["key", "status", "loss", "loss_se", "test_loss", "energy_distance"]
    assert forked[columns].equals(new[columns])
