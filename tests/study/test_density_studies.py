"""Flows through the same study, journal and report as texts."""

import importlib
import json
import math

import numpy as np
import pytest
import torch

from allometry import InputError, report
from allometry.report import formatting as fmt
from allometry.study import Study, jobs
from allometry.study.density_studies import DISTRIBUTIONS, density_study, vectors
from allometry.study.recipes import baseline, gan, glow, moments, spline_coupling, vae, vqvae
from allometry.study.recipes.autoencoder_runs import PLAIN
from allometry.study.recipes.baselines import gaussian_samples
from allometry.study.recipes.density_recipes import RECIPES
from allometry.study.recipes.density_runs import FAMILIES, OF_IMAGES, build_density, grow, loss_on
from allometry.study.recipes.sample_scores import divergence, training_rows
from allometry.study.request import default_dtype
from allometry.targets import Images, NumericTable, Points, points
from allometry.train import count_parameters
from tests.study.fakes import carry_out


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("N", [6e3, 4e4])
def test_sizes_are_what_was_asked(family, N):
    shape, levels = ([1, 8, 8], 17) if family in OF_IMAGES else ([2], None)
    if family in ("planar", "radial"):
        N = N / 80  # they grow by layers, of which there are 128 at most
    if family == "variational_splines":
        N = 2 * N  # two flows, each with biases for every pixel
    layers, width = grow(family, shape, levels, N)
    size, _ = count_parameters(build_density(family, shape, levels, layers, width))
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
    assert (flows["gap"] > -5 * flows["gap_se"]).all()
    assert {"energy_distance", "precision", "recall", "coverage"} <= set(runs.measures())
    assert flows["recall"].between(0, 1).all()
    assert "Sample quality" in text


def test_digits_are_studied_and_reported(tmp_path):
    recipes = [glow, vae, vqvae, baseline]
    study = Study(Images.digits(), recipes, ladder=[8000], seeds=1, tokens=[64 * 12])
    runs = study.run(tmp_path / "digits")
    frame = runs.frame()
    assert set(frame["status"]) == {"done"}, frame["error"].tolist()
    assert runs.about["target"]["unit"] == "bits per dimension"
    start = frame[frame["family"] == "histogram"]["loss"].item()
    assert frame[frame["family"] == "glow"]["loss"].item() == pytest.approx(start, abs=0.25)
    page = report.write(tmp_path / "report.html", runs)
    text = page.read_text()
    # Samples of three; copies and ways of two; traversals and the plates of one.
    assert text.count("data:image/png;base64,") == 3 + 2 + 2 + 1
    assert text.count("data:image/svg+xml;base64,") == 1
    for said in (
        "from -2.5 to 2.5",
        "Interpolation between pairs",
        "as a directed graphical model",
    ):
        assert said in text
    assert {"code_perplexity", "active_units", "mutual_information"} <= set(runs.measures())
    use = frame[frame["family"] == "vqvae"]["code_perplexity"].item()
    assert 1 <= use <= 128
    for seen in (tmp_path / "digits" / "pictures").glob("*.npz"):
        samples = np.load(seen)["samples"]
        assert samples.shape[1:] == (40, 1, 8, 8)
        assert samples.min() >= 0
        assert samples.max() <= 16


@pytest.mark.parametrize("family", ["discrete", "variational_splines"])
def test_flows_of_whole_values_train(family, tmp_path):
    target = Images.digits()
    (spec,) = RECIPES[family](target, [8000], tokens=[128 * 4], seeds=1)
    outcome = carry_out(spec, tmp_path)
    start = target.histogram_bits("validation")
    # Both begin near the histogram of each pixel; the discrete flow's loss is no bound.
    assert outcome.columns["loss"] == pytest.approx(start, abs=0.15)
    assert (tmp_path / "weights" / "key.safetensors").exists()


def test_the_gap_is_the_loss_less_the_truth(tmp_path):
    """Against the same difference taken by hand, and above 0 for a wrong density."""
    target = Points(points.eight_gaussians(), held_out=2000)
    model = build_density("affine_coupling", [2], None, 2, 4)
    found = divergence(model, target)
    rows = target.split("test")
    true = -target.density.log_prob(rows.double()).mean().item()
    by_hand = loss_on(model, target, "test").value - true
    assert found.value == pytest.approx(by_hand, abs=1e-5)
    assert found.value > 5 * found.se
    # The entropy itself is known, and the truth scores it within its error.
    assert true == pytest.approx(target.entropy.value, abs=5 * 1.0 / 2000**0.5)


