"""Every log layout from disk to a plan in one command, with the numbers that were written."""

import json
import subprocess
import sys

import numpy as np
import pytest

import allometry as al
from tests.data.logs import make_samples
from tests.study import log_layouts

TRUE = sorted((n, d, points[-1][2]) for _, n, d, points in make_samples.runs())
ALL = log_layouts.EXACT | log_layouts.PRINTED | log_layouts.TRAINED
NAMES = {"--d-from": "d_from", "--n-from": "n_from", "--sql": "sql"}


@pytest.mark.parametrize("name", ALL)
def test_each_layout_gives_the_numbers_that_were_written(tmp_path, name):
    path, options = ALL[name](tmp_path)
    pairs = zip(options[::2], options[1::2], strict=True)
    made = al.runs.load(path, **{NAMES[option]: value for option, value in pairs})
    got = sorted(zip(*(made.columns[q].tolist() for q in ("N", "D", "loss")), strict=True))
    true = TRUE
    if name in log_layouts.TRAINED:
        known = json.loads((log_layouts.LOGS / "trained.json").read_text())[name]
        true = sorted((row["N"], row["D"], row["loss"]) for row in known)
    tolerance = 5e-5 if name in log_layouts.PRINTED else 1e-6
    np.testing.assert_allclose(got, true, rtol=tolerance)
    assert made.rows == "runs"
    assert made.counted_in == "tokens"


SCRIPT = """
import json, sys
from typer.testing import CliRunner
from allometry.cli import app
for name, arguments in json.load(sys.stdin).items():
    done = CliRunner().invoke(app, ["plan", *arguments, "--form", "chinchilla", "--json"])
    plan = json.loads(done.stdout) if done.exit_code == 0 else {}
    size = plan.get("N", {}).get("value")
    print(json.dumps([name, done.exit_code, size, plan.get("compute"), done.stderr[:300]]))
"""


def test_each_layout_is_planned_by_one_command(tmp_path):
    commands = {}
    for i, (name, make) in enumerate(ALL.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        path, options = make(folder)
        money = ["--hardware", "8xH100", "--price", "2.5/h", "--money", "500"]
        commands[name] = [str(path), *options, *money]
    assert len(commands) >= 15
    # A process of its own: without the checks of types a plan takes a tenth of a second.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(commands), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = {line[0]: line[1:] for line in map(json.loads, done.stdout.splitlines())}
    assert set(found) == set(ALL)
    sizes = []
    for name, (code, size, compute, message) in found.items():
        assert code == 0, (name, message)
        # 500 / 2.5 hours of 989 TFLOP/s at an MFU of 0.4
        assert compute == pytest.approx(200 * 3600 * 0.4 * 989e12)
        if name in log_layouts.EXACT:
            sizes.append(size)
    # The same runs give the same plan, whatever file they come from.
    assert sizes == pytest.approx([sizes[0]] * len(sizes), rel=1e-3)
