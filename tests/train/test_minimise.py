"""The short training function descends, and reports a loss that is not finite."""

import pytest
import torch

from allometry._core.errors import DivergedError
from allometry.train import minimise


def test_minimise_reaches_a_minimum():
    goal, x = torch.tensor([1.0, -2.0]), torch.zeros(1, 1)
    model = torch.nn.Linear(1, 2)
    losses = minimise(model, lambda step: (model(x) - goal).square().sum(), steps=300, lr=0.05)
    assert len(losses) == 300
    assert losses[-1] < 1e-4 < losses[0]


def test_minimise_names_the_step_that_diverged():
    model = torch.nn.Linear(1, 2)

    def objective(step):
        return model.weight.square().sum() * (torch.inf if step else 1.0)

    with pytest.raises(DivergedError, match="step 2 "):
        minimise(model, objective, steps=5, lr=0.1)