def test_jobs_are_found_by_name(tmp_path):
    for name in DISTRIBUTIONS:
        assert isinstance(vectors(name), Points)
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"{i % 7},{i % 5}" for i in range(60)))
    assert isinstance(vectors(str(tmp_path / "t.csv")), NumericTable)
    assert vectors("embedded") is None
    study = jobs.study("digits", families=["glow"], rungs=2, seeds=1)
    assert {row["family"] for row in study.rows()} == {"glow", "histogram"}
    with pytest.raises(InputError, match="family must be one of"):
        density_study(Points(points.Banana()), families=["gin"])
    played = jobs.study("digits", families=["gan", "pacgan2", "wgan"], rungs=2, seeds=1)
    assert {row["family"] for row in played.rows()} == {"GAN", "PacGAN2", "WGAN-GP", "gaussian"}
    assert {row["family"] for row in jobs.study("grid").rows()} == {"GAN", "PacGAN2", "gaussian"}
    with pytest.raises(InputError, match="points or images"):
        jobs.study(str(tmp_path / "t.csv"), families=["gan"])


@pytest.mark.parametrize(
    ("job", "families", "said"),
    [
        ("ring", ["transformer"], "family must be one of .* wgan; got 'transformer'"),
        ("ring", ["gan", "spline_coupling"], "got 'spline_coupling'. Families with another loss"),
        ("digits", ["spline_coupling", "gan"], "have the loss of spline_coupling; got 'gan'"),
        ("digits", ["quantiser", "gan"], "got 'gan'. Families with another loss"),
        ("rnig", ["gan"], "Did you mean ring"),
        ("embedded", ["gan"], "for a text; got 'gan'"),
    ],
)
def test_families_that_do_not_fit_are_refused(job, families, said):
    with pytest.raises(InputError, match=said):
        jobs.study(job, families=families)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pack": 5}, "gan.batch must be a multiple of the pack 5; got 96"),
        ({"pack": 0}, "gan.pack must be at least 1"),
        ({"batch": 0}, "gan.batch must be at least 1"),
        ({"unroll": -1}, "gan.unroll must be at least 0; got -1"),
        ({"depth": 1}, "gan.depth must be at least 2"),
        ({"lr": -1.0}, "gan.lr must be above 0"),
    ],
)
def test_games_that_cannot_be_played_are_refused_before_they_begin(settings, said):
    with pytest.raises(InputError, match=said):
        gan(Points(points.ring()), [500.0], tokens=[960], seeds=1, **settings)


@pytest.mark.parametrize("job", ["ring", "digits", "moons", "reverse", "embedded"])
def test_no_ladder_is_asked_for_upside_down(job):
    with pytest.raises(
        InputError, match=r"smallest must be at most the largest, 1000; got 1000000"
    ):
        jobs.study(job, smallest=1e6, largest=1e3)


def test_long_games_are_traced_and_score_as_short_ones_do(monkeypatch):
    (spec,) = gan(Points(points.ring()), [500.0], tokens=[960], seeds=1)
    run = spec()
    data = training_rows(run.target, 0)[:200]
    # `recipes.gan` is the recipe, which hides the module of that name.
    module = importlib.import_module("allometry.study.recipes.gan_runs")
    with default_dtype(torch.float32):
        plain = run.game(data)
        monkeypatch.setattr(module, "TRACED", 1)
        traced = run.game(data)
    assert plain._discriminator == plain._discriminator_step
    assert traced._discriminator != traced._discriminator_step
    for _ in range(10):
        plain.step()
        traced.step()
    # Single precision over ten steps of Adam.
    torch.testing.assert_close(traced.samples(50), plain.samples(50), rtol=1e-3, atol=1e-5)


