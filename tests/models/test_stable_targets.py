"""Mean targets of diffusion models against the posterior means of a mixture."""

import math

import pytest
import torch

from allometry._core.errors import InputError
from allometry.models import diffusion
from tests.models.test_diffusion import mixture, true_score


@pytest.mark.parametrize("angle", [0.15, 0.6, 1.3])
def test_stable_pairs_are_the_posterior_means_of_the_mixture(angle):
    torch.manual_seed(0)
    x, noise = mixture().sample((3000,)), torch.randn(3000, 2)
    sine, cosine = (torch.full((3000,), f(angle)) for f in (math.sin, math.cos))
    data, mean_noise = diffusion.stable_pairs(x, noise, sine, cosine)
    y = cosine[:, None] * x + sine[:, None] * noise
    torch.testing.assert_close(
        cosine[:, None] * data + sine[:, None] * mean_noise, y, atol=1e-5, rtol=1e-5
    )
    some = torch.full((100,), angle)
    exact_noise = -math.sin(angle) * true_score(y[:100], some)
    stable, plain = ((n[:100] - exact_noise).square().mean() for n in (mean_noise, noise))
    # The variance of the targets falls to a small share of that of the pairs.
    assert stable < 0.1 * plain
    # Their mean error over many rows is that of the batch as a sample.
    assert (mean_noise[:100] - exact_noise).mean(0).abs().max() < 0.1


def test_stable_pairs_are_the_pairs_themselves_near_the_data_and_in_many_dimensions():
    rng = torch.Generator().manual_seed(0)
    for d, angle in ((2, 1e-4), (64, 0.3)):
        x, noise = (torch.randn(50, d, generator=rng) for _ in range(2))
        sine, cosine = (torch.full((50,), f(angle)) for f in (math.sin, math.cos))
        data, same = diffusion.stable_pairs(x, noise, sine, cosine)
        torch.testing.assert_close(data, x, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(same, noise, atol=1e-3, rtol=1e-3)


def test_stable_targets_are_refused_with_a_context():
    model = diffusion.points(2, width=8, context=3).transforms[1]
    x, u = torch.zeros(4, 2), torch.full((4,), 0.5)
    with pytest.raises(InputError, match="context must be left out if stable"):
        model.loss(x, u, x, torch.eye(3)[[0, 1, 2, 0]], stable=True)
