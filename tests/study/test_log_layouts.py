"""Logs written by the libraries themselves, each from disk to a plan; see make_samples.py."""

import json

import numpy as np
import pytest

import allometry as al
from tests.data.logs import make_samples
from tests.study.log_layouts import LOGS, chart, history, nanogpt, table

TRUE = sorted((n, d, points[-1][2]) for _, n, d, points in make_samples.runs())
TRAINED = json.loads((LOGS / "trained.json").read_text())


def check(made, rel=1e-6):
    got = sorted(zip(*(made.columns[q].tolist() for q in ("N", "D", "loss")), strict=True))
    assert made.rows == "runs"
    np.testing.assert_allclose(got, TRUE, rtol=rel)
    law = al.laws.fit(made.columns, "chinchilla", bootstrap=0)
    planned = law.plan(compute=1e20).N
    assert planned is not None
    assert planned.value > 0


KINDS = ["wandb", "tensorboard", "mlflow_files", "mlflow_sqlite", "trackio", "excel/runs.xlsx"]


@pytest.mark.parametrize("name", [*KINDS, "parquet/history.parquet"])
def test_logs_of_the_libraries_give_the_numbers_that_were_logged(name):
    check(al.runs.load(LOGS / name))


@pytest.mark.parametrize("name", ["huggingface", "lightning"])
def test_trained_models_give_the_numbers_that_hooks_counted(name):
    made = al.runs.load(LOGS / name)
    got = sorted(zip(*(made.columns[q].tolist() for q in ("N", "D", "loss")), strict=True))
    true = sorted((r["N"], r["D"], r["loss"]) for r in TRAINED[name])
    np.testing.assert_allclose(got, true, rtol=1e-6)


def test_keras_histories_with_sizes_of_the_users_own():
    made = al.runs.load(LOGS / "keras", config=LOGS / "keras" / "runs.yaml")
    got = sorted(zip(*(made.columns[q].tolist() for q in ("N", "D", "loss")), strict=True))
    true = sorted((r["N"], r["D"], r["loss"]) for r in TRAINED["keras"])
    np.testing.assert_allclose(got, true, rtol=1e-6)
    assert made.counted_in == "epochs"


def test_tables_charts_and_printed_lines(tmp_path):
    for name, text in (("table", table()), ("history", history())):
        (tmp_path / f"{name}.csv").write_text(text)
        check(al.runs.load(tmp_path / f"{name}.csv"))
    (tmp_path / "chart.csv").write_text(chart())
    check(al.runs.load(tmp_path / "chart.csv", d_from="Step*65536"))
    folder = tmp_path / "printed"
    folder.mkdir()
    for name, n, _, points in make_samples.runs():
        (folder / f"{name}.log").write_text(nanogpt(n, points))
    check(al.runs.load(folder), rel=1e-4)


def test_one_run_is_never_several(tmp_path):
    path = tmp_path / "one.csv"
    rows = "".join(f"{s},1e7,{s * 65536},{3 + 1 / s}\n" for s in (100, 200, 300, 400, 500))
    path.write_text("step,params,tokens,eval_loss\n" + rows)
    made = al.runs.load(path)
    assert made.rows == "points"
    assert any("evaluations of one run" in note for note in made.notes)
    assert al.runs.load(path, rows="runs").rows == "runs"


def test_unfinished_diverged_and_resumed_runs_are_marked(tmp_path):
    text = "run,step,N,tokens,val_loss\n"
    for run, losses in {"a": (5, 4, 3), "b": (5, 3, 9), "c": (5, 4, float("nan"))}.items():
        text += "".join(f"{run},{i},1e6,{i}00,{v}\n" for i, v in enumerate(losses, 1))
    (tmp_path / "runs.csv").write_text(text + "d,1,1e6,100,5\nd,2,1e6,200,4\nd,2,1e6,200,3.5\n")
    made = al.runs.load(tmp_path / "runs.csv")
    assert made.columns["loss"].tolist() == [3, 9, 3.5]
    assert made.columns["status"].tolist()[1] == "diverged"
    assert len(made.bad) == 1  # NaN


def test_units_are_converted_and_named(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("params,tokens,eval_bpb\n1e6,2e7,1.5\n2e6,4e7,1.25\n")
    made = al.runs.load(path)
    assert made.columns["loss"].tolist() == pytest.approx([1.5 * np.log(2), 1.25 * np.log(2)])
    assert made.unit == "nats per byte"
    assert any("bits per byte" in note for note in made.notes)


@pytest.mark.parametrize(
    "text", ["12*width^2*depth", "depth*(-width)^2 * 1.2e1", "12*`width`**2*depth"]
)
def test_sizes_from_expressions(tmp_path, text):
    path = tmp_path / "runs.csv"
    path.write_text("width,depth,tokens,loss\n64,2,2e7,3\n128,4,4e7,2.5\n")
    made = al.runs.load(path, n_from=text)
    assert made.columns["N"].tolist() == [12 * 64**2 * 2, 12 * 128**2 * 4]
    for wrong in ("width*", "(width", "__import__('os')", "nope*2", "width width"):
        with pytest.raises(al.InputError, match="--n-from must"):
            al.runs.load(path, n_from=wrong)


def test_a_plan_from_one_run_is_refused_with_what_is_needed(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "one.csv"
    rows = "".join(f"{s},1e7,{s * 65536},{3 + 1 / s}\n" for s in (100, 200, 300, 400, 500))
    path.write_text("step,params,tokens,eval_loss\n" + rows)
    line = [sys.executable, "-c", "from allometry.cli import main; main()", "plan", str(path)]
    done = subprocess.run([*line, "--compute", "1e20"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "several runs of different size; got 5 evaluations of one run" in done.stderr
