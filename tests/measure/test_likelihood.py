import math

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from allometry import Estimate, InputError
from allometry.measure import bits, block_mean, per_character, perplexity


def test_error_of_an_ar1_mean_is_the_closed_form():
    # Var(mean) -> s2 / (n (1 - phi)^2) for x_t = phi x_{t-1} + e_t, e of variance s2.
    rng, phi, n = np.random.default_rng(0), 0.9, 20_000
    runs = lfilter([1], [1, -phi], rng.normal(size=(400, n)), axis=1)
    truth = 1 / (1 - phi) / math.sqrt(n)
    found = [block_mean(x) for x in runs]
    ratio = np.array([e.se for e in found]) / truth
    # Each se has relative error 1/sqrt(2 * 29); 667 is 35 correlation lengths: -2 % bias.
    assert ratio.mean() == pytest.approx(1, abs=0.02 + 5 / math.sqrt(2 * 29 * 400))
    coverage = np.mean([e.covers(0.0) for e in found])
    assert abs(coverage - 0.95) < 0.01 + 5 * math.sqrt(0.95 * 0.05 / 400)
    naive = np.mean([x.std() / math.sqrt(n) for x in runs])
    assert naive < 0.5 * truth


def test_blocks_of_equal_length_give_the_usual_formula():
    x = np.random.default_rng(1).normal(size=120)
    means = x.reshape(10, 12).mean(1)
    estimate = block_mean(x, blocks=10)
    assert estimate.value == pytest.approx(x.mean())
    assert estimate.se == pytest.approx(means.std(ddof=1) / math.sqrt(10))


def test_a_ragged_end_and_torch_tensors():
    x = torch.arange(100.0) % 7
    assert block_mean(x, blocks=7).value == pytest.approx(x.mean().item())
    assert block_mean(x[:3]).n == 3
    assert block_mean(x[:1]).se is None


def test_units():
    loss = Estimate(math.log(8), se=0.1)
    assert bits(loss).value == pytest.approx(3)
    assert bits(loss).se == pytest.approx(0.1 / math.log(2))
    assert perplexity(loss).value == pytest.approx(8)
    assert perplexity(loss).hi == pytest.approx(math.exp(loss.hi))
    assert per_character(loss, 4.0).value == pytest.approx(math.log(8) / 4)


def test_invalid_input_raises():
    with pytest.raises(InputError, match="at least one value"):
        block_mean(np.empty(0))
    with pytest.raises(InputError, match="blocks must be at least 2"):
        block_mean(np.ones(9), blocks=1)
