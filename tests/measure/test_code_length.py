"""Description length."""

import math

import numpy as np

from allometry.measure import description_length


def test_description_of_a_gaussian_is_its_entropy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 3)), rng.normal(size=(5000, 3))
    found = description_length(x, y, bin_width=0.25)
    truth = 0.5 * math.log2(2 * math.pi * math.e) + 2
    # Fitting 9 parameters to 5,000 rows costs 9/(2*5000*3) nats per number.
    assert abs(found.value - truth) < 5 * found.se + 0.001
    assert "mixture of 1" in found.method
    # Another distribution costs its divergence: KL of N(0,1) from N(1,1) is half a nat.
    shifted = description_length(x, y + 1, bin_width=0.25)
    assert abs(shifted.value - truth - 0.5 / math.log(2)) < 5 * shifted.se + 0.01


def test_description_chooses_the_number_of_modes():
    rng = np.random.default_rng(0)
    modes = 20 * rng.normal(size=(4, 2))
    x, y = (modes[rng.integers(4, size=n)] + rng.normal(size=(n, 2)) for n in (500, 1000))
    assert "mixture of 4" in description_length(x, y).method
