"""Mode recovery on samples of a known distribution."""

import math

import numpy as np
import pytest

from allometry._core.errors import InputError
from allometry.measure import mode_recovery
from allometry.measure.modes import nearest_classes, recovery
from allometry.targets.points import grid, ring


def test_true_samples_of_the_ring():
    """In two dimensions 1 - exp(-9/2) = 98.889 % lie within three standard deviations."""
    mixture = ring()
    found = mode_recovery(mixture.draw(2500, np.random.default_rng(0)), mixture.means, 0.01)
    assert found["modes"].value == 8
    assert abs(found["high_quality"].value - (1 - math.exp(-4.5))) < 0.008
    assert found["reverse_kl"].value <= 0.005


def test_intervals_cover_the_truth():
    mixture, hits = grid(), np.zeros(2)
    for seed in range(100):
        found = mode_recovery(mixture.draw(2500, np.random.default_rng(seed)), mixture.means, 0.05)
        hits += [found["high_quality"].covers(1 - math.exp(-4.5)), found["reverse_kl"].covers(0)]
    assert (hits >= 86).all()  # 95 less four standard errors


def test_collapse_is_detected():
    mixture = ring()
    one = mixture.means[:1].numpy() + 0.01 * np.random.default_rng(1).normal(size=(2500, 2))
    found = mode_recovery(one, mixture.means, 0.01)
    assert found["modes"].value == 1
    assert found["reverse_kl"].value == pytest.approx(math.log(8), abs=1e-12)
    noise = np.random.default_rng(2).normal(size=(2500, 2))
    assert mode_recovery(noise, mixture.means, 0.01)["high_quality"].value < 0.02


def test_classes_of_the_nearest_rows():
    """The given share of held-out rows is of high quality; distant noise is not."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(4), 50)
    centres = 10 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    known, held, other = (centres[labels] + rng.normal(size=(200, 2)) for _ in range(3))
    near, good = nearest_classes(other, known, labels, held, share=0.9)
    assert (near.numpy() == labels).all()
    assert abs(good.double().mean().item() - 0.9) < 5 * (2 * 0.09 / 200) ** 0.5
    found = recovery(near, good, 4)
    assert found["modes"].value == 4
    assert found["reverse_kl"].value == pytest.approx(-3 / 400)  # 0 less its bias
    near, good = nearest_classes(np.full((20, 2), 50.0), known, labels, held)
    assert not good.any()
    assert recovery(near, good, 4)["modes"].value == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_of_zero_or_one_raise(share):
    with pytest.raises(InputError, match=r"lie in \(0, 1\)"):
        nearest_classes(np.eye(2), np.eye(2), np.arange(2), np.eye(2), share=share)
