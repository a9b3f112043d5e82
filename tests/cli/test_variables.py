"""`fit`, `plan` and `next` on columns of any names."""

import json

import numpy as np
import pytest


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    N, E = (a.reshape(-1) for a in np.meshgrid(np.logspace(7, 9, 5), [1, 4, 16]))
    loss = (1.6 + 30 / N**0.2 * E**-0.06) * np.exp(0.002 * rng.normal(size=15))
    path = tmp_path / "runs.csv"
    rows = [f"{n:.6g},{e},{y:.6g},{n * e / 1e6:.6g}" for n, e, y in zip(N, E, loss, strict=True)]
    path.write_text("\n".join(["params,experts,val_loss,hours", *rows]))
    goal = tmp_path / "goal.csv"
    goal.write_text(f"params,experts,val_loss\n4e9,16,{1.6 + 30 / 4e9**0.2 * 16**-0.06}\n")
    return path, goal


@pytest.fixture
def run(typed, tmp_path):
    return lambda *words: typed(*words, cwd=tmp_path)


COLUMNS = ["--x", "params", "--x", "experts", "--y", "val_loss"]


def test_fit_in_columns_of_any_names(table, run, tmp_path):
    page, law = tmp_path / "page.html", tmp_path / "law.json"
    found = run("fit", table[0], *COLUMNS, "--report", page, "--save", law, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["variables"] == {"params": "scale", "experts": "scale"}
    assert "params" in page.read_text()
    assert law.is_file()


def test_fit_an_expression(table, run):
    form = "E + A/(params^alpha*experts^beta)"
    found = run("fit", table[0], *COLUMNS, "--form", form, "--json")
    assert json.loads(found.stdout)["params"]["alpha"]["value"] == pytest.approx(0.2, abs=0.05)
    named = run(
        "fit", table[0], "--x", "N=params", "--x", "X=experts", "--y", "val_loss",
        "--form", "routed_bilinear", "--json",
    )  # fmt: skip
    assert json.loads(named.stdout)["params"]["a"]["value"] < 0


def test_plan_by_a_measured_cost(table, run):
    found = run(
        "plan", table[0], *COLUMNS, "--cost", "hours", "--budget", "2000", "--at", "experts=4",
        "--json",
    )  # fmt: skip
    answer = json.loads(found.stdout)
    assert answer["at"]["params"]["value"] == pytest.approx(5e8, rel=0.15)
    assert any("hours" in sentence for sentence in answer["warnings"])


def test_next_from_a_pool_and_replay(table, run):
    pool = ["--pool", table[0], "--target", table[1], *COLUMNS, "--cost", "hours"]
    found = run("next", *pool, "--budget", "300", "--json")
    answer = json.loads(found.stdout)
    assert answer["rows"]
    assert answer["spent"] <= 300
    shown = run("next", *pool, "--replay")
    assert "of the cost saved" in " ".join(shown.stdout.split())
    again = run("next", table[0], *pool, "--budget", "300", "--width", "5")
    assert again.returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "{}", "--x", "nothing"], "name columns of the data"),
        (["fit", "{}", *COLUMNS, "--role", "params"], "--role must be such as"),
        (["fit", "{}", *COLUMNS, "--form", "E + "], "must"),
        (["next", "--pool", "{}", "--budget", "3"], "--x"),
        (["next", "{}"], "--budget"),
        (
            ["next", "--pool", "{}", "--target", "{}", *COLUMNS, "--budget", "3"],
            "Add --cost with a column, or with an expression such as --cost 'params*experts'.",
        ),
        (
            ["next", "--pool", "{}", "--target", "{}", *COLUMNS, "--cost", "days", "--replay"],
            "The cost 'days' must name a column of the data",
        ),
        (
            [
                "next",
                "--pool",
                "{}",
                "--target",
                "params=4e9",
                "--target",
                "experts=2",
                *COLUMNS,
                "--cost",
                "hours",
                "--replay",
            ],
            "have the column 'val_loss', with which predictions are compared",
        ),
        (["fit", "absent.csv", "--x", "N"], "got no such path"),
    ],
)
def test_bad_words_are_refused(table, run, words, message):
    found = run(*(str(table[0]) if word == "{}" else word for word in words))
    assert found.returncode == 2
    assert message in " ".join(found.stderr.split())
