"""`allometry run --command`: the user's own script as a ladder."""

import json
import sys

import pytest

from tests.study.test_own_training import SCRIPT


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_study_by_the_command_line_resumes_and_keeps_what_finished(script, tmp_path, typed):
    def run(mode):
        command = f"{sys.executable} {script} {{mode}} {{width}} {{seed}}"
        table = tmp_path / "shapes.csv"
        table.write_text(f"width,mode,N,D\n8,fine,1536,9\n16,{mode},6144,9\n")
        return typed(
            "run", "--command", command, "--shapes", "shapes.csv", "--seeds", "1", "--metric",
            "val loss (\\S+)", "--workers", "1", "--folder", "out", "--retries", "0", cwd=tmp_path,
        )  # fmt: skip

    first = run("crash")
    assert first.returncode == 1, first.stderr
    assert "the command ended with exit code 1" in first.stderr
    journal = tmp_path / "out" / "journal.jsonl"
    assert [json.loads(line)["status"] for line in journal.read_text().splitlines()] == [
        "failed", "done",
    ]  # fmt: skip
    status = typed("status", "out", "--json", cwd=tmp_path)
    assert status.returncode == 0, status.stderr


def test_a_command_in_a_folder_is_never_run(tmp_path, typed):
    """A stranger's study.json may contain anything: status, report and fit run nothing of it."""
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    row = {
        "key": "0" * 16, "family": "own", "target": "own", "shape": "w", "seed": 0, "rung": 0,
        "N": 100, "D": 1000, "C": 6e5, "loss": 2.0, "status": "done", "command": command,
        "spec": "allometry.study.own_training.command_runs:CommandRun",
    }  # fmt: skip
    folder = tmp_path / "study"
    folder.mkdir()
    about = {"target": {"name": "own", "kind": "own", "command": command}, "runs": ["0" * 16]}
    (folder / "study.json").write_text(json.dumps(about | {"command": command}))
    (folder / "journal.jsonl").write_text(json.dumps(row) + "\n")
    for asked in (["status", "study"], ["report", "study"], ["fit", "study"]):
        typed(*asked, cwd=tmp_path)
    assert not mark.exists()


def test_a_budget_leaves_out_what_cannot_end_and_a_larger_one_resumes(tmp_path, typed):
    """The second shape has 4096 times the FLOPs of the first, which takes 0.2 s at least."""
    (tmp_path / "train.py").write_text(
        "import sys, time\n"
        "width, seed = int(sys.argv[1]), int(sys.argv[2])\n"
        "time.sleep(100.0 if width == 32 else 0.2)\n"
        "print('val loss', 3 / width + seed / 1000)\n"
    )

    def run(budget):
        return typed(
            "run", "--command", f"{sys.executable} train.py {{width}} {{seed}}", "--shapes",
            "width=8,32; N=width^2; D=1000*width^4", "--metric", "val loss (\\S+)", "--seeds", "2",
            "--workers", "1", "--folder", "out", "--budget", budget, cwd=tmp_path,
        )  # fmt: skip

    first = run("10min")
    assert first.returncode == 0, first.stderr
    assert "Left out to keep to the budget: 2 runs, train width 32 (2)." in first.stderr
    assert "Traceback" not in first.stderr
    lines = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["width"] for line in lines] == [8, 8]
    again = run("1s")
    assert "The budget is spent" in again.stderr
    assert (tmp_path / "out" / "journal.jsonl").read_text().splitlines() == lines


def test_two_commands_are_compared(tmp_path, typed):
    (tmp_path / "train.py").write_text(
        "import random, sys\n"
        "gain, width, seed = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])\n"
        "random.seed(seed * 1000 + width)\n"
        "loss = 1.8 + 30 * (6000 * width**2 * gain) ** -0.15\n"
        "print('val loss', loss * (1 + random.gauss(0, 0.001)))\n"
    )
    done = typed(
        "compare", "--command", f"{sys.executable} train.py 1 {{width}} {{seed}}",
        "--command", f"{sys.executable} train.py 2 {{width}} {{seed}}", "--name", "plain",
        "--name", "better", "--shapes", "width=8,16,32; N=width^2; D=1000", "--metric",
        "val loss (\\S+)", "--folder", "out", "--workers", "1", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["winner"] == "better"
    assert "the verdict stands" in done.stderr
    for asked in (["--command", "a {seed}"], ["--command", "a", "--command", "a"], []):
        wrong = typed("compare", *asked, "--shapes", "N=1", cwd=tmp_path)
        assert wrong.returncode == 2
        assert wrong.stderr.count("\n") == 1
