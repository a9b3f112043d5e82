"""A packed member ends where the same model trained alone ends."""

import copy

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from allometry._core.errors import InputError
from allometry.models import CausalConvolution, Transformer
from allometry.train.objectives import next_token
from allometry.train.packed.stack import StackedModels, together

M, STEPS = 3, 200
RATES = [1e-2, 3e-3, 1e-3]


def alone(model, rate, objective, batches, clip):
    optimiser = optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    curve = []
    for batch in batches:
        loss = objective(model, batch)
        optimiser.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        curve.append(loss.detach())
    return torch.stack(curve)


def packed_curves(models, objective, batches, clip):
    pack = StackedModels(models)
    optimiser = pack.optimiser(optim.AdamW, lr=RATES, weight_decay=0.1)
    curves = []
    for batch in batches:
        losses = pack.map(objective, batch)
        optimiser.descend(losses, clip=clip)
        curves.append(losses.detach())
    return torch.stack(curves), pack


def squares(model, batch):
    return (model(batch[:, :-1]) - batch[:, -1:]).square().mean()


def regression(steps, rng):
    x = torch.randn(steps, M, 32, 4, generator=rng, dtype=torch.float32)
    return torch.cat([x, x.sin().sum(-1, keepdim=True)], -1)


def tokens(steps, rng):
    # A noisy cycle over 11 symbols: something to learn, never learnt to the last bit.
    start = torch.randint(11, (steps, M, 8, 1), generator=rng)
    walk = torch.randint(1, 3, (steps, M, 8, 13), generator=rng).cumsum(-1)
    return (start + walk) % 11


def mlp():
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))


def normalised():
    # No bias before the norm: its gradient is rounding alone, which Adam would blow up to a step.
    return nn.Sequential(
        nn.Linear(4, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1)
    )


FAMILIES = {
    "mlp": (mlp, squares, regression),
    "batch norm": (normalised, squares, regression),
    "transformer": (
        lambda: Transformer(11, width=16, depth=2, heads=2, context=13),
        next_token,
        tokens,
    ),
    "convolution": (
        lambda: CausalConvolution(11, width=8, depth=2),
        next_token,
        tokens,
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_packed_member_equals_the_same_model_alone(name):
    make, objective, data = FAMILIES[name]
    torch.manual_seed(0)
    models = [make().float() for _ in range(M)]
    batches = data(STEPS, torch.Generator().manual_seed(1))
    curves, pack = packed_curves(copy.deepcopy(models), objective, batches, clip=1.0)
    for i, model in enumerate(models):
        expected = alone(model, RATES[i], objective, batches[:, i], clip=1.0)
        # Float32 sums in another order: 1e-4 relative over 200 steps is what is promised.
        torch.testing.assert_close(curves[:, i], expected, rtol=1e-4, atol=1e-6)
        probe = batches[0, i, :, :4] if name in ("mlp", "batch norm") else batches[0, i]
        made = pack.member(i)
        torch.testing.assert_close(made.eval()(probe), model.eval()(probe), rtol=1e-3, atol=1e-4)


def test_equal_rates_take_one_kernel_for_all():
    pack = StackedModels([mlp() for _ in range(M)])
    assert len(pack.optimiser(lr=1e-3).rows) == 1
    assert len(pack.optimiser(lr=RATES).rows) == M


def test_buffers_of_members_stay_apart():
    pack = StackedModels([nn.BatchNorm1d(2) for _ in range(2)])
    x = torch.randn(2, 50, 2)
    x[1] += 10
    pack(x)
    torch.testing.assert_close(pack.buffers["running_mean"], 0.1 * x.mean(1))


def test_two_packs_play_with_parameters_that_are_not_their_own():
    a, b = (
        StackedModels([nn.Linear(2, 3) for _ in range(M)]),
        StackedModels([nn.Linear(3, 1) for _ in range(M)]),
    )
    x = torch.randn(M, 5, 2)
    other = (b.flat * 2).detach()
    both = together(lambda f, g, z: g(f(z)), [a, (b, other)], x)
    torch.testing.assert_close(both, 2 * together(lambda f, g, z: g(f(z)), [a, b], x))


def test_gradients_go_through_a_step_of_the_other():
    """d/da of L(b - eta dL/db): the second-order term that unrolling needs."""
    a, b = (
        StackedModels([nn.Linear(1, 1) for _ in range(M)]),
        StackedModels([nn.Linear(1, 1) for _ in range(M)]),
    )
    x = torch.randn(M, 6, 1)

    def cost(f, g, z):
        return (g(f(z)) ** 2).mean()

    loss = together(cost, [a, b], x).sum()
    (slope,) = torch.autograd.grad(loss, b.flat, create_graph=True)
    ahead = together(cost, [a, (b, b.flat - 0.1 * slope)], x)
    (found,) = torch.autograd.grad(ahead.sum(), a.flat)
    for i in range(M):
        f, g = a.member(i), b.member(i)
        w = list(g.parameters())
        plain = torch.autograd.grad(cost(f, g, x[i]), w, create_graph=True)
        w2, b2 = (p - 0.1 * s for p, s in zip(w, plain, strict=True))
        expected = torch.autograd.grad(
            (functional.linear(f(x[i]), w2, b2) ** 2).mean(), list(f.parameters())
        )
        torch.testing.assert_close(found[i], torch.cat([e.flatten() for e in expected]))


def test_members_of_different_shapes_are_refused():
    with pytest.raises(InputError, match="have the same parameter shapes"):
        StackedModels([nn.Linear(2, 1), nn.Linear(3, 1)])
    with pytest.raises(InputError, match="at least one model"):
        StackedModels([])
    with pytest.raises(InputError, match="one rate for each of the 2"):
        StackedModels([nn.Linear(2, 1)] * 2).optimiser(lr=[1e-3])


def test_wide_transformers_are_packed_without_a_loop():
    """Wider than what is worked feature by feature: attention takes another way there."""
    models = [Transformer(11, 32, 1, 2, 12).float() for _ in range(2)]
    batch = torch.randint(11, (2, 4, 13), generator=torch.Generator().manual_seed(0))
    losses = StackedModels(copy.deepcopy(models)).map(next_token, batch)
    expected = torch.stack([next_token(m, b) for m, b in zip(models, batch, strict=True)])
    torch.testing.assert_close(losses, expected)
