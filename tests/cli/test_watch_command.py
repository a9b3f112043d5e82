"""`allometry watch` on logs of several kinds."""

import json
import subprocess
import sys
from pathlib import Path


def run(*arguments):
    code = "from allometry.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "watch", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_csv_and_printed_output_give_the_same_forecast(tmp_path):
    rows = [(s, 2 + 30 * s**-0.5) for s in range(100, 2001, 100)]
    table, text = tmp_path / "log.csv", tmp_path / "log.txt"
    table.write_text("step,loss\n" + "".join(f"{s},{x:.6f}\n" for s, x in rows))
    text.write_text("start\n" + "".join(f"step {s}: val loss {x:.6f}\n" for s, x in rows))
    one, two = (run(p, "--total", 8000, "--json") for p in (table, text))
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert json.loads(one.stdout) == json.loads(two.stdout)


def test_nan_and_no_metric_get_one_sentence(tmp_path):
    text = tmp_path / "log.txt"
    text.write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    done = run(text, "--total", 10)
    assert done.returncode == 0
    assert "diverged" in done.stdout
    text.write_text("nothing\n")
    done = run(text, "--total", 10)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "must" in done.stderr


def test_one_run_of_a_log_with_several_is_chosen_by_name():
    logs = Path(__file__).parents[1] / "data" / "logs"
    for log in (logs / "trackio" / "ladder.db", logs / "wandb"):
        done = run(log, "--total", 10_000)
        assert done.returncode == 2
        assert "run must name a run of the log" in done.stderr.replace("--", "")
        name = "gpt-n16000000-d83886080"
        done = run(log, "--total", 10_000, "--run", name, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["final"]["value"] > 0
