"""A study's folder from anyone: every command ends in a sentence and touches nothing outside."""

import contextlib
import json
import math
import os
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from allometry import Spec
from allometry.cli import main
from allometry.models import Recurrent
from allometry.targets.vocabulary import Bytes
from allometry.train import checkpoint
from tests.study.fakes import FakeRun

KEYS = [f"{n:016x}" for n in range(6)]
SECRET = "the canary's own words"
HANG = 60
"""Seconds after which a command counts as hanging, on a busy machine."""


def record(n, **more):
    N, D = 1000 * 3**n, 20_000 * 2**n
    return {
        "key": KEYS[n], "family": "transformer", "target": "text", "shape": f"{n} layers",
        "rung": n, "seed": 0, "N": N, "N_embedding": 5, "D": D, "D_unique": 9000, "C": 6.1 * N * D,
        "C_6ND": 6 * N * D, "loss": 1 + 5 * N**-0.2, "loss_se": 0.01, "test_loss": 2.0,
        "test_loss_se": 0.01, "seconds": 1.0, "status": "done", "error": None,
        "versions": {"python": "3"}, "measures": [], "sample": "words",
    } | more  # fmt: skip


ABOUT = {
    "target": {"name": "text", "unit": "nats per character", "fingerprint": "f", "D_unique": 9000},
    "runs": KEYS,
    "ladder": [1000.0],
    "tokens": [20000.0],
    "seeds": 1,
    "versions": {"python": "3"},
}
CURVE = {name: np.arange(1.0, 9) for name in ("step", "tokens", "flops", "loss")}
HOW = {"size": 1, "compiled": False, "traced": False, "threads": None}


def bundle(*keys):
    return {"keys": list(keys), "how": HOW, "work": dict.fromkeys(keys, 1.0)}


SETTLED = Spec(FakeRun, name="a").key
"""The one run that the job below asks for: resuming has nothing to do but to read and write."""


