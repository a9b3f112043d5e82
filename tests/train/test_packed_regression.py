"""Many members on one function: they learn, are judged on fresh points, can be stopped."""

import pytest
import torch
from torch import nn

from allometry._core.errors import InputError
from allometry.models.polynomial import PolynomialNetwork
from allometry.train.loop import Stopped
from allometry.train.packed_regression import learn_function, uniform_points


def linear(rng):
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.randn(1, 3, generator=rng))
    return model


def plane(x):
    return 5 + x @ torch.tensor([1.0, -2.0, 0.5])


def test_points_have_mean_zero_and_variance_one():
    x = uniform_points(200_000, 2, torch.Generator().manual_seed(0))
    # Standard errors: of the mean 1/sqrt(n), of the variance sqrt(0.8/n) for a uniform law.
    assert x.mean(0).abs().max() < 5 / 200_000**0.5
    assert (x.var(0) - 1).abs().max() < 5 * (0.8 / 200_000) ** 0.5


def test_a_linear_model_learns_a_plane_at_the_rate_that_is_best():
    learnt = learn_function(
        linear, plane, 3, seeds=6, rates=(1e-6, 0.2), trials=2, steps=100, batch=32, judged=512
    )
    assert learnt.rate == 0.2
    assert learnt.validation[1e-6] > 0.5  # a rate that never moves is no better than its start
    assert len(learnt.test) == 6
    assert max(learnt.test) < 1e-3


def test_what_has_no_relation_to_the_inputs_keeps_its_variance():
    """The error is relative: guessing the mean of a teacher out of reach gives one."""
    learnt = learn_function(
        lambda rng: linear(rng),
        lambda x: x[:, 0] * x[:, 1],  # orthogonal to every linear function
        *(3,),
        seeds=6,
        rates=(0.1,),
        trials=1,
        steps=120,
        batch=64,
        judged=4096,
    )
    # What Adam leaves of the coefficients adds a little; the teacher's own variance is within
    # 5 standard errors of one on 4,096 points (kurtosis of a product of uniforms 3.24).
    assert all(1 - 5 * (2.24 / 4096) ** 0.5 < e < 1.2 for e in learnt.test)


def test_members_that_diverge_count_as_infinite():
    learnt = learn_function(
        lambda rng: PolynomialNetwork(3, 4, [4, 4, 4], rng=rng),
        lambda x: 1e3 * x[:, 0] ** 3,
        *(3,),
        seeds=6,
        rates=(1e4,),
        trials=1,
        steps=20,
        batch=16,
        judged=64,
    )
    assert all(e > 1e3 for e in learnt.test)


def test_it_can_be_watched_and_stopped():
    seen = []

    def stop():
        return len(seen) >= 2

    with pytest.raises(Stopped):
        learn_function(linear, plane, 3, seeds=6, steps=200, watch=seen.append, stop=stop)
    assert [p.step for p in seen] == [20, 40]
    assert seen[0].steps == 400
    with pytest.raises(InputError, match="seeds must be at least 1"):
        learn_function(linear, plane, 3, seeds=0)