def test_games_of_digits_are_reported(tmp_path):
    recipes = [gan, moments]
    study = Study(Images.digits(), recipes, ladder=[3000], seeds=1, tokens=[960], unit="distance")
    runs = study.run(tmp_path / "digits")
    assert set(runs.frame()["status"]) == {"done"}, runs.frame()["error"].tolist()
    text = report.write(tmp_path / "report.html", runs).read_text()
    assert text.count("data:image/png;base64,") == 1
    for said in ("Classes found, of 10", "Cost of each player", "Number of the class",
                 "the smallest game (Dirac-GAN)"):  # fmt: skip
        assert said in text
    assert "baseline to compare with" not in text
    assert "the Gaussian baseline" in text
    assert "Constructed and trained" not in text
    frame = runs.frame()
    floor = frame[frame["family"] == "gaussian"]["data_loss"].item()
    assert f"The training data themselves have a distance of {fmt.loss(floor)}" in text
    assert 0 < floor < frame["loss"].min()


def test_moments_are_the_datas():
    rng = torch.Generator().manual_seed(0)
    data = torch.randn(5000, 3, generator=rng) @ torch.tensor([[2.0, 0, 0], [1, 1, 0], [0, 0, 0]])
    made = gaussian_samples(data + 4, 20_000, seed=1)
    se = data.std(0) / 20_000**0.5
    assert bool(((made.mean(0) - (data + 4).mean(0)).abs() <= 5 * se + 1e-6).all())
    # An entry of a Gaussian's covariance has the variance (s_ii s_jj + s_ij^2) / n.
    S = torch.cov(data.T)
    spread = ((S.diag()[:, None] * S.diag() + S**2) / 20_000).sqrt()
    assert bool(((torch.cov(made.T) - S).abs() <= 5 * spread + 1e-6).all())


def test_a_tables_loss_is_in_its_own_units(tmp_path):
    """The same rows in other units: the loss shifts by the log of the scale."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    losses = []
    for scale in (1.0, 100.0):
        path = tmp_path / f"{scale}.csv"
        path.write_text("a,b\n" + "\n".join(f"{scale * a},{scale * b}" for a, b in x))
        table = NumericTable(str(path))
        losses.append(
            loss_on(build_density("affine_coupling", [2], None, 2, 4), table, "test").value
        )
    assert losses[1] - losses[0] == pytest.approx(2 * math.log(100), abs=1e-5)


def test_requests_are_plain_values():
    (spec, *_) = density_study(Points(points.TwoMoons())).specs()
    assert json.loads(json.dumps(spec.to_dict()))["arguments"]["family"] == "affine_coupling"


def test_the_quantisers_exponent_is_the_theorys(tmp_path):
    """In the plane the distortion of the best codes falls as 1 / K (`gersho1979`)."""
    study = jobs.study("eight_gaussians", families=["quantiser"], rungs=4, seeds=1, tokens=[4000])
    runs = study.run(tmp_path / "codes")
    frame = runs.frame().sort_values("N")
    assert set(frame["status"]) == {"done"}, frame["error"].tolist()
    large = frame[frame["N"] >= 32]
    slope = np.polyfit(np.log(large["N"]), np.log(large["loss"]), 1)[0]
    # Eight separate clusters and codebooks of LBG rather than the best: a tenth either way.
    assert slope == pytest.approx(-1, abs=0.15)
    text = report.write(tmp_path / "report.html", runs).read_text()
    assert "Voronoi cells" in text
    assert "lower bound (dashed)" in text


def test_autoencoders_copy_better_as_they_grow(tmp_path):
    families = list(PLAIN)
    study = jobs.study("digits", families=families, rungs=2, seeds=1, tokens=[128 * 60])
    rows = study.rows()
    assert {row["family"] for row in rows} == {f.replace("_", " ") for f in families}
    sizes = PLAIN["autoencoder"](study.target, [800, 8000], tokens=[128 * 60], seeds=1)
    small, large = (carry_out(spec, tmp_path).columns["loss"] for spec in sizes)
    assert large < small


@pytest.mark.parametrize("family", PLAIN)
def test_every_autoencoder_trains(family, tmp_path):
    (spec,) = PLAIN[family](Images.digits(), [3000], tokens=[128 * 3], seeds=1)
    outcome = carry_out(spec, tmp_path)
    assert 0 < outcome.columns["loss"] < 1
    assert (tmp_path / "weights" / "key.safetensors").exists()
    N = spec().budget().N
    assert abs(math.log(N / 3000)) < 0.3
