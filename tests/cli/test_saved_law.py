"""`fit --save law.json`, and the file in place of runs."""

import json

import numpy as np
import pytest

import allometry as al
from allometry import laws

SAME = ("--form", "chinchilla", "--json")


@pytest.fixture
def folder(tmp_path):
    N, D = (x.ravel() for x in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e8, 1e11, 4)))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.004, len(N)))
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * noise
    rows = [f"{n},{d},{y}" for n, d, y in zip(N, D, loss, strict=True)]
    (tmp_path / "runs.csv").write_text("\n".join(["N,D,loss", *rows]))
    return tmp_path


def test_a_saved_law_answers_as_the_runs_do(folder, typed):
    options = ("--bootstrap", "1000", *SAME)
    first = typed("fit", "runs.csv", "--save", "law.json", *options, cwd=folder)
    assert first.returncode == 0, first.stderr
    assert "Law: law.json" in first.stderr
    again = json.loads(typed("fit", "law.json", "--json", cwd=folder).stdout)
    told = json.loads(first.stdout)
    assert {k: again[k] for k in ("form", "params", "n")} == {
        k: told[k] for k in ("form", "params", "n")
    }
    assert again["recognised"] == {"law": "law.json"}
    for command in (
        ("plan", "--compute", "1e23"),
        ("next", "--budget", "1e21", "--compute", "1e23"),
    ):
        name, *rest = command
        runs = json.loads(typed(name, "runs.csv", *rest, *SAME, cwd=folder).stdout)
        law = json.loads(typed(name, "law.json", *rest, "--json", cwd=folder).stdout)
        if name == "plan":
            # The three published approaches read the losses, not their logs.
            assert law.pop("approaches").keys() == runs.pop("approaches").keys()
        assert law == runs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "law.json", "--compute", "1e23", "--form", "power"), "without --form"),
        (("fit", "law.json", "--drop-highest", "1"), "without --drop-highest"),
        (("plan", "cut.json", "--compute", "1e23"), "incomplete or damaged"),
        (("fit", "any.json"), "got one in N, D"),
        (("plan", "steps.json", "--compute", "1e23"), "must know the number of tokens"),
    ],
)
def test_a_saved_law_is_refused_in_words(arguments, words, folder, typed):
    law = al.fit(folder / "runs.csv", "chinchilla", bootstrap=20)
    text = law.save(folder / "law.json").read_text()
    (folder / "cut.json").write_text(text[: len(text) // 2])
    laws.law_files.save(law, folder / "steps.json", {"counted_in": "steps"})
    columns = al.runs.load(folder / "runs.csv").columns
    laws.fit(columns, "E + A/N^alpha + B/D^beta").save(folder / "any.json")
    done = typed(*arguments, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
