"""Adversarial networks on points whose distribution has no list of modes."""

import math

import torch

import allometry as al
from allometry.study.recipes import gan
from allometry.study.request import RunContext, default_dtype


def test_a_run_on_points_without_modes_has_a_finite_curve(tmp_path):
    (tmp_path / "weights").mkdir()
    moons = al.targets.Points(al.targets.points.TwoMoons())
    (spec,) = gan(moons, [100], tokens=[400], seeds=1)
    with default_dtype(torch.float32):
        done = spec()(RunContext(spec.key, tmp_path, lambda _: None, lambda: False))
    assert set(done.curve) >= {"step", "loss", "cost_generator"}
    assert all(math.isfinite(x) for column in done.curve.values() for x in column)
