"""Ray, carried out by a real one on this machine; one session for the whole file."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import allometry as al
from allometry import InputError, Spec
from allometry.cli import main
from allometry.study import (
    RayResources,
    Study,
    local,
    ray,
    recipes,
)
from allometry.study.execute import ray_cluster
from allometry.study.execute.executor_names import executor_by_name
from allometry.study.execute.ray_cluster import RayExecutor
from tests.study.fakes import ProcessRun, _starts
from tests.study.processes import LOOPBACK, alive, descendants, listening
from tests.study.test_deterministic import ON, asked, digits, same
from tests.study.test_executors import ends, tasks

RAY = tuple(int(part) for part in version("ray").split(".")[:2])
TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


@pytest.fixture(scope="module", autouse=True)
def session():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own processes and sockets
        with ray_cluster.connected(None, 2) as module:
            yield module


def test_it_listens_to_this_machine_only():
    found = listening()
    assert found
    assert set(found) <= LOOPBACK


def test_its_files_are_private_to_the_user(session):
    folder = Path(session._private.worker._global_node.get_session_dir_path()).parents[1]
    assert folder.name.startswith("allometry-")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


KILLED = """
import sys
import allometry as al
from allometry import Spec
from tests.study.fakes import ProcessRun

def recipe(target, ladder, *, tokens, seeds):
    return [Spec(ProcessRun, name="r0", seconds=100.0)]

text = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)
study = al.study.Study(text, [recipe], [1000], tokens=100)
study.run(sys.argv[1], al.study.ray(workers=1), watch=lambda event: print(event.kind, flush=True))
"""


@pytest.fixture
def base():
    """A folder of a short name, for the sockets in it may have no long one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def test_a_killed_driver_leaves_no_process_and_no_folder_behind(tmp_path, base):
    """Ray by itself leaves its agents running."""
    own = {"RAY_TMPDIR": str(base), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    own |= {"HOME": str(tmp_path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "study")],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    while driver.stdout.readline() != "progress\n":
        assert driver.poll() is None
    started = descendants(driver.pid)
    assert [path.name[:10] for path in base.iterdir()] == ["allometry-"]
    assert any("raylet" in line for line in started.values())
    assert any("Agent" in line for line in started.values())
    (keeper,) = (pid for pid, line in started.items() if "gcs_server" in line)
    given = Path(f"/proc/{keeper}/environ").read_text().split("\0")
    assert any(word.startswith("RAY_AUTH_TOKEN=") for word in given)  # who has none is not let in
    assert "RAY_AUTH_MODE=token" in given or RAY < (2, 60)
    assert not (tmp_path / ".ray").exists()  # where Ray would keep one that all can read
    driver.kill()
    driver.wait()
    driver.stdout.close()
    killed = time.monotonic()
    while alive(started) and time.monotonic() - killed < 10:
        time.sleep(0.1)
    assert alive(started) == {}
    assert list(base.iterdir()) == []


def test_a_cluster_that_the_user_runs_is_not_reaped(monkeypatch):
    told = {}
    fake = SimpleNamespace(
        is_initialized=lambda: False, init=told.update, shutdown=lambda: told.update(left=True)
    )
    monkeypatch.setattr(ray_cluster, "require_extra", lambda *_: fake)
    monkeypatch.setattr(
        ray_cluster, "private_ray_folder", lambda: pytest.fail("it is not ours to end")
    )
    with ray_cluster.connected("10.0.0.1:6379", 2):
        assert told["address"] == "10.0.0.1:6379"
        assert "_temp_dir" not in told
    assert told["left"]


@pytest.mark.slow
def test_every_task_ends_whatever_the_others_do(tmp_path):
    work = tasks("good", "raises", "diverges", "dies", "prints")
    told = ends(ray(workers=1)(work, tmp_path))
    kinds = [told[f"r{i}"].kind for i in range(5)]
    assert kinds == ["done", "failed", "failed", "failed", "done"]
    assert told["r1"].data["error"] == "KeyError: 'nothing here'"
    assert told["r2"].data["status"] == "diverged"
    assert "the worker died" in told["r3"].data["error"]
    assert [_starts(tmp_path, f"r{i}") for i in (0, 3)] == [1, 2]
    assert not list(tmp_path.glob(".seen*"))


def real_study():
    return Study(TEXT, [recipes.transformer, recipes.ngram], [900, 2000], seeds=1, tokens=[8e3])


def essence(runs):
    columns = ["key", "family", "shape", "seed", "N", "D", "C", "status", "loss", "test_loss"]
    return runs.frame().sort_values("key")[columns].reset_index(drop=True)


def test_the_same_study_gives_the_same_journal_as_on_this_machine(tmp_path):
    here = real_study().run(tmp_path / "local", local(workers=1, threads=1))
    there = real_study().run(tmp_path / "ray", ray(workers=1))
    a, b = essence(here), essence(there)
    exact = ["key", "family", "shape", "seed", "N", "D", "C", "status"]
    assert a[exact].equals(b[exact])
    for loss in ("loss", "test_loss"):
        torch.testing.assert_close(
            torch.tensor(a[loss]), torch.tensor(b[loss]), rtol=1e-5, atol=1e-6
        )
    assert set(here.frame().columns) == set(there.frame().columns)
    pairs = [sorted(p.name for p in (r.folder / "weights").iterdir()) for r in (here, there)]
    assert pairs[0] == pairs[1]
    assert list((there.folder / "checkpoints").iterdir()) == []


def test_a_worker_killed_in_the_middle_of_a_run_is_replaced_and_the_study_completes(tmp_path):
    def recipe(target, ladder, *, tokens, seeds):
        return [Spec(ProcessRun, name=f"r{i}", seconds=1.5) for i in range(3)]

    killed, progress = [], []

    def watch(event):
        progress.extend([event.data["step"]] if event.kind == "progress" else [])
        if event.kind == "progress" and not killed:
            killed.append(int((tmp_path / "r0.pid").read_text()))
            os.kill(killed[0], signal.SIGKILL)

    runs = Study(TEXT, [recipe], [1000], tokens=100).run(tmp_path, ray(workers=1), watch=watch)
    assert len(killed) == 1
    assert len(progress) > 3  # while the runs went on
    assert runs.frame()["status"].tolist() == ["done"] * 3
    assert len(runs.journal.read()) == 3
    assert sum(_starts(tmp_path, f"r{i}") for i in range(3)) == 4


def test_closing_lets_the_run_at_hand_leave(tmp_path):
    events = ray(workers=1)(tasks("good", seconds=60.0), tmp_path)
    for event in events:
        if event.kind == "progress":
            break
    started = time.monotonic()
    events.close()
    assert time.monotonic() - started < 8


def test_deterministic_runs_end_in_the_digits_of_local(tmp_path):
    folders = tmp_path / "ray", tmp_path / "local"
    by_ray = asked().run(folders[0], ray(workers=2, on=ON))
    assert same(digits(by_ray), digits(asked().run(folders[1], local(1, on=ON))))


@pytest.mark.slow
def test_weights_come_back_where_the_folder_is_not_shared(tmp_path, monkeypatch):
    """A node that does not see the driver's folder: the file by which it would know is gone.

    The second run needs another worker than the first.
    """
    study = Study(TEXT, [recipes.transformer], [900], seeds=2, tokens=[4e3])
    folder, made, asked = tmp_path / "far", ray_cluster._Actors.__init__, []

    def blind(self, *arguments):
        made(self, *arguments)
        self.seen.unlink()

    def needs(bundle):
        asked.append(bundle)
        return RayResources(cpus=float(len(asked)))

    monkeypatch.setattr(ray_cluster._Actors, "__init__", blind)
    runs = study.run(folder, ray(workers=1, needs=needs))
    assert runs.frame()["status"].tolist() == ["done", "done"]
    for key in runs.frame()["key"]:
        saved = al.study.load(folder / "weights" / f"{key}.safetensors")
        assert saved.family == "transformer"
    assert len(asked) == 2


def test_bad_names_and_numbers_are_refused():
    for words in ("slurm", "ray:", "local:3", ""):
        with pytest.raises(InputError, match="executor must be one of local"):
            executor_by_name(words)
    with pytest.raises(InputError, match="be at least 1"):
        ray(workers=0)
    assert isinstance(executor_by_name("ray", workers=2), RayExecutor)
    assert executor_by_name("ray:auto", workers=2).address == "auto"


def test_an_unreachable_address_is_reported_in_a_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for address, words in [
        ("127.0.0.1:1", "Can't reach Ray at 127.0.0.1:1: Connection refused."),
        (
            "nonsense",
            "--executor ray:ADDRESS must be auto, HOST:PORT or ray://HOST:PORT; got 'nonsense'.",
        ),
    ]:
        line = ["allometry", "run", "embedded", "--executor", f"ray:{address}"]
        monkeypatch.setattr(sys, "argv", [*line, "-o", str(tmp_path / "none")])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 2
        assert capsys.readouterr().err == f"allometry: {words}\n"
    assert not (tmp_path / "none").exists()
