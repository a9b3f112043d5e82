"""What `allometry fit` says was averaged."""

import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    rng = np.random.default_rng(0)
    N = np.repeat(np.geomspace(1e7, 1e9, 5), 3)
    D = N * np.tile([5.0, 20.0, 80.0], 5)
    loss = (1.69 + 406.4 / N**0.34 + 410.7 / D**0.28) * np.exp(0.005 * rng.normal(size=15))
    place = tmp_path_factory.mktemp("fit")
    rows = zip(N, D, loss, strict=True)
    lines = ["params,tokens,loss", *(f"{n},{d},{y}" for n, d, y in rows)]
    (place / "runs.csv").write_text("\n".join(lines) + "\n")
    return place


def test_each_form_has_its_weight_and_its_own_parameters(place, typed):
    done = typed("fit", "runs.csv", "--bootstrap", "100", "--json", cwd=place)
    law = json.loads(done.stdout)
    forms = law["forms"]
    assert law["averaged"]
    assert len(forms) > 1
    assert sum(form["weight"] for form in forms) == pytest.approx(1)
    assert law["params"] == forms[0]["params"]
    assert law["form"] == forms[0]["form"]
    for form in forms:
        assert form["equation"].startswith("L = ")
        assert form["params"]
    shown = typed("fit", "runs.csv", "--bootstrap", "100", cwd=place).stdout
    for form in forms:
        assert f"{form['name']}: " in shown
    assert "Weight" in shown


def test_one_form_has_headline_parameters(place, typed):
    line = "fit runs.csv --form chinchilla --bootstrap 100"
    law = json.loads(typed(*line.split(), "--json", cwd=place).stdout)
    assert not law["averaged"]
    (form,) = law["forms"]
    assert form["weight"] == 1
    shown = typed(*line.split(), cwd=place).stdout
    assert "Weight" not in shown
    assert "L = E + A/N^α + B/D^β" in shown


def test_a_plan_names_the_approach_that_is_unavailable_and_counts_new_runs(place, typed):
    plain = ("runs.csv", "--form", "chinchilla", "--compute", "1e21")
    planned = typed("plan", *plain, cwd=place)
    assert "By parabolas at equal compute: unavailable: data must give" in planned.stderr
    chosen = typed("next", *plain, "--budget", "1e20", "--most", "1", cwd=place)
    assert "after this run, which costs " in " ".join(chosen.stdout.split())
