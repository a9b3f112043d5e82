"""One suite for all flows: inverse, determinant, mass, tails, gradients."""

import math

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from allometry.models import flows
from allometry.models.flows import named_flows

POINTS = {
    "planar": lambda rng: flows.planar(2, 4, rng),
    "radial": lambda rng: flows.radial(2, 4, rng),
    "affine": lambda rng: flows.affine_coupling(2, 4, 16, rng=rng),
    "affine3": lambda rng: flows.affine_coupling(3, 4, 16, rng=rng),
    "nice": lambda rng: flows.affine_coupling(2, 4, 16, scale=False, rng=rng),
    "spline": lambda rng: flows.spline_coupling(2, 4, 16, bins=5, bound=3.0, rng=rng),
    "spline5": lambda rng: flows.spline_coupling(5, 4, 16, bins=5, bound=3.0, rng=rng),
    "maf": lambda rng: flows.masked_autoregressive(2, 3, 16, rng=rng),
    "maf4": lambda rng: flows.masked_autoregressive(4, 3, 16, rng=rng),
    "spline_maf": lambda rng: flows.masked_autoregressive(2, 2, 16, bins=5, rng=rng),
    "iaf": lambda rng: flows.inverse_autoregressive(2, 2, 16, rng=rng),
    "iaf3": lambda rng: flows.inverse_autoregressive(3, 2, 16, rng=rng),
    "linear": lambda rng: flows.linear(3, rng),
    "continuous": lambda rng: flows.continuous(2, 16, tolerance=1e-11, rng=rng),
    "continuous_even": lambda rng: flows.continuous(2, 16, steps=40, rng=rng),
    "permutation": lambda rng: flows.Flow(
        [flows.Permutation(3, rng), flows.ActNorm(3), flows.Flatten((3,))], (3,)
    ),
    "marginal": lambda rng: flows.Flow([flows.Marginal((2,), 6, -3.0, 3.0)], (2,)),
}
IMAGES = {
    "glow": lambda rng: flows.glow((1, 4, 4), 2, 2, 8, rng=rng),
    "glow3": lambda rng: flows.glow((3, 4, 4), 1, 1, 8, marginal=5, rng=rng),
    "splines": lambda rng: named_flows.image_splines((1, 4, 2), 5, 2, 8, rng=rng).flow,
}
MADE = {**POINTS, **IMAGES}
PLANE = [name for name in POINTS if POINTS[name](None).shape == (2,)]


def made(name, dtype=torch.float64, seed=1, spread=0.3):
    """A flow with random weights everywhere: as built, most begin as the identity."""
    rng = torch.Generator().manual_seed(seed)
    flow = MADE[name](rng)
    with torch.no_grad():
        for p in flow.parameters():
            size = spread / (p[0].numel() ** 0.5 if p.ndim > 1 else 1)
            p.add_(size * torch.randn(p.shape, generator=rng))
    return flow.to(dtype)


def points(flow, n=64, dtype=torch.float64, scale=1.0, seed=2):
    z = scale * torch.randn(n, *flow.shape, generator=torch.Generator().manual_seed(seed))
    return z.to(dtype)


def grid(name, flow):
    """Midpoints of cells, finer near 0 than far away, and their sizes; and the mass of each.

    x = sinh(t) / 2 with even steps in t reaches half as far again as 4,000 samples do.
    """
    cells = 400
    if name.startswith("continuous"):
        # Smooth, so fewer cells do; and right to 1e-4 is enough for a mass within .005.
        cells, field = 120, flow.transforms[1]
        field.tolerance, field.steps = 1e-4, field.steps and 8
    far = 1.5 * flow.sample(4000).abs().max() + 2
    t = torch.asinh(2 * far) * (2 * (torch.arange(cells) + 0.5) / cells - 1)
    axis, size = torch.sinh(t) / 2, torch.cosh(t) / 2 * (t[1] - t[0])
    with torch.no_grad():
        log_p = flow.log_prob(torch.cartesian_prod(axis, axis))
    return log_p, log_p.exp() * torch.outer(size, size).flatten()


def test_every_transform_is_covered():
    seen = {type(t) for name in MADE for t in made(name).modules()}
    members = {getattr(flows, name) for name in flows.__all__}
    kinds = {m for m in members if isinstance(m, type) and issubclass(m, flows.Transform)}
    assert kinds - {flows.Transform} <= seen


def undone(name, dtype, seed):
    """The largest error of the inverse of the forward map, relative to the data's size."""
    flow = made(name, dtype, seed)
    x = points(flow, dtype=dtype, seed=seed)
    if name in ("glow3", "splines"):
        # Their first layer has its bins on [0, 1], where pixels are.
        x = x.sigmoid()
    with torch.no_grad():
        back = flow.inverse(flow(x)[0])
    return ((back - x).abs() / (1 + x.abs())).max().item()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("name", MADE)
