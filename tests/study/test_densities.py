"""Flows through the same study, journal and report as texts."""

import json
import math

import numpy as np
import pytest
import torch

from allometry import InputError, report
from allometry.study import Study, jobs
from allometry.study.densities import LAWS, density_study, vectors
from allometry.study.recipes import baseline, glow, spline_coupling, vae
from allometry.study.recipes.density import FAMILIES, grow, loss_on, made
from allometry.targets import Images, Points, Table, points
from allometry.train import count_parameters


@pytest.fixture(autouse=True)
def _single_precision():
    yield
    torch.set_default_dtype(torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("N", [6e3, 4e4])
def test_sizes_are_what_was_asked(family, N):
    shape, levels = ([1, 8, 8], 17) if family in ("glow", "vae") else ([2], None)
    layers, width = grow(family, shape, levels, N)
    size, _ = count_parameters(made(family, shape, levels, layers, width))
    assert abs(math.log(size / N)) < 0.25


def test_moons_are_studied_and_reported(tmp_path):
    target = Points(points.TwoMoons(), held_out=500)
    study = Study(
        target,
        recipes=[spline_coupling, baseline],
        ladder=[600, 2000],
        seeds=1,
        tokens=[256 * 10, 256 * 60],
    )
    runs = study.run(tmp_path / "moons")
    frame = runs.frame()
    assert set(frame["status"]) == {"done"}, frame["error"].tolist()
    flows = frame[frame["family"] == "spline coupling"].sort_values("D")
    assert len(flows) == 4
    # More data is lower loss, and nothing goes below the entropy by more than its error.
    assert flows["loss"].iloc[-2:].max() < flows["loss"].iloc[:2].min()
    assert (flows["loss"] > target.entropy.value - 5 * flows["loss_se"]).all()
    assert flows["loss"].min() < frame[frame["family"] == "gaussian"]["loss"].item()
    page = report.write(tmp_path / "report.html", runs)
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 3
    assert text.count("data:image/svg+xml;base64,") == 1
    assert study.tasks(tmp_path / "moons") == []
    assert {"energy_distance", "precision", "recall", "coverage"} <= set(runs.measures())
    assert flows["recall"].between(0, 1).all()
    assert "What the samples are worth" in text


def test_digits_are_studied_and_reported(tmp_path):
    recipes = [glow, vae, baseline]
    study = Study(Images.digits(), recipes, ladder=[8000], seeds=1, tokens=[64 * 12])
    runs = study.run(tmp_path / "digits")
    frame = runs.frame()
    assert set(frame["status"]) == {"done"}, frame["error"].tolist()
    assert runs.about["target"]["unit"] == "bits per dimension"
    start = frame[frame["family"] == "histogram"]["loss"].item()
    assert frame[frame["family"] == "glow"]["loss"].item() == pytest.approx(start, abs=0.25)
    page = report.write(tmp_path / "report.html", runs)
    assert page.read_text().count("data:image/png;base64,") == 2
    for seen in (tmp_path / "digits" / "pictures").glob("*.npz"):
        samples = np.load(seen)["samples"]
        assert samples.shape[1:] == (40, 1, 8, 8)
        assert samples.min() >= 0
        assert samples.max() <= 16


def test_jobs_are_found_by_name(tmp_path):
    for name in LAWS:
        assert isinstance(vectors(name), Points)
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"{i % 7},{i % 5}" for i in range(60)))
    assert isinstance(vectors(str(tmp_path / "t.csv")), Table)
    assert vectors("embedded") is None
    study = jobs.study("digits", families=["glow"], rungs=2, seeds=1)
    assert {row["family"] for row in study.grid()} == {"glow", "histogram"}
    with pytest.raises(InputError, match="family must be one of"):
        density_study(Points(points.Banana()), families=["gan"])


def test_a_tables_loss_is_in_its_own_units(tmp_path):
    """The same rows in other units: the loss shifts by the log of the scale."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    losses = []
    for scale in (1.0, 100.0):
        path = tmp_path / f"{scale}.csv"
        path.write_text("a,b\n" + "\n".join(f"{scale * a},{scale * b}" for a, b in x))
        table = Table(str(path))
        losses.append(loss_on(made("affine_coupling", [2], None, 2, 4), table, "test").value)
    assert losses[1] - losses[0] == pytest.approx(2 * math.log(100), abs=1e-5)


def test_requests_are_plain_values():
    (spec, *_) = density_study(Points(points.TwoMoons())).specs()
    assert json.loads(json.dumps(spec.to_dict()))["arguments"]["family"] == "affine_coupling"
