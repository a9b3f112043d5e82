"""The command line as a person meets it: in a process of its own, by its exit code and words."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

SMALL = [
    "--rungs",
    "4",
    "--largest",
    "6000",
    "--seeds",
    "1",
    "--tokens",
    "20000",
    "--context",
    "32",
]


def start(*arguments, cwd):
    code = "from allometry.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        # Workers of pytest-xdist ignore Ctrl-C, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def allometry(*arguments, cwd):
    with start(*arguments, cwd=cwd) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def prose():
    lines = (
        f"line {i} of a small text about nothing much, said {i % 7} times" for i in range(400)
    )
    return "\n".join(lines)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A small study, run once for all tests that read it."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(prose())
    done = allometry("run", "text.txt", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_users_own_text_runs_to_a_report(studied):
    folder, done = studied
    assert "Report: runs/text/report.html" in done.stderr
    assert (folder / "runs" / "text" / "report.html").stat().st_size < 3_000_000
    assert "nats per character" in done.stdout


def test_running_again_repeats_nothing_and_says_the_same(studied):
    folder, done = studied
    journal = folder / "runs" / "text" / "journal.jsonl"
    before = journal.read_bytes()
    again = allometry("run", "text.txt", *SMALL, cwd=folder)
    assert again.returncode == 0
    assert journal.read_bytes() == before
    assert again.stdout == done.stdout


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (("run", "text.txt", *SMALL, "--json"), {"headline", "families"}),
        (
            ("status", "runs/text", "--json"),
            {"done", "failed", "diverged", "waiting", "at_work", "seconds_left"},
        ),
        (
            ("fit", "runs/text", "--form", "floor", "--json"),
            {"form", "n", "objective", "params", "starts", "backtest", "warnings"},
        ),
        (
            ("plan", "runs/text", "--compute", "1e12", "--json"),
            {"N", "D", "loss", "form", "warnings"},
        ),
        (("list", "recipes", "--json"), {"transformer", "ngram"}),
        (("list", "targets", "--json"), {"embedded", "moons"}),
        (("list", "--json"), {"targets", "recipes", "measures", "forms", "constructions"}),
        (("list", "accelerators", "--json"), {"H100", "A100", "MI300X", "TPU-v5p"}),
        (("list", "forms", "--json"), {"chinchilla", "power"}),
    ],
)
def test_json_is_json_and_has_what_scripts_rely_on(studied, typed, arguments, keys):
    done = typed(*arguments, cwd=studied[0])
    assert done.returncode == 0, done.stderr
    assert keys <= set(json.loads(done.stdout))


def test_watching_a_study_that_is_not_running_ends_at_once(studied, typed):
    done = typed("status", "runs/text", "--watch", cwd=studied[0])
    assert done.returncode == 0, done.stderr
    assert "no process is running" in done.stdout
    assert "transformer" in done.stdout
    assert "loss" in done.stdout


def test_a_dry_run_prints_the_grid_and_writes_nothing(tmp_path, typed):
    (tmp_path / "text.txt").write_text(prose())
    done = typed("run", "text.txt", *SMALL, "--dry-run", "--json", cwd=tmp_path)
    rows = json.loads(done.stdout)
    assert len(rows) == 4 + 8
    assert {"N", "D", "C", "seconds"} <= set(rows[0])
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


def bad(name, tmp_path):
    """What is wrong, and the command that meets it."""
    text = tmp_path / "text.txt"
    if name == "missing":
        return ("run", "text.txt"), "no such file"
    if name == "empty":
        text.write_text("")
        return ("run", "text.txt"), "empty"
    if name == "binary":
        text.write_bytes(bytes(range(256)) * 40)
        return ("run", "text.txt"), "binary"
    if name == "short":
        text.write_text("a few words, no more than that, and then the end of it. " * 5)
        return ("run", "text.txt"), "longer than the context of 64 tokens"
    if name == "folder":
        return ("run", "."), "folder"
    text.write_text(prose())
    if name == "unwritable":
        return ("run", "text.txt", "-o", "/sys/allometry"), "ermission denied"
    if name == "in the way":
        (tmp_path / "runs").write_text("")
        return ("run", "text.txt"), "not a folder"
    if name == "size":
        return ("run", "text.txt", "--smallest", "10"), "at least 200"
    if name == "ladder":
        return ("run", "text.txt", "--rungs", "0"), "--rungs must be at least 1"
    if name == "vocabulary":
        return ("run", "text.txt", "--vocabulary", "runes"), "runes"
    if name == "no study":
        return ("status", "."), "without study.json"
    if name == "no column":
        (tmp_path / "runs.csv").write_text("a,b\n1,2\n")
        return ("fit", "runs.csv"), "loss"
    if name == "no function":
        (tmp_path / "job.py").write_text("x = 1\n")
        return ("run", "job.py:study"), "must define a function 'study'"
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name",
    [
        *("missing", "empty", "binary", "short", "folder", "unwritable", "in the way"),
        *("size", "ladder", "vocabulary", "no study", "no column", "no function"),
    ],
)
def test_misuse_is_one_line_exit_two_and_nothing_written(tmp_path, typed, name):
    command, words = bad(name, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = typed(*command, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert words in done.stderr
    after = [p for p in sorted(tmp_path.rglob("*")) if "__pycache__" not in p.parts]
    assert after == before


GAMES = """
from functools import partial

