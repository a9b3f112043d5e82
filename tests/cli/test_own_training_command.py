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
