"""Packed networks by our own kernel against torch's products, in double precision."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import optim
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from allometry._core import native
from allometry.models import flows, packed_mlp
from allometry.models.autoencoders.encoders import Dense
from allometry.models.gan import Generator
from allometry.train import objectives
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep

built = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")


def reference(x, *parameters):
    """Layer by layer."""
    for i in range(0, len(parameters), 2):
        x = F.linear(F.relu(x) if i else x, *parameters[i : i + 2])
    return x


def drawn(M, n, sizes, whole=False):
    """Rows and parameters of all members, whose parameters lie side by side as a pack's do.

    Whole ones are -1, 0 and 1: what networks make of these has no rounding.
    """
    rng = torch.Generator().manual_seed(0)
    draw = torch.randn
    if whole:
        draw = lambda *shape, generator: torch.randint(-1, 2, shape, generator=generator)  # noqa: E731
    x = draw(M, n, sizes[0], generator=rng).float()
    shapes = [s for i, o in itertools.pairwise(sizes) for s in ((o, i), (o,))]
    flat = draw(M, sum(torch.Size(s).numel() for s in shapes), generator=rng).float()
    parts = flat.split([torch.Size(s).numel() for s in shapes], 1)
    return x, [p.unflatten(1, s) for p, s in zip(parts, shapes, strict=True)]


def both(x, parameters, slope, way):
    """Outputs, and gradients of rows and parameters."""
    leaves = [t.detach().requires_grad_() for t in (x, *parameters)]
    out = vmap(way)(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, slope.to(out.dtype))]


@built
@settings(max_examples=60, deadline=None)
@given(
    M=st.integers(1, 3),
    n=st.integers(1, 110),
    inputs=st.integers(1, 40),
    hidden=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    outputs=st.integers(1, 40),
    threads=st.integers(1, 2),
)
def test_values_and_gradients_of_whole_numbers_are_those_of_torch(
    M, n, inputs, hidden, outputs, threads
):
    x, parameters = drawn(M, n, [inputs, *hidden, outputs], whole=True)
    slope = torch.randint(-1, 2, (M, n, outputs), generator=torch.Generator().manual_seed(1))
    slope = slope.float()
    own, torch_threads = [], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with packed_mlp.fused_mlp():
            assert packed_mlp.applies(x[0], [p[0] for p in parameters])
            own = both(x, parameters, slope, lambda x, *p: packed_mlp.perceptron(x, p))
    finally:
        torch.set_num_threads(torch_threads)
    truth = both(x.double(), [p.double() for p in parameters], slope, reference)
    for made, exact in zip(own, truth, strict=True):
        assert exact.abs().max() < 2**24, "too large to be exact"
        assert torch.equal(made.double(), exact)


@built
def test_a_size_of_rows_after_another_leaves_nothing_behind():
    """Buffers are kept between calls; the padding of their rows must stay 0."""
    for n, sizes in ((200, [1, 33, 33, 2]), (7, [1, 33, 33, 2]), (50, [1, 20, 33, 2])):
        x, parameters = drawn(2, n, sizes)
        slope = torch.ones(2, n, 2)
        own = both(x, parameters, slope, lambda x, *p: packed_mlp.perceptron(x, p))
        truth = both(x.double(), [p.double() for p in parameters], slope, reference)
        for made, exact in zip(own, truth, strict=True):
            torch.testing.assert_close(made.double(), exact, rtol=1e-4, atol=1e-3)


@built
def test_many_rows_are_shared_out_to_threads():
    x, parameters = drawn(5, 400, [3, 64, 64, 5])
    out = [vmap(lambda x, *p: packed_mlp.perceptron(x, p))(x, *parameters)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        out.append(vmap(lambda x, *p: packed_mlp.perceptron(x, p))(x, *parameters))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*out)


@built
def test_what_is_no_number_is_not_rectified_away():
    x, parameters = drawn(1, 60, [2, 20, 20, 1])
    x[0, 3, 1] = torch.nan
    out = packed_mlp.perceptron(x[0], [p[0] for p in parameters])
    assert out.isnan().flatten().nonzero().flatten().tolist() == [3]


@built
def test_operations_are_counted_as_those_of_torch():
    x, parameters = drawn(2, 9, [3, 8, 8, 4])
    counts = []
    for way in (lambda x, *p: packed_mlp.perceptron(x, p), reference):
        with FlopCounterMode(display=False) as counter:
            both(x, parameters, torch.ones(2, 9, 4), way)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@built
def test_predicted_shapes_are_those_of_the_result():
    x, parameters = drawn(2, 9, [3, 17, 8, 4])
    for name in ("test_schema", "test_faketensor"):
        torch.library.opcheck(
            torch.ops.allometry.perceptron.default, (x, parameters), test_utils=name
        )


def test_it_applies_only_if_enabled_in_single_precision_on_cpu(monkeypatch):
    x, parameters = drawn(1, 5, [2, 8, 8, 1])
    x, parameters = x[0], [p[0] for p in parameters]
    assert not packed_mlp.applies(x, parameters)
    with packed_mlp.fused_mlp():
        assert not packed_mlp.applies(x.double(), parameters)
        assert not packed_mlp.applies(x.to("meta"), parameters)
        assert not packed_mlp.applies(x, parameters[:2])
        assert not packed_mlp.applies(x, [torch.zeros(300, 2), torch.zeros(300), *parameters[2:]])
        with torch.autocast("cpu", torch.bfloat16):
            assert not packed_mlp.applies(x, parameters)
        monkeypatch.setattr(packed_mlp, "_built", lambda: False)
        assert not packed_mlp.applies(x, parameters)


@built
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [flows.affine_coupling, pytest.param(flows.spline_coupling, marks=pytest.mark.slow)],
)
def test_fused_steps_of_flows_have_it_and_are_packed_steps(make, monkeypatch):
    asked = []
    real = packed_mlp.perceptron
    monkeypatch.setattr(packed_mlp, "perceptron", lambda *a: asked.append(1) or real(*a))
    seeds = [torch.Generator().manual_seed(s) for s in range(3)]
    packs = [StackedModels([make(2, 2, 8, rng=rng).float() for rng in seeds])]
    packs.append(StackedModels([packs[0].member(m) for m in range(3)]))
    loss = objectives.negative_log_likelihood
    rng = torch.Generator().manual_seed(9)
    batches = [torch.randn(3, 40, 2, generator=rng).float() for _ in range(4)]
    batches.append(batches[0][:1].expand(3, 40, 2))  # lies otherwise in memory
    traced = TracedStep(packs[0], loss, batches[0], fuse=True)
    assert len(asked) == 2
    steppers = [pack.optimiser(optim.SGD, lr=0.05) for pack in packs]
    for x in batches:
        losses, gradient = traced(x)
        plain = packs[1].map(loss, x)
        torch.testing.assert_close(losses, plain.detach(), rtol=1e-4, atol=1e-5)
        steppers[0].step(gradient)
        steppers[1].descend(plain)
    torch.testing.assert_close(packs[0].flat, packs[1].flat, rtol=1e-4, atol=1e-5)
    assert len(asked) == 2, "compiled again, not traced again"


@built
@pytest.mark.parametrize("mapped", [False, True])
def test_gradients_of_gradients_are_those_of_torch(mapped):
    """As contractive penalties and unrolled games take them."""
    x, parameters = drawn(2, 9, [3, 7, 5, 2])

    def penalty(way, leaves):
        def one(x, *p):
            return way(x, p).square().sum()

        value = vmap(one)(*leaves).sum() if mapped else one(*(leaf[0] for leaf in leaves))
        first = torch.autograd.grad(value, leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    with packed_mlp.fused_mlp():
        own = penalty(packed_mlp.perceptron, [t.requires_grad_() for t in (x, *parameters)])
    exact = [t.detach().double().requires_grad_() for t in (x, *parameters)]
    truth = penalty(lambda x, p: reference(x, *p), exact)
    for made, wanted in zip(own, truth, strict=True):
        torch.testing.assert_close(made.double(), wanted, rtol=1e-4, atol=1e-3)


@built
def test_encoders_and_generators_use_the_kernel_in_compiled_steps():
    rng = torch.Generator().manual_seed(0)
    for model in (Dense((3,), (2,), (8, 8), rng).float(),
                  Generator(2, 8, 2, latent=3, norm=False, rng=rng).float()):  # fmt: skip
        x = torch.randn(4, 3, generator=rng).float()
        truth = model.double()(x.double())
        with packed_mlp.fused_mlp():
            graph = make_fx(model.float())(x)
            made = model(x)
        kernel = torch.ops.allometry.perceptron.default
        assert any(node.target == kernel for node in graph.graph.nodes)
        torch.testing.assert_close(made.double(), truth, rtol=1e-5, atol=1e-5)