from allometry.study import Study
from allometry.study.recipes import gan
from allometry.targets import Points, points


def study(**settings):
    recipe = partial(gan, **settings)
    return Study(Points(points.ring()), [recipe], ladder=[500], seeds=1, tokens=[960])


def odd_pack():
    return study(pack=5)


def backwards():
    return study(unroll=-1)
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ring", "--family", "transformer"], "got 'transformer'"),
        (["digits", "--family", "gan", "--family", "vae"], "got 'vae'. Families with another"),
        (["table.csv", "--family", "gan"], "must be of points or images"),
        (["junk.npy", "--family", "gan"], "must be a whole array file"),
        (["rnig", "--family", "gan"], "Did you mean ring?"),
        (["games.py:odd_pack"], "must be a multiple of the pack 5; got 96"),
        (["games.py:backwards"], "unroll must be at least 0; got -1"),
    ],
)
def test_games_that_cannot_be_played_are_misuse(tmp_path, typed, arguments, words):
    (tmp_path / "games.py").write_text(GAMES)
    (tmp_path / "junk.npy").write_text("junk")
    rows = "\n".join(f"{i % 7},{i % 5}" for i in range(60))
    (tmp_path / "table.csv").write_text(f"a,b\n{rows}")
    done = typed("run", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "runs").exists()


WRONG = {
    "--executor slurm": "executor must be one of local, ray",
    "--executor ray:": "executor must be one of",
    "--executor local --workers 0": "workers must be at least 1; got 0",
    "--executor torchrun --workers 0": "--workers must be at least 1; got 0",
    "--device gpu": "device must be one of auto, cpu, cuda, mps; got 'gpu'",
    "--device cpu:7": "device must be auto or one of cpu",
    "--device cuda:x": "device must be",
    "--precision float64": "precision must be one of auto, float32, bfloat16, float16",
    "--rates 0.01": "rates must be at least two, all different; got [0.01]",
    "--rates 0.01 --rates 0.01": "rates must be at least two, all different",
    "--rates 0 --rates 0.1": "rates must be above 0 and finite",
    "--rates nan --rates 0.1": "rates must be above 0 and finite",
    "--rates inf --rates 0.1": "rates must be above 0 and finite",
    "--budget 10parsecs": "budget must be a duration such as 10min",
    "--budget -5min": "budget must be a duration such as 10min",
    "--budget 0min": "budget must be above 0 and finite; got 0",
    "--budget 1min --flops 1e12": "budget must be given either as time or as FLOPs; got 'both'",
    "--flops 0": "'--flops': it must be a positive number of FLOPs, such as 1e21 or 1ZFLOP; got",
    "--flops nan": "'--flops': it must be a positive number of FLOPs, such as 1e21 or 1ZFLOP; got",
    "--flops inf": "'--flops': it must be a positive number of FLOPs, such as 1e21 or 1ZFLOP; got",
    "--flops 1": "flops must be at least",
}
"""Options of `run` with what is said of them."""