def test_inverse_undoes_forward(name, dtype, tolerance):
    """For any weights and points of these sizes, not for those of a lucky seed."""

    # An equation to be solved takes far longer than any other layer.
    @hypothesis.settings(max_examples=3 if name.startswith("continuous") else 15, deadline=None)
    @hypothesis.given(st.integers(0, 2**63 - 1))
    def holds(seed):
        assert undone(name, dtype, seed) < tolerance

    holds()


@pytest.mark.parametrize("name", MADE)
def test_logdet_is_the_dense_jacobian(name):
    flow = made(name)
    for x in points(flow, 3):
        J = torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0].flatten(), x)
        dense = torch.linalg.slogdet(J.reshape(flow.dim, flow.dim)).logabsdet
        # The continuous flow's solver is right to 1e-11 a step in x and logdet apart.
        torch.testing.assert_close(flow(x[None])[1][0], dense, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", PLANE)
def test_mass_is_one(name):
    _, mass = grid(name, made(name))
    assert mass.sum().item() == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MADE)
def test_tails_stay_finite(name, dtype):
    flow = made(name, dtype)
    if name == "continuous":
        flow.transforms[1].tolerance = 1e-5
    for scale in (1e-3, 10.0, 300.0):
        x = points(flow, 32, dtype, scale).requires_grad_(True)
        log_p = flow.log_prob(x)
        assert log_p.isfinite().all()
        assert torch.autograd.grad(log_p.sum(), x)[0].isfinite().all()
    rng = torch.Generator().manual_seed(0)
    assert flow.sample(2000, rng=rng).isfinite().all()
    with torch.no_grad():
        assert flow.inverse(points(flow, 32, dtype, 8.0)).isfinite().all()


@pytest.mark.parametrize("name", MADE)
def test_gradients_match_finite_differences(name):
    flow = made(name)
    x = points(flow, 4)
    leaves = [p for p in flow.parameters() if p.requires_grad]
    loss = flow.log_prob(x).sum()
    grads = torch.autograd.grad(loss, leaves)
    rng = torch.Generator().manual_seed(3)
    directions = [torch.randn(p.shape, generator=rng) for p in leaves]
    slope = sum((g * d).sum() for g, d in zip(grads, directions, strict=True)).item()
    step, values = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(leaves, directions, strict=True):
                p.add_(sign * step * d)
            values.append(flow.log_prob(x).sum().item())
            for p, d in zip(leaves, directions, strict=True):
                p.sub_(sign * step * d)
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", PLANE)
def test_samples_follow_log_prob(name):
    """The mean surprise of samples is the entropy, which a grid gives too."""
    flow = made(name)
    x = flow.sample(4000, rng=torch.Generator().manual_seed(5))
    log_p, mass = grid(name, flow)
    with torch.no_grad():
        surprise = -flow.log_prob(x)
    entropy = -(mass * log_p).sum().item()
    slack = 0.02  # the grid's share of the error
    assert abs(surprise.mean().item() - entropy) < 5 * surprise.std().item() / 63 + slack


@pytest.mark.parametrize("name", [name for name in MADE if name != "continuous"])
def test_packs(name):
    """Flows can be trained many at once: vmap over weights gives what each gives alone.

    All but the continuous one with adaptive steps, which depend on the data.
    """
    members = [made(name, seed=s) for s in (1, 2)]
    x = points(members[0], 5)
    pair = [dict(m.named_parameters()) for m in members]
    stacked = {k: torch.stack([p[k].detach() for p in pair]) for k in pair[0]}
    held = [dict(m.named_buffers()) for m in members]
    buffers = {k: torch.stack([b[k] for b in held]) for k in held[0]}

    class LogProb(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = members[0]

        def forward(self, x):
            return self.flow.log_prob(x)

    module = LogProb()

    def one(p, b):
        state = {f"flow.{k}": v for k, v in (p | b).items()}
        return torch.func.functional_call(module, state, (x,))

    together = torch.func.vmap(one)(stacked, buffers)
    for i, member in enumerate(members):
        torch.testing.assert_close(together[i], member.log_prob(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: flows.affine_coupling(2, 2, 8, context=3, **k),
        lambda **k: flows.spline_coupling(2, 2, 8, context=3, **k),
        lambda **k: flows.masked_autoregressive(2, 2, 8, context=3, **k),
        lambda **k: flows.inverse_autoregressive(2, 2, 8, context=3, **k),
        lambda **k: flows.continuous(2, 8, context=3, tolerance=1e-11, **k),
    ],
)
def test_context_conditions(make):
    rng = torch.Generator().manual_seed(0)
    flow = make(rng=rng)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng))
    x, a, b = (torch.randn(6, k, generator=rng) for k in (2, 3, 3))
    with torch.no_grad():
        assert not torch.allclose(flow.log_prob(x, a), flow.log_prob(x, b))
        z, _ = flow(x, a)
        torch.testing.assert_close(flow.inverse(z, a), x, rtol=1e-9, atol=1e-9)
        cold = flow.sample(6, context=a, temperature=0.0)
        torch.testing.assert_close(cold, flow.inverse(torch.zeros(6, 2), a))
    assert math.isfinite(flow.log_prob(x, a).sum().item())
