"""A traced step against the packed one it was traced from."""

import pytest
import torch
from torch import nn, optim

from allometry import InputError
from allometry.models import autoencoders as ae
from allometry.models import flows
from allometry.train import objectives
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep


def seeded(make):
    return StackedModels([make(torch.Generator().manual_seed(s)) for s in range(3)])


def autoencoder(rng):
    return ae.dense_vae((2,), 2, ae.Gaussian(), (8,), rng)


CASES = {
    "affine": (lambda rng: flows.affine_coupling(2, 2, 8, rng=rng), "likelihood"),
    "spline": (lambda rng: flows.spline_coupling(2, 2, 8, rng=rng), "likelihood"),
    "masked": (lambda rng: flows.masked_autoregressive(2, 2, 8, rng=rng), "likelihood"),
    "vae": (autoencoder, "elbo"),
}


@pytest.mark.parametrize("name", CASES)
def test_traced_steps_are_packed_steps(name):
    """Five steps of each from the same weights end in the same weights."""
    make, kind = CASES[name]
    loss = objectives.negative_log_likelihood
    one, two = seeded(make), seeded(make)
    rng = torch.Generator().manual_seed(9)
    noise = [torch.randn(3, 16, 2, generator=rng)] if kind == "elbo" else []
    x = torch.randn(3, 16, 2, generator=rng)
    traced = TracedStep(one, loss, x, *noise)
    steppers = [pack.optimiser(optim.Adam, lr=[0.01, 0.02, 0.03]) for pack in (one, two)]
    for _ in range(5):
        x = torch.randn(3, 16, 2, generator=rng)
        losses, gradient = traced(x, *noise)
        norms = steppers[0].step(gradient, clip=1.0)
        plain = two.map(loss, x, *noise)
        torch.testing.assert_close(losses, plain.detach())
        torch.testing.assert_close(norms, steppers[1].descend(plain, clip=1.0))
    torch.testing.assert_close(one.flat, two.flat)


def test_cleaning_merges_products_with_their_biases():
    pack = seeded(lambda rng: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    x = torch.randn(3, 5, 3)
    traced = TracedStep(pack, lambda model, x: model(x).square().mean(), x)
    used = [str(node.target) for node in traced._run.graph.nodes]
    assert used.count("aten.baddbmm.default") == 2
    assert "aten.detach.default" not in used


def test_writes_into_buffers_are_distinguished_from_writes_into_temporaries():
    """Running means are written into what is given; a flow's sums into what was just made."""
    x = torch.randn(3, 5, 2)
    norm = seeded(lambda rng: nn.BatchNorm1d(2))
    assert TracedStep(norm, lambda model, x: model(x).square().mean(), x).changes
    flow = seeded(CASES["affine"][0])
    assert not TracedStep(flow, objectives.negative_log_likelihood, x).changes


def test_other_shapes_are_refused():
    pack = seeded(lambda rng: nn.Linear(2, 1))
    traced = TracedStep(pack, lambda model, x: model(x).square().mean(), torch.randn(3, 5, 2))
    with pytest.raises(InputError, match="have shapes"):
        traced(torch.randn(3, 6, 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fused_steps_are_packed_steps():
    make, _ = CASES["spline"]
    pack = seeded(make)
    x = torch.randn(3, 16, 2, generator=torch.Generator().manual_seed(0))
    loss = objectives.negative_log_likelihood
    (gradient,) = torch.autograd.grad(pack.map(loss, x).sum(), pack.flat)
    torch.testing.assert_close(TracedStep(pack, loss, x, fuse=True)(x)[1], gradient)


@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_thin_products_are_turned_and_remain_the_same(fuse):
    """Two outputs of 64 hidden units: kernels take few rows faster than few columns."""
    pack = seeded(lambda rng: nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2)))
    x = torch.randn(3, 128, 5, generator=torch.Generator().manual_seed(0))

    def loss(model, x):
        return model(x).square().mean()

    traced = TracedStep(pack, loss, x, fuse=fuse)
    (gradient,) = torch.autograd.grad(pack.map(loss, x).sum(), pack.flat)
    torch.testing.assert_close(traced(x)[1], gradient)
    if not fuse:
        shapes = [
            tuple(n.meta["val"].shape)
            for n in traced._run.graph.nodes
            if "bmm" in n.name and "val" in n.meta
        ]
        assert (3, 128, 2) not in shapes


def test_one_member_is_traced_as_it_is_stepped():
    """A lone member has plain products; gradients of thin layers are viewed as rows."""
    rng = torch.Generator().manual_seed(0)
    layers = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 100), nn.Linear(100, 1))
    pack, x = StackedModels([layers]), torch.randn(1, 200, 2, generator=rng)

    def loss(model, x):
        return model(x).square().mean()

    (gradient,) = torch.autograd.grad(pack.map(loss, x).sum(), pack.flat)
    torch.testing.assert_close(TracedStep(pack, loss, x)(x)[1], gradient)