@pytest.mark.parametrize("options", WRONG)
def test_wrong_options_of_a_run_are_one_line_before_anything_is_done(tmp_path, typed, options):
    (tmp_path / "text.txt").write_text(prose())
    done = typed("run", "text.txt", *options.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert WRONG[options] in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf"])
def test_a_watch_looks_at_a_sound_pace(tmp_path, typed, every):
    done = typed("status", ".", "--watch", "--every", every, cwd=tmp_path)
    assert done.returncode == 2
    assert "every must be seconds above 0 and finite" in done.stderr


def test_a_watch_has_no_json(tmp_path, typed):
    done = typed("status", ".", "--watch", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "json must be asked for without --watch" in done.stderr


def test_tensorboard_is_asked_for_before_anything_is_done(tmp_path, typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    (tmp_path / "text.txt").write_text(prose())
    done = typed("run", "text.txt", "--tensorboard", cwd=tmp_path)
    assert done.returncode == 2
    assert "allometry[tensorboard]" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 400 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_one_line_and_the_study_resumes_elsewhere_whole(tmp_path, tiny_disk, typed):
    (tmp_path / "text.txt").write_text(prose())
    done = typed("run", "text.txt", *SMALL, "-o", tiny_disk / "s", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "the disk is full" in done.stderr.strip().splitlines()[-1]
    assert not list(tiny_disk.rglob("*.part"))
    for line in (tiny_disk / "s" / "journal.jsonl").read_text().splitlines():
        assert json.loads(line)["status"] == "done"


def test_a_study_from_a_file_of_ones_own(tmp_path, typed):
    (tmp_path / "text.txt").write_text(prose())
    (tmp_path / "job.py").write_text(
        "import allometry as al\n"
        "def small():\n"
        "    return al.study.Study(al.targets.Text('text.txt'), [al.study.recipes.ngram], [1])\n"
    )
    done = typed("run", "job.py:small", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out" / "journal.jsonl").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "runs.csv"),
        ("plan", "runs.csv", "--compute", "1e16"),
        ("next", "runs.csv", "--budget", "1e15", "--compute", "1e16"),
    ],
)
def test_a_loss_that_rises_with_size_gives_a_warning(tmp_path, typed, command):
    rows = [f"{10**5 * 2**i},{2 * 10**6 * 2**i},{1.5 + 0.1 * i}" for i in range(8)]
    (tmp_path / "runs.csv").write_text("params,tokens,loss\n" + "\n".join(rows))
    done = typed(*command, cwd=tmp_path)
    assert done.returncode == 0
    assert "! The loss rises with C (rank correlation 1.00)" in done.stdout + done.stderr


def test_a_loss_to_reach_gives_compute_with_an_interval(tmp_path, typed):
    sizes, data = (10**6, 4 * 10**6, 16 * 10**6, 64 * 10**6), (10**8, 10**9, 10**10)
    rows = [f"{N},{D},{1.8 + 300 / N**0.4 + 700 / D**0.35}" for N in sizes for D in data]
    (tmp_path / "runs.csv").write_text("params,tokens,loss\n" + "\n".join(rows))
    done = typed("plan", "runs.csv", "--reach", "2.1", cwd=tmp_path)
    assert "A loss of 2.1 takes" in done.stdout
    assert "(95 % interval" in done.stdout.splitlines()[0]
    answer = json.loads(typed("plan", "runs.csv", "--reach", "2.1", "--json", cwd=tmp_path).stdout)
    needed = answer["reach"]["C"]
    assert needed["lo"] < needed["value"] < needed["hi"]
    assert answer["compute"] == pytest.approx(needed["value"])
    assert answer["loss"]["value"] == pytest.approx(2.1, rel=1e-3)
    wrong = typed("plan", "runs.csv", "--reach", "-1", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--reach must be a positive loss; got -1" in wrong.stderr


def test_the_version_is_the_packages(tmp_path, typed):
    done = typed("--version", cwd=tmp_path)
    assert done.stdout.startswith("allometry 0.")


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_stopping_is_said_in_words_and_leaves_a_checkpoint(tmp_path, asked):
    (tmp_path / "text.txt").write_text(prose())
    long = ["--rungs=1", "--largest=6000", "--seeds=1", "--tokens=20000000", "--context=32"]
    runs = tmp_path / "runs/text"

    def at_work():
        """Whether an n-gram is done and the long run beside it has been heard of: it steps."""
        done = [path.stem for path in (runs / "weights").glob("*")]
        heard = [path.name for path in (runs / "tensorboard").glob("*")]
        return bool(done) and bool(set(heard) - set(done))

    with start("run", "text.txt", *long, "--tensorboard", cwd=tmp_path) as process:
        try:
            assert process.stderr is not None
            assert "runs on text" in process.stderr.readline()
            # Checks are counted instead of seconds: a busy machine slows both down.
            for _ in range(1200):
                if at_work():
                    break
                time.sleep(0.1)
            assert at_work()
            process.send_signal(asked)
            for _ in range(600):
                if process.poll() is not None:
                    break
                time.sleep(0.1)
            err = process.communicate(timeout=1)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert err.strip() == "Stopped. The same command resumes from here."
    assert list((runs / "checkpoints").iterdir())


def test_a_reader_that_leaves_early_is_no_error(studied):
    code = "from allometry.cli import main; main()"
    shell = f"{sys.executable} -c '{code}' list recipes | head -c 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=studied[0])
    assert "Traceback" not in done.stderr
