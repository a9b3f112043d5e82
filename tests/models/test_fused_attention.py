"""Attention by our own kernel against torch's, in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from allometry._core import native
from allometry.models import Transformer
from allometry.models.transformer import fused_attention
from allometry.models.transformer.positions import rotate, rotations
from allometry.train import next_token
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep

built = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")


def reference(y, turn, scale, causal):
    """Torch's own attention."""
    h = y.shape[2] // 3
    both, v = y.split([2 * h, h], 2)
    both = both if turn is None else rotate(both, turn.transpose(2, 3))
    q, k, v = (t.transpose(1, 2) for t in (*both.split(h, 2), v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)


def turns(kind, b, n, m, rng):
    """None, one for all rows of the batch, or one for each."""
    if kind == "none":
        return None
    turn = rotations(n, m).float()[:, None, None]
    return turn if kind == "one" else turn * torch.rand(2, b, 1, 1, 1, generator=rng).float()


@built
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_reduced_precision_is_rounded_on_the_way_in_and_out_only(dtype):
    rng = torch.Generator().manual_seed(0)
    y = torch.randn(2, 9, 6, 8, generator=rng).to(dtype).requires_grad_()
    wide = y.detach().float().requires_grad_()
    turn, slope = turns("one", 2, 9, 8, rng), torch.randn(2, 9, 2, 8, generator=rng).to(dtype)
    assert fused_attention.applies(y)
    made, truth = (fused_attention.attention(x, turn, scale=0.3, causal=True) for x in (y, wide))
    assert torch.equal(made, truth.to(dtype))
    (back,) = torch.autograd.grad(made, y, slope)
    (exact,) = torch.autograd.grad(truth, wide, slope.float())
    assert torch.equal(back, exact.to(dtype))


@built
@settings(max_examples=40, deadline=None)
@given(
    b=st.integers(1, 4),
    n=st.integers(1, 70),
    h=st.integers(1, 4),
    half=st.integers(3, 20),
    causal=st.booleans(),
    kind=st.sampled_from(["none", "one", "each"]),
    large=st.sampled_from([1.0, 4.0]),
)
def test_values_and_gradients_are_those_of_torch_in_double_precision(
    b, n, h, half, causal, kind, large
):
    rng = torch.Generator().manual_seed(n)
    y = (large * torch.randn(b, n, 3 * h, 2 * half, generator=rng)).float().requires_grad_()
    slope = torch.randn(b, n, h, 2 * half, generator=rng).float()
    turn = turns(kind, b, n, 2 * half, rng)
    assert fused_attention.applies(y)
    scale = 0.3 / large

    def both(way, y, turn):
        out = way(y, turn, scale=scale, causal=causal)
        return out.detach(), *torch.autograd.grad(out, y, slope.to(y.dtype))

    ours, theirs = both(fused_attention.attention, y, turn), both(reference, y, turn)
    exact = y.detach().double().requires_grad_()
    truth = both(reference, exact, None if turn is None else turn.double())
    for mine, single, double in zip(ours, theirs, truth, strict=True):
        # The error of single precision grows with the scores, so torch's own error is the scale.
        allowed = 5 * float((single - double).abs().max()) + 1e-5 * large
        assert float((mine - double).abs().max()) <= allowed


@built
def test_large_scores_do_not_overflow():
    y = 300 * torch.randn(2, 33, 6, 16, generator=torch.Generator().manual_seed(0)).float()
    out = fused_attention.attention(y, None, scale=0.25, causal=True)
    # Scores of 10^5 have errors of 10^-2, so nearly every row is a single value.
    wanted = reference(y.double(), None, 0.25, True)
    assert out.isfinite().all()
    assert ((out - wanted).abs().amax(-1) < 1.0).double().mean() > 0.95


@built
def test_two_threads_give_the_same_digits(monkeypatch):
    y = torch.randn(4, 40, 12, 16, dtype=torch.float32, requires_grad=True)
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(fused_attention, "SINGLE_THREAD", 0)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        out = fused_attention.attention(y, None, scale=0.25, causal=True)
        found.append((out, *torch.autograd.grad(out.square().sum(), y)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@built
def test_mapped_models_are_rows_of_the_batch():
    y = torch.randn(3, 2, 9, 6, 8, dtype=torch.float32)
    turn = torch.randn(3, 2, 1, 1, 9, 4, dtype=torch.float32)

    def one(y, turn):
        return fused_attention.attention(y, turn, scale=0.3, causal=True)

    both = torch.vmap(one)(y, turn)
    shared = torch.vmap(one, in_dims=(0, None))(y, turn[0])
    for i in range(3):
        assert torch.equal(both[i], one(y[i], turn[i]))
        assert torch.equal(shared[i], one(y[i], turn[0]))


@built
def test_nan_scores_propagate():
    y = torch.randn(1, 20, 3, 8, dtype=torch.float32)
    y[0, 5, 1, 2] = torch.nan
    out = fused_attention.attention(y, None, scale=0.3, causal=True)
    assert out[0, :5].isfinite().all()
    assert out[0, 5:].isnan().any(-1).all()


def model():
    """Small, in float32, with rotations."""
    made = Transformer(11, 32, 2, 2, 16, positions="rotary")
    return made.float()


@built
def test_a_transformer_has_the_same_loss_gradient_and_count_either_way(monkeypatch):
    net, tokens = model(), torch.randint(11, (8, 17), generator=torch.Generator().manual_seed(0))
    found = []
    for native_one in (True, False):
        if not native_one:
            monkeypatch.setattr(fused_attention, "applies", lambda y: False)
        plain = sdpa_kernel(SDPBackend.MATH)
        with FlopCounterMode(display=False) as counter, plain, profile() as seen:
            loss = next_token(net, tokens)
            gradient = torch.autograd.grad(loss, list(net.parameters()))
        names = {event.key for event in seen.key_averages()}
        assert ("allometry::short_attention_backward" in names) == native_one
        found.append((loss.detach(), gradient, counter.get_total_flops()))
    (one, slopes, count), (other, others, counted) = found
    assert count == counted
    assert float(one) == pytest.approx(float(other), rel=1e-6)
    for a, b in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@built
def test_stacked_and_traced_models_use_the_same_kernel():
    pack = StackedModels([model(), model()])
    tokens = torch.randint(11, (2, 8, 17), generator=torch.Generator().manual_seed(1))
    traced = TracedStep(pack, next_token, tokens)
    names = {str(node.target) for node in traced._run.graph.nodes}
    assert any("short_attention_backward" in name for name in names)
    losses, gradient = traced(tokens)
    mapped = pack.map(next_token, tokens)
    (plain,) = torch.autograd.grad(mapped.sum(), pack.flat)
    torch.testing.assert_close(losses, mapped.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, plain, rtol=1e-5, atol=1e-7)


def test_double_precision_and_long_sequences_are_left_to_torch():
    assert not fused_attention.applies(torch.zeros(1, 8, 3, 8, dtype=torch.float64))
    assert not fused_attention.applies(
        torch.zeros(1, fused_attention.LONGEST + 1, 3, 8, dtype=torch.float32)
    )
    assert not fused_attention.applies(torch.zeros(1, 8, 3, 8, dtype=torch.float32, device="meta"))
