"""Mistakes that new users met: columns that lose their meaning, and one run taken for several.

`next` that repeats a tiny run is tested in `tests/laws/test_plan_costs.py`, parameters of one form
shown as those of an average in `tests/cli/test_fit_output.py`.
"""

import io
import json
import sys

import pytest

from allometry.cli import column_questions
from tests.data.logs import make_samples
from tests.study import log_layouts

QUICK = ("--bootstrap", "0", "--form", "chinchilla", "--json")


def odd(folder):
    """A table whose columns have names of their own."""
    text = "heft,feed,outcome\n" + "".join(f"{n},{d},{v!r}\n" for _, n, d, v in log_layouts.rows())
    (folder / "odd.csv").write_text(text)


@pytest.mark.parametrize("part", ["", "w16-s20", "w16-s20/checkpoint-20"])
def test_a_folder_of_trainer_runs_or_checkpoints_is_read(tmp_path, typed, part):
    form = () if part == "" else ("--form", "power")
    folder = log_layouts.LOGS / "huggingface" / part
    done = typed("fit", folder, *QUICK, *form, cwd=tmp_path)
    if part == "":
        law = json.loads(done.stdout)
        assert law["n"] == 9
        assert law["recognised"]["N"] == "parameters"
    else:  # one run of two evaluations is read, and too little for a law
        assert done.returncode == 2
        assert "data must have at least 3 runs; got 2" in done.stderr


def test_five_evaluations_of_one_run_are_one_run(tmp_path, typed):
    rows = "".join(f"{s},1e7,{s * 65536},{3 + 20 / s}\n" for s in (100, 200, 300, 400, 500))
    (tmp_path / "one.csv").write_text("step,params,tokens,eval_loss\n" + rows)
    done = typed("fit", "one.csv", "--form", "power", "--bootstrap", "0", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["rows"] == "points"
    assert "These 5 rows are evaluations of one run" in done.stderr
    for line in ("plan one.csv --compute 1e21", "next one.csv --budget 1e18 --compute 1e21"):
        done = typed(*line.split(), cwd=tmp_path)
        assert done.returncode == 2
        assert "several runs of different size; got 5 evaluations of one run" in done.stderr


def test_nested_sizes_of_a_table_of_runs_are_kept(tmp_path, typed):
    (tmp_path / "table.csv").write_text(log_layouts.table())
    law = json.loads(typed("fit", "table.csv", *QUICK, cwd=tmp_path).stdout)
    assert law["recognised"]["N"] == "model.n_params"
    assert law["recognised"]["loss"] == "eval/loss"
    assert law["forms"][0]["variables"] == ["N", "D"]


def test_a_chart_export_is_read(tmp_path, typed):
    log_layouts.make_chart(tmp_path)
    steps = f"Step*{log_layouts.TOKENS}"
    done = typed("fit", "chart.csv", "--d-from", steps, *QUICK, cwd=tmp_path)
    assert json.loads(done.stdout)["n"] == len(list(make_samples.runs()))


def test_columns_are_remembered_and_reused(tmp_path, typed):
    odd(tmp_path)
    (tmp_path / "allometry.toml").write_text("# mine\n[plan]\nx = 1\n")
    assert "must have a column of losses" in typed("fit", "odd.csv", *QUICK, cwd=tmp_path).stderr
    columns = ("--n", "heft", "--d", "feed", "--loss", "outcome")
    typed("fit", "odd.csv", *columns, "--remember", *QUICK, cwd=tmp_path)
    kept = (tmp_path / "allometry.toml").read_text()
    assert kept.startswith("# mine\n[plan]\nx = 1\n")
    assert '[runs."odd.csv"]\nN = "heft"\nD = "feed"\nloss = "outcome"\n' in kept
    again = typed("fit", "odd.csv", *QUICK, cwd=tmp_path)
    assert json.loads(again.stdout)["recognised"] == {"N": "heft", "D": "feed", "loss": "outcome"}
    assert "Columns by allometry.toml: N = heft" in again.stderr
    # What is typed wins, and replaces the entry.
    typed("fit", "odd.csv", "--n", "feed", "--d", "heft", "--remember", *QUICK, cwd=tmp_path)
    kept = (tmp_path / "allometry.toml").read_text()
    assert kept.count("[runs.") == 1
    assert 'N = "feed"' in kept


@pytest.mark.parametrize("text", ["[runs", '[runs."odd.csv"]\nn = 3\n', '[runs."odd.csv"]\nN=3\n'])
def test_a_wrong_file_of_columns_is_refused(tmp_path, typed, text):
    odd(tmp_path)
    (tmp_path / "allometry.toml").write_text(text)
    done = typed("fit", "odd.csv", *QUICK, cwd=tmp_path)
    assert done.returncode == 2
    assert "allometry.toml must" in done.stderr


def test_missing_columns_are_asked_for_on_a_terminal(tmp_path, typed, monkeypatch):
    odd(tmp_path)
    monkeypatch.setattr(column_questions, "is_terminal", lambda: True)
    # A wrong name is asked for again; an expression is an answer too.
    monkeypatch.setattr(sys, "stdin", io.StringIO("nope\noutcome\n1*heft\nfeed\ny\n"))
    done = typed("fit", "odd.csv", "--form", "chinchilla", "--bootstrap", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Which column holds the loss?") == 2
    kept = (tmp_path / "allometry.toml").read_text()
    assert 'loss = "outcome"' in kept
    assert 'n_from = "1*heft"' in kept
    assert 'D = "feed"' in kept


def test_nothing_is_asked_without_a_terminal_or_with_json(tmp_path, typed, monkeypatch):
    odd(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("outcome\n"))
    assert typed("fit", "odd.csv", cwd=tmp_path).returncode == 2
    monkeypatch.setattr(column_questions, "is_terminal", lambda: True)
    assert typed("fit", "odd.csv", *QUICK, cwd=tmp_path).returncode == 2
    assert not (tmp_path / "allometry.toml").exists()


def test_a_table_from_standard_input_and_the_clipboard(tmp_path, typed, monkeypatch):
    text = log_layouts.tsv().encode()

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert json.loads(typed("fit", "-", *QUICK, cwd=tmp_path).stdout)["n"] == 9
    # A clipboard command of this name stands first in PATH.
    paste = tmp_path / "bin" / "pbpaste"
    paste.parent.mkdir()
    (tmp_path / "copied.tsv").write_bytes(text)
    paste.write_text(f"#!/bin/sh\ncat '{tmp_path}/copied.tsv'\n")
    paste.chmod(0o755)
    monkeypatch.setenv("PATH", f"{paste.parent}:/usr/bin:/bin")
    assert json.loads(typed("fit", "clipboard", *QUICK, cwd=tmp_path).stdout)["n"] == 9
    paste.write_text("#!/bin/sh\nexit 1\n")
    done = typed("fit", "clipboard", *QUICK, cwd=tmp_path)
    assert done.returncode == 2
    assert "clipboard must" in done.stderr
