"""`allometry watch` on logs of several kinds."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from allometry.cli.watch_command import read_log


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


def read(path, **options):
    steps, losses, source = read_log(
        path, **{"loss": None, "step": None, "metric": None, **options}
    )
    return list(zip(steps, losses, strict=True)), source


def test_a_validation_loss_is_preferred_in_printed_output(tmp_path):
    text = tmp_path / "train.log"
    text.write_text(
        "step 100: train loss 3.0, val loss 3.2\niter 150: loss 2.9, time 12ms\n"
        "[2026-01-01] global_step=200 train/loss=2.8 val/loss=3e0\n"
    )
    assert read(text) == ([(100, 3.2), (200, 3.0)], "Validation loss of 2 lines.")
    assert read(text, metric="train.loss[ =]([0-9.]+)")[0] == [(100, 3.0), (200, 2.8)]
    text.write_text("iter 1: loss 4.0, mfu 12%\niter 2: loss 3.5, mfu 12%\n")
    assert read(text) == ([(1, 4.0), (2, 3.5)], "Loss of 2 lines.")


def test_a_table_that_ends_in_nan_has_diverged(tmp_path):
    """A NaN between numbers is a step without an evaluation; one at the end a divergence."""
    log = tmp_path / "log.csv"
    rows = [f"{s},{2 + 30 / s}" for s in range(100, 1000, 100)]
    log.write_text("\n".join(["step,loss", *rows[:4], "450,nan", *rows[4:]]))
    assert all(np.isfinite(loss) for _, loss in read(log)[0])
    log.write_text("\n".join(["step,loss", *rows, "1000,NaN", "1100,inf"]))
    done = run(log, "--total", "10k")
    assert done.returncode == 0, done.stderr
    assert "The loss is not finite since step 1000" in done.stdout


def test_follow_waits_for_the_first_loss(tmp_path):
    text = tmp_path / "log.txt"
    text.write_text("loading data\n")
    code = "from allometry.cli import main; main()"
    arguments = ("watch", str(text), "--total", "200", "--follow", "--every", "0.2")
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "Waiting for the log to grow." in process.stderr.readline()
        text.write_text("step 100 loss 2.0\nstep 200 loss 1.9\n")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Step 200 of 200" in out
