"""Commands with torch, scikit-learn, tokenizers and safetensors blocked from import."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sklearn", "tokenizers", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from allometry.cli import main
main()
"""

RUNS = "N,D,loss\n" + "\n".join(
    f"{n:g},{d:g},{1.7 + 400 * n**-0.34 + 410 * d**-0.28:.6f}"
    for n in (1e7, 4e7, 1.6e8, 6.4e8)
    for d in (1e9, 4e9, 1.6e10)
)


def allometry(line, cwd):
    command = [sys.executable, "-c", BLOCKED, *line.split()]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "run --help",
        "list",
        "list measures --json",
        "fit runs.csv --form chinchilla --bootstrap 50 --json",
        "plan runs.csv --form chinchilla --compute 1e21",
        "next runs.csv --form chinchilla --budget 1e18 --compute 1e21",
        "status study",
    ],
)
def test_light_commands_need_no_torch(tmp_path, line):
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text('{"target": {"name": "notes"}, "runs": []}')
    (tmp_path / "study" / "journal.jsonl").write_text("")
    done = allometry(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    ["run moons", "demo", "measure a.npy b.npy", "generate study", "construct dyck ()"],
)
def test_commands_that_train_name_the_missing_extra(tmp_path, line):
    done = allometry(line, tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "allometry: This command needs torch: pip install 'allometry[train]'.\n"
    assert list(tmp_path.iterdir()) == []
