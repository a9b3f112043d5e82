"""The scorer of modes on samples whose law is known."""

import math

import numpy as np
import pytest

from allometry.measure import mode_recovery
from allometry.targets.points import grid, ring


def test_true_samples_of_the_ring():
    """In the plane 1 - exp(-9/2) = 98.889 % lie within three standard deviations."""
    law = ring()
    found = mode_recovery(law.draw(2500, np.random.default_rng(0)), law.means, 0.01)
    assert found["modes"].value == 8
    assert abs(found["high_quality"].value - (1 - math.exp(-4.5))) < 0.008
    assert found["reverse_kl"].value <= 0.005


def test_intervals_hold_the_truth():
    law, hits = grid(), np.zeros(2)
    for seed in range(100):
        found = mode_recovery(law.draw(2500, np.random.default_rng(seed)), law.means, 0.05)
        hits += [found["high_quality"].covers(1 - math.exp(-4.5)), found["reverse_kl"].covers(0)]
    assert (hits >= 86).all()  # 95 less four standard errors


def test_collapse_is_seen():
    law = ring()
    one = law.means[:1].numpy() + 0.01 * np.random.default_rng(1).normal(size=(2500, 2))
    found = mode_recovery(one, law.means, 0.01)
    assert found["modes"].value == 1
    assert found["reverse_kl"].value == pytest.approx(math.log(8), abs=1e-12)
    noise = np.random.default_rng(2).normal(size=(2500, 2))
    assert mode_recovery(noise, law.means, 0.01)["high_quality"].value < 0.02
