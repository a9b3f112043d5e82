"""Retrieval distances and reconstruction error."""

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import (
    reconstruction_error,
    retrieval_distance,
    retrieval_p_value,
    retrieval_win_rate,
)


def test_retrieval():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300, 3))
    far = y + 3
    gaps = np.sqrt(((x[:, None] - y) ** 2).sum(-1)).min(1)
    assert retrieval_distance(x, y).value == pytest.approx(gaps.mean())
    assert retrieval_win_rate(x, y, far).lo > 0.9
    assert retrieval_win_rate(x, y, y).value == 0.5
    assert retrieval_p_value(x, y, far).value == 0.001  # none of 999 permutations
    with pytest.raises(InputError, match="permutations must be at least 19"):
        retrieval_p_value(x, y, far, permutations=9)


def test_a_linear_generator_leaves_the_residual_of_the_projection():
    rng = torch.Generator().manual_seed(0)
    W, x = torch.randn(3, 8, generator=rng), torch.randn(40, 8, generator=rng)
    found = reconstruction_error(lambda z: z @ W, x, 3, restarts=2)
    fitted = x @ torch.linalg.pinv(W) @ W
    assert found.value == pytest.approx(float((x - fitted).pow(2).mean()), rel=1e-3)
    with pytest.raises(InputError, match="generate must give rows of 8 numbers"):
        reconstruction_error(lambda z: z, x, 3)
