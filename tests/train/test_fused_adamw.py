"""AdamW of stacked models in one pass, against torch's optimiser in double precision."""

import pytest
import torch
from torch import nn, optim

from allometry._core import native
from allometry.train.packed import fused_adamw
from allometry.train.packed.stack import StackedModels

built = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")
RATES, DECAYS = (3e-3, 1e-2, 0.0), (0.1, 0.0, 0.2)


@built
@pytest.mark.parametrize("P", [1, 7, 8, 16, 33, 257])
@pytest.mark.parametrize("decay", [False, True])
def test_steps_of_every_row_are_those_of_torch(P, decay):
    """Rows have rates, schedules and clipping of their own; a rate of 0 freezes a row."""
    rng = torch.Generator().manual_seed(P)
    M, betas, eps = len(RATES), (0.9, 0.95), 1e-8
    start = torch.randn(M, P, generator=rng).float()
    rates = torch.tensor(RATES).float()[:, None].expand(M, P).contiguous()
    shrink = rates * torch.tensor(DECAYS).float()[:, None] if decay else None
    truth = [row.double().clone().requires_grad_() for row in start]
    peers = [
        optim.AdamW([p], lr=rate, betas=betas, eps=eps, weight_decay=d if decay else 0.0)
        for p, rate, d in zip(truth, RATES, DECAYS, strict=True)
    ]
    flat, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step in range(6):
        # Columns of a wider tensor, as gradients of a traced step may be.
        gradient = torch.randn(M, P + 5, generator=rng).float()[:, :P]
        factors, scales = [0.2 * (step + 1), 1.0, 0.5], [1.0, 0.3, 0.7]
        for p, peer, g, factor, scale in zip(truth, peers, gradient, factors, scales, strict=True):
            p.grad = scale * g.double()
            peer.param_groups[0]["lr"] = RATES[peers.index(peer)] * factor
            peer.step()
        root = (1 - betas[1] ** (step + 1)) ** 0.5
        rows = [(s, f, f * root / (1 - betas[0] ** (step + 1)))
                for s, f in zip(scales, factors, strict=True)]  # fmt: skip
        assert fused_adamw.applies(flat, gradient)
        fused_adamw.update(
            flat, (first, second), gradient, 1 / rates, shrink, rows, betas=betas, eps=eps * root
        )
    torch.testing.assert_close(flat.double(), torch.stack(truth).detach(), rtol=2e-6, atol=2e-6)
    assert torch.equal(flat[2], start[2])


@built
def test_infinite_gradients_are_not_hidden():
    flat, first, second, gradient = torch.zeros(4, 1, 20).float()
    moments = (first, second)
    gradient[0, 3], gradient[0, 18] = float("nan"), float("inf")
    rates = torch.full_like(flat, 1e3)
    fused_adamw.update(
        flat, moments, gradient, rates, None, [(1.0, 1.0, 1.0)], betas=(0.9, 0.95), eps=1e-8
    )
    assert flat.isnan()[0].nonzero().flatten().tolist() == [3, 18]


def test_other_dtypes_and_layouts_are_left_to_torch():
    flat = torch.zeros(2, 4).float()
    assert not fused_adamw.applies(flat.double(), flat.double())
    assert not fused_adamw.applies(flat.mT, flat.mT)
    assert not fused_adamw.applies(flat, torch.zeros(4, 2).float().mT)


@built
def test_a_stack_takes_the_steps_of_torchs_adam():
    """Also with a rate that changes, and a state that torch has begun."""
    torch.manual_seed(0)
    models = [nn.Linear(5, 3).float() for _ in range(2)]
    stack = StackedModels(models)
    step = stack.optimiser(optim.Adam, lr=1e-2, betas=(0.5, 0.999))
    exact = stack.flat.detach().double().requires_grad_()
    peer = optim.Adam([exact], lr=1e-2, betas=(0.5, 0.999))
    for i in range(5):
        gradient = torch.randn(2, 18).float()
        step.param_groups[0]["lr"] = peer.param_groups[0]["lr"] = 1e-2 / (i + 1)
        exact.grad = gradient.double()
        step.apply(gradient)
        peer.step()
        state = step.inner.state[step.rows[0]]
        assert float(state["step"]) == i + 1
        assert torch.equal(step.rows[0].grad, gradient) == (i == 0), "torch's own step only once"
    torch.testing.assert_close(stack.flat.detach().double(), exact.detach(), rtol=1e-5, atol=1e-6)