def make(folder, records=None, about=ABOUT):
    for part in ("curves", "weights", "checkpoints"):
        (folder / part).mkdir(parents=True)
    lines = [record(n) for n in range(5)] if records is None else records
    lines = [*lines, record(5, key=SETTLED, status="diverged", loss=None)]
    (folder / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    (folder / "study.json").write_text(json.dumps(about))
    (folder / "schedule.json").write_text(json.dumps({KEYS[5]: bundle(KEYS[5])}))
    (folder / "lock").write_text("")
    for key in KEYS[:5]:
        np.savez(folder / "curves" / f"{key}.npz", **CURVE)
        weights(folder / "weights" / f"{key}.safetensors")


def weights(path):
    shape = Spec(Recurrent, vocabulary=256, width=4, depth=1)
    said = {"model": json.dumps(shape.to_dict()), "vocabulary": json.dumps(Bytes().to_dict())}
    checkpoint.save_weights(path, shape(), said | {"family": "ngram", "unit": "nats"})


@pytest.fixture
def place(tmp_path):
    """A study's folder, beside a canary that nobody may touch."""
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_text(SECRET)
    (canary / "x.safetensors").write_text(SECRET)
    (canary / "folder").mkdir()
    (canary / "folder" / f"{KEYS[0]}.npz").write_text(SECRET)
    (canary / "folder" / f"{KEYS[0]}.safetensors").write_text(SECRET)
    (tmp_path / "job.py").write_text(JOB)
    make(tmp_path / "study")
    return tmp_path


JOB = f"""
from allometry import Spec
from allometry.study import Study
from tests.study.fakes import FakeRun


class Nothing:
    name, D_unique = "text", 9000.0

    def describe(self):
        return {ABOUT["target"]!r}


def study():
    def recipe(target, ladder, *, tokens, seeds):
        return [Spec(FakeRun, name="a")]
    return Study(Nothing(), [recipe], [1000.0], tokens=20000.0)
"""


def snapshot(folder):
    """Everything there: names, kinds, times and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        found[str(path)] = (about.st_mode, about.st_mtime_ns, about.st_ino, content)
    return found


COMMANDS = {
    "status": ("status", "study"),
    "status --json": ("status", "study", "--json"),
    "report": ("report", "study"),
    "generate": ("generate", "study", "--n", "4", "--prompt", "a"),
    "fit": ("fit", "study", "--bootstrap", "20"),
}


@pytest.fixture
def typed(place, monkeypatch, capfd):
    """Type a command beside the folder; its code, its words, and whether the canary lives."""

    def type_in(*arguments):
        before = snapshot(place / "canary")
        monkeypatch.chdir(place)
        monkeypatch.setattr(sys, "argv", ["allometry", *map(str, arguments)])
        code = 0
        with in_time():
            try:
                main()
            except SystemExit as left:
                code = left.code or 0
        out, err = capfd.readouterr()
        assert snapshot(place / "canary") == before, "something outside was touched"
        assert code in (0, 1, 2), (code, err)
        assert "Traceback" not in err
        assert SECRET not in out + err
        assert not {*out, *err} & {chr(c) for c in (*range(9), *range(14, 32), 127)}, "controls"
        if code == 2:
            said = [line for line in err.splitlines() if line.startswith("allometry: ")]
            assert len(said) == 1, err
            assert err.strip().endswith(said[0]), err
        page = place / "study" / "report.html"
        if arguments[0] == "report" and code == 0 and page.exists():
            assert SECRET not in page.read_text()
            assert "<script>alert" not in page.read_text()
        return code, out, err

    return type_in


@contextlib.contextmanager
def in_time():
    def late(*_):
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_the_folder_is_fine_as_it_is(typed):
    for command in COMMANDS.values():
        assert typed(*command)[0] == 0


FILES = {
    "study.json": ("status", "report"),
    "journal.jsonl": ("status", "report", "generate", "fit"),
    "schedule.json": ("status",),
    "lock": ("status",),
    f"curves/{KEYS[0]}.npz": ("report",),
    f"weights/{KEYS[4]}.safetensors": ("generate",),
    "report.html": ("report",),
}
"""With the commands that read or write them."""

FOLDERS = ("curves", "weights", "checkpoints", "report_charts", "samples", "pictures")


def away(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def put_link(path):
    away(path)
    path.symlink_to("/dev/zero")


def put_pipe(path):
    away(path)
    os.mkfifo(path)


def put_folder(path):
    away(path)
    path.mkdir()


def put_canary(path):
    away(path)
    up = "../../canary/file" if path.parent.name != "study" else "../canary/file"
    path.symlink_to(up)


def put_nothing(path):
    away(path)
    path.symlink_to("nowhere")


def put_huge(path):
    away(path)
    with path.open("wb") as file:
        file.truncate(1 << 36)


def put_bytes(path):
    away(path)
    path.write_bytes(b"\xff" + b"{[" * 5000 + b"\n")


def put_deep(path):
    away(path)
    path.write_bytes(b"[" * 1_000_000 + b"\n")


NO_FILE = (put_link, put_pipe, put_folder, put_canary, put_nothing)
TRICKS = (put_link, put_pipe, put_folder, put_canary, put_nothing, put_huge, put_bytes, put_deep)


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_something_else(place, typed, name, trick):
    trick(place / "study" / name)
    for command in FILES[name]:
        code, _, _ = typed(*COMMANDS[command])
        if name == "schedule.json":
            assert code == 0  # it only says how long the rest will take
        elif name != "report.html" and (name != "lock" or trick in NO_FILE):
            assert code == 2
    if name == "report.html" and trick is put_canary:
        assert not (place / "study" / name).is_symlink()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_leads_elsewhere(place, typed, name):
    path = place / "study" / name
    away(path)
    path.symlink_to("../canary/folder")
    for command in ("report", "generate"):
        typed(*COMMANDS[command])
    code, _, err = typed("run", "job.py:study", "-o", "study")
    assert code == 2
    assert "symbolic link" in err


@pytest.mark.parametrize("trick", [put_canary, put_pipe, put_link], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", ["lock", "journal.jsonl", "study.json", "schedule.json"])
def test_resuming_does_not_follow_what_it_would_write(place, typed, name, trick):
    trick(place / "study" / name)
    assert typed("run", "job.py:study", "-o", "study")[0] == 2


@pytest.mark.parametrize("name", ["lock", "journal.jsonl"])
def test_a_second_name_of_a_file_outside_is_not_written_through(place, typed, name):
    (place / "study" / name).unlink()
    (place / "canary" / "file").write_text("")
    (place / "study" / name).hardlink_to(place / "canary" / "file")
    code, _, err = typed("run", "job.py:study", "-o", "study")
    assert code == 2
    assert "hard link" in err


SCHEDULES = {
    "path": {"../../canary/x": bundle(KEYS[5])},
    "absolute": {"/tmp/x": bundle(KEYS[5])},
    "pattern": {"*": bundle(KEYS[5])},
    "key": {KEYS[5]: bundle("../../canary/x")},
    "list": [1, 2],
    "null": None,
    "bundle": {KEYS[5]: 3},
    "how": {KEYS[5]: bundle(KEYS[5]) | {"how": {"size": "many"}}},
    "threads": {KEYS[5]: bundle(KEYS[5]) | {"how": HOW | {"threads": 10**9}}},
    "unknown": {KEYS[5]: bundle(KEYS[5]) | {"how": HOW | {"__class__": 1}}},
    "work": {KEYS[5]: bundle(KEYS[5]) | {"work": {KEYS[5]: "long"}}},
    "missing": {KEYS[5]: {"keys": [KEYS[5]]}},
}


@pytest.mark.parametrize("said", SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_of_someone_elses(place, typed, said):
    (place / "study" / "schedule.json").write_text(json.dumps(said))
    assert typed("status", "study")[0] == 0
    code, _, err = typed("run", "job.py:study", "-o", "study")
    assert code == 2
    assert "it is not a schedule. Delete it" in err


ABOUTS = {
    "list": [],
    "number": 3,
    "target": ABOUT | {"target": "text"},
    "runs": ABOUT | {"runs": "all"},
    "path": ABOUT | {"runs": ["../../canary/x"]},
    "nested": ABOUT | {"runs": [[KEYS[0]]]},
    "former": ABOUT | {"former": {KEYS[0]: "../../canary/x"}},
    "versions": ABOUT | {"versions": [1]},
    "unit": ABOUT | {"target": ABOUT["target"] | {"unit": 3}},
    "name": ABOUT | {"target": ABOUT["target"] | {"name": {"a": 1}}},
    "unique": ABOUT | {"target": ABOUT["target"] | {"D_unique": "many"}},
    "tokens": ABOUT | {"target": ABOUT["target"] | {"tokens": {"validation": "x"}}},
    "images": ABOUT | {"target": ABOUT["target"] | {"kind": "images", "shape": "large"}},
    "levels": ABOUT | {"target": ABOUT["target"] | {"kind": "images", "shape": [1], "levels": 1}},
    "points": ABOUT | {"target": ABOUT["target"] | {"kind": "points"}},
}


@pytest.mark.parametrize("said", ABOUTS.values(), ids=ABOUTS)
def test_a_study_that_describes_itself_wrongly(place, typed, said):
    (place / "study" / "study.json").write_text(json.dumps(said))
    for command in ("status", "report"):
        assert typed(*COMMANDS[command])[0] == 2
    assert typed("run", "job.py:study", "-o", "study")[0] == 2


ODD = {
    "question": ABOUT | {"target": {"kind": "question", "name": "none"}},
    "density": ABOUT | {"target": {"kind": "points", "density": {"spec": "os:system"}}},
    "empty": {},
    "extra": ABOUT | {"target": {"shape": "x", "levels": "y", "tokens": 3, "kind": "other"}},
    "zero": ABOUT | {"target": ABOUT["target"] | {"D_unique": 0}},
    "less": ABOUT | {"target": ABOUT["target"] | {"D_unique": -1e300}},
    "nan": ABOUT | {"target": ABOUT["target"] | {"D_unique": math.nan}},
}


@pytest.mark.parametrize("said", ODD.values(), ids=ODD)
def test_a_study_that_describes_itself_oddly(place, typed, said):
    (place / "study" / "study.json").write_text(json.dumps(said))
    for command in ("status", "report"):
        typed(*COMMANDS[command])


RECORDS = {
    "no runs": [],
    "path": [record(0, key="../../canary/x")],
    "absolute": [record(0, key="/etc/passwd")],
    "pattern": [record(0, key="*")],
    "list": [[1]],
    "words": ["done"],
    "N": [record(0, N="many")],
    "loss": [record(0, loss=[1])],
    "seed": [record(n, seed=1.5) for n in range(5)],
    "huge": [record(n, N=10**300, D=10**300, C=1e308) for n in range(5)],
    "tiny": [record(n, N=5e-324, D=5e-324, C=5e-324, loss=5e-324) for n in range(5)],
    "zero": [record(n, N=0, D=0, C=0, loss=0) for n in range(5)],
    "negative": [record(n, N=-1, D=-1, C=-1, loss=-1, seconds=-1) for n in range(5)],
    "nothing": [record(n, N=None, D=None, C=None, loss=None, seed=None) for n in range(5)],
    "bare": [{"key": key, "status": "done"} for key in KEYS[:5]],
    "failed": [record(n, status="failed", loss=None, error="no") for n in range(5)],
    "controls": [record(n, family="\x1b]0;x\x07", shape="\x1b[2J", target="\x9b")
                 for n in range(5)],
    "markup": [record(n, family="<script>alert(1)</script>[red]", shape="[/]") for n in range(5)],
    "error": [record(n, status="diverged", error="\x1b[31m<script>alert(1)</script>")
              for n in range(5)],
    "sample": [record(n, sample="\x1b[2J<script>alert(1)</script>") for n in range(5)],
    "measures": [record(n, measures=[1, {"a": 2}]) for n in range(5)],
    "versions": [record(n, versions={"python": {"a": [1]}}) for n in range(5)],
    "columns": [record(n, **{"<b>": [1], "../x": {"a": 1}}) for n in range(5)],
    "long": [record(n, shape="x" * 100_000, family="y" * 5_000) for n in range(5)],
}  # fmt: skip


@pytest.mark.parametrize("lines", RECORDS.values(), ids=RECORDS)
def test_a_journal_of_someone_elses(place, typed, lines):
    shutil.rmtree(place / "study")
    make(place / "study", lines)
    for command in ("status", "report", "generate", "fit"):
        typed(*COMMANDS[command])


def arrays(**more):
    return lambda path: np.savez(path, **(CURVE | more))


CURVES = {
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-300]),
    "empty": lambda path: path.write_bytes(b""),
    "flipped": lambda path: path.write_bytes(path.read_bytes().replace(b"descr", b"desxr")),
    "another": lambda path: np.savez(path, other=np.zeros(3)),
    "none": lambda path: np.savez(path),
    "lengths": arrays(loss=np.zeros(3)),
    "plane": arrays(loss=np.zeros((8, 2))),
    "words": arrays(loss=np.array(["a"] * 8)),
    "objects": lambda path: np.savez(path, allow_pickle=True, **CURVE, x=np.array([{}], object)),
}


@pytest.mark.parametrize("damage", CURVES.values(), ids=CURVES)
def test_a_damaged_curve_is_named(place, typed, damage):
    path = place / "study" / "curves" / f"{KEYS[0]}.npz"
    damage(path)
    code, _, err = typed("report", "study")
    assert code == 2
    assert f"curves/{KEYS[0]}.npz: it is damaged" in err
    assert typed("status", "study")[0] == 0


FINE_CURVES = {
    "nan": arrays(loss=np.full(8, math.nan)),
    "negative": arrays(loss=np.full(8, -1.0), tokens=np.full(8, -1.0)),
    "zero": arrays(step=np.zeros(8), tokens=np.zeros(8)),
    "no points": lambda path: np.savez(path, **{k: v[:0] for k, v in CURVE.items()}),
    "huge": arrays(tokens=np.full(8, 1e308), loss=np.full(8, 1e308)),
}


@pytest.mark.parametrize("curve", FINE_CURVES.values(), ids=FINE_CURVES)
def test_a_curve_of_odd_numbers_is_drawn_or_left_out(place, typed, curve):
    for key in KEYS[:5]:
        curve(place / "study" / "curves" / f"{key}.npz")
    assert typed("report", "study")[0] == 0


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_torn_weights_are_one_sentence(place, typed, cut):
    path = place / "study" / "weights" / f"{KEYS[4]}.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    code, _, err = typed("generate", "study")
    assert code == 2
    assert str(path.name) in err


@pytest.fixture
def read_only(place):
    """The folder, which cannot be written: mounted so where we are root, who may do anything."""
    study = place / "study"
    if os.getuid() != 0:
        for path in [study, *study.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield study
        for path in [study, *study.rglob("*")]:
            path.chmod(0o755)
        return
    if shutil.which("mount") is None:
        pytest.skip("a read-only folder needs a mount where we are root")
    bind = ["mount", "--bind", str(study), str(study)]
    lock = ["mount", "-o", "remount,ro,bind", str(study)]
    if subprocess.run(bind, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        if subprocess.run(lock, capture_output=True).returncode:
            pytest.skip("mounting read-only is not allowed here")
        yield study
    finally:
        subprocess.run(["umount", "-l", str(study)], check=True)


def test_status_and_report_work_on_a_folder_that_can_not_be_written(place, read_only, typed):
    before = snapshot(read_only)
    code, _, err = typed("status", "study")
    assert code == 0
    assert "5 done" in err
    code, _, err = typed("report", "study")
    assert code == 0
    assert "is read-only" in err
    assert (place / "study-report.html").is_file()
    code, _, err = typed("run", "job.py:study", "-o", "study")
    assert code == 2
    assert "Choose a place you may write to" in err
    assert snapshot(read_only) == before


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 200 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_resuming_on_a_full_disk_says_so(place, full_disk, typed):
    shutil.copytree(place / "study", full_disk / "study")
    with contextlib.suppress(OSError), (full_disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    before = snapshot(full_disk)
    code, _, err = typed("run", "job.py:study", "-o", full_disk / "study")
    assert code == 2
    assert "the disk is full. Free some space" in err.splitlines()[-1]
    journal = str(full_disk / "study" / "journal.jsonl")
    assert snapshot(full_disk)[journal] == before[journal]
    assert typed("status", full_disk / "study")[0] == 0
