"""Adversarial networks as a study: grown, scored, journalled."""

import numpy as np
import pytest
import torch

from allometry.models.gan import Generator
from allometry.study import Study, recipes
from allometry.study.recipes.gan_runs import _cost, grow
from allometry.study.recipes.sample_scores import gan_metrics, rows
from allometry.targets import Images
from allometry.targets.points import Points, ring
from allometry.train.budget import count_parameters
from tests.study.fakes import carry_out


def test_a_run_keeps_its_measures_samples_and_players(tmp_path):
    target = Points(ring(), size=500, held_out=300)
    (spec,) = recipes.gan(target, [300], tokens=[480], seeds=1)
    outcome = carry_out(spec, tmp_path)
    names = {"energy_distance", "precision", "recall", "density", "coverage"}
    assert names | {"modes", "high_quality", "reverse_kl"} == set(outcome.measures)
    assert all(e.se is not None for e in outcome.measures.values())
    assert outcome.columns["loss"] > 0
    assert outcome.columns["D"] == 480
    assert outcome.curve["step"][-1] == 5
    with np.load(tmp_path / "samples" / "key.npz") as kept:
        assert kept["samples"].shape[1:] == (500, 2)
    assert (tmp_path / "weights" / "key.safetensors").exists()


def test_digits_are_imitated(tmp_path):
    target = Images.digits()
    (spec,) = recipes.gan(target, [3e3], tokens=[960], seeds=1, pack=2)
    outcome = carry_out(spec, tmp_path)
    assert {"modes", "high_quality", "reverse_kl", "recall"} < set(outcome.measures)
    assert outcome.columns["N"] == pytest.approx(3e3, rel=0.1)
    assert outcome.columns["D_unique"] == len(target.train)
    with np.load(tmp_path / "samples" / "key.npz") as kept:
        assert kept["samples"].shape[1:] == (64, 1, 8, 8)
        assert kept["samples"].min() >= 0
        assert kept["samples"].max() <= 16
        assert kept["shares"].shape[1] == 10
        assert kept["look"][-1] == kept["step"][-1] == 10


def test_digits_never_seen_are_of_high_quality_and_of_every_class():
    target = Images.digits()
    found = gan_metrics(rows(target, "train"), target)
    assert found["modes"].value == 10
    # The reach holds 95 % of 180 held-out digits; training digits are as far from the known ones.
    assert abs(found["high_quality"].value - 0.95) < 5 * (0.05 * 0.95 / 180) ** 0.5
    assert gan_metrics(torch.rand(200, 64), target)["high_quality"].value == 0


def test_sizes_are_near_what_was_asked_for():
    for N in (300, 1e3, 1e4, 1e5):
        made, _ = count_parameters(Generator(2, grow(N), 3, norm=False))
        assert made == pytest.approx(N, rel=0.1)
    wide, _ = count_parameters(Generator(64, grow(1e4, 3, 64, 16), 3, 16, norm=False))
    assert wide == pytest.approx(1e4, rel=0.1)


def test_flops_are_those_of_the_matrices():
    target = Points(ring(), held_out=10)
    (spec,) = recipes.gan(target, [1e4], tokens=[960], seeds=1)
    run = spec()
    G, D = (s() for s in run.shapes)
    g = sum(p.numel() for p in G.parameters() if p.ndim == 2)
    d = sum(p.numel() for p in D.parameters() if p.ndim == 2)
    # Discriminator's turn: 2 g to make, 6 d for data and samples, less the slope to the inputs.
    # Generator's: 6 g, less the slope to the noise, and 4 d through the judge.
    per = run.batch * (2 * g + 2 * 6 * d + 6 * g + 4 * d)
    assert _cost(*run.shapes, run.batch, 0, False)[1] == pytest.approx(per, rel=0.05)


def test_variants_are_different_families():
    target = Points(ring(), held_out=10)
    study = Study(
        target,
        recipes=[recipes.gan, lambda *a, **k: recipes.gan(*a, **k, pack=2),
                 lambda *a, **k: recipes.gan(*a, **k, unroll=1),
                 lambda *a, **k: recipes.gan(*a, **k, wasserstein=True)],
        ladder=[300], seeds=1, tokens=[1000], unit="distance",
    )  # fmt: skip
    assert [r["family"] for r in study.rows()] == [
        "GAN", "PacGAN2", "GAN, unrolled 1", "WGAN-GP",
    ]  # fmt: skip


def test_text_metrics_are_bad_before_training():
    """An untrained model writes uniform noise: far from the text, and covering none of it."""
    from allometry.models import Recurrent
    from allometry.study.recipes.text_run import text_metrics
    from allometry.targets import Text

    text = Text.embedded()
    found = text_metrics(Recurrent(vocabulary=text.vocabulary.size, width=8), text, seed=0)
    assert set(found) == {"energy_distance", "precision", "recall"}
    assert found["energy_distance"].lo > 0
    assert found["recall"].value < 0.1
