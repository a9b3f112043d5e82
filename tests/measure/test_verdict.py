"""Verdicts on corruptions of known kind; `bench/verdicts.py` has more data and seeds."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from allometry.measure import score
from allometry.measure.context import Effort
from allometry.measure.verdict import FEWEST, KINDS

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import verdicts

EFFORT = Effort(steps=40, permutations=199)
SEED = 500  # neither the seeds the thresholds were chosen on nor those of the benchmark


@pytest.mark.parametrize("name", ["grid", "table", "digits"])
def test_each_corruption_is_identified(name):
    """One seed of ten corruptions; 193 of 200 are right in the benchmark."""
    found = verdicts.verdicts([name], [SEED], 250, EFFORT)
    wrong = {what: dict(c) for what, c in found.items() if c[what[1]] == 0}
    assert len(found) == 10
    assert len(wrong) <= 1, wrong
    assert not any(what[1] == "good" for what in wrong), wrong


@pytest.fixture(scope="module")
def collapsed():
    rng = np.random.default_rng(0)
    real = rng.normal(size=(200, 4))
    rows = rng.normal(size=(5, 4))[rng.integers(5, size=200)]
    return real, rows + 0.01 * rng.normal(size=real.shape)


def test_reasons_are_the_numbers_of_the_table(collapsed):
    scores = score(*collapsed, only=verdicts.NAMES, effort=EFFORT)
    assert scores.verdict is not None
    assert scores.verdict.kind == "collapsed"
    assert f"recall {scores['recall'].value:.3g}" in scores.verdict.reasons
    side = scores["nearest_neighbour_accuracy_real"].value
    assert f"real side {side:.3g}" in scores.verdict.reasons
    assert scores.verdict.summary.startswith("collapsed: recall 0")
    assert scores.verdict.notes == ["copies were not checked: give --training"]


def test_copies_of_the_data_themselves_are_detected(collapsed):
    real, _ = collapsed
    found = score(real, real + 1e-3, only=verdicts.NAMES, effort=EFFORT).verdict
    assert found is not None
    assert found.kind == "memorised"
    assert "the data themselves are copied" in found.reasons


def test_missing_metrics_or_rows_give_no_verdict(collapsed):
    real, samples = collapsed
    assert score(real, samples, only=["recall"]).verdict is None
    few = score(real[: FEWEST - 1], samples, only=verdicts.NAMES, effort=EFFORT)
    assert few.verdict is None
    assert "verdict" not in few.to_dict()


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_and_origin_do_not_matter(collapsed, shift, scale):
    base = score(*collapsed, only=verdicts.NAMES, effort=EFFORT).verdict
    moved = score(
        *(scale * (s + shift) for s in collapsed), only=verdicts.NAMES, effort=EFFORT
    ).verdict
    assert base is not None
    assert moved is not None
    assert (moved.kind, moved.reasons) == (base.kind, base.reasons)


def test_the_command_prints_it_and_json_keeps_its_shape(collapsed, tmp_path):
    from allometry.cli import app

    paths = [tmp_path / "real.npy", tmp_path / "samples.npy"]
    for path, rows in zip(paths, collapsed, strict=True):
        np.save(path, rows)
    only = [part for name in verdicts.NAMES for part in ("--only", name)]
    said = CliRunner().invoke(app, ["measure", *map(str, paths), *only])
    assert said.exit_code == 0
    assert "Verdict: collapsed: recall 0" in said.output
    data = json.loads(
        CliRunner().invoke(app, ["measure", *map(str, paths), *only, "--json"]).stdout
    )
    for values in data.values():
        assert {"value", "se", "lo", "hi", "features"} <= set(values)
    assert data["verdict"]["kind"] == "collapsed"
    assert data["verdict"]["meaning"] == KINDS["collapsed"]
    assert data["verdict"]["reasons"]
