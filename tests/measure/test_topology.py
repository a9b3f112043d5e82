"""Geometry score and relative living times."""

import math

import pytest
import torch

from allometry.measure import geometry_score
from allometry.measure.topology import relative_living_times


def circle(n, seed):
    angle = torch.rand(n, generator=torch.Generator().manual_seed(seed)) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_a_circle_has_one_loop_and_a_disc_none():
    loops = relative_living_times(circle(300, 0), repeats=10).mean(0)
    assert loops.argmax() == 1
    assert loops.sum() == pytest.approx(1)
    rng = torch.Generator().manual_seed(0)
    disc = circle(300, 1) * torch.rand(300, 1, generator=rng).sqrt()
    assert relative_living_times(disc, repeats=10).mean(0).argmax() == 0
    eight = torch.cat([circle(200, 2), circle(200, 3) + torch.tensor([2.5, 0.0])])
    assert relative_living_times(eight, repeats=10).mean(0).argmax() == 2
    found = geometry_score(circle(300, 0), disc, repeats=10)
    null = geometry_score(circle(300, 0), circle(300, 4), repeats=10)
    assert found.lo > max(0.2, null.hi)
    assert abs(null.value) < 5 * null.se
