"""The fused pass of decoders against torch in double precision."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry._core import native
from allometry.models import Transformer
from allometry.models.transformer import fused_decoder
from allometry.study.recipes.transformer_runs import decoder
from allometry.train import next_token
from allometry.train.device import DeviceSettings
from allometry.train.packed.adamw import TracedLists
from allometry.train.packed.fused_next_token import FusedNextToken, fused_next_token
from allometry.train.packed.stack import StackedModels

built = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def _float32():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def made(seed=0, **options):
    """A decoder whose biases and gains are not at their initial values."""
    rng = torch.Generator().manual_seed(seed)
    model = Transformer(**{"vocabulary": 31, "context": 24} | options, rng=rng)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    return model


def text(model, b=3, n=None, seed=1):
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(model.vocabulary, (b, (n or model.context) + 1), generator=rng)


def fused_gradients(model, tokens):
    with fused_decoder.fused_decoder():
        loss = fused_decoder.mean_loss(model, tokens)
    assert loss is not None
    parameters = [p for p in model.parameters() if p.requires_grad]
    return loss.item(), torch.autograd.grad(loss, parameters)


def assert_like_torch(model, tokens, loss, gradients):
    """As near to double precision as torch's own float32, within a few roundings."""
    wide = copy.deepcopy(model).double()
    truth = next_token(wide, tokens)
    exact = torch.autograd.grad(truth, list(wide.parameters()))
    plain = torch.autograd.grad(next_token(model, tokens), list(model.parameters()))
    assert loss == pytest.approx(truth.item(), rel=2e-6)
    size = torch.cat([g.flatten() for g in exact]).norm().item()
    for made_one, own, right in zip(gradients, plain, exact, strict=True):
        error, usual = ((g - right).norm().item() for g in (made_one, own))
        # A relative error of 2e-6 of the whole gradient is the rounding of float32.
        assert error <= 5 * usual + 2e-6 * size


@built
@settings(max_examples=60, deadline=None)
@given(
    # Norms of two numbers are left out: they amplify rounding.
    heads_size=st.sampled_from([(3, 2), (1, 6), (2, 10), (3, 16), (2, 24)]),
    depth=st.integers(1, 3),
    hidden=st.integers(1, 70),
    n=st.integers(1, 40),
    vocabulary=st.sampled_from([2, 16, 31, 97]),
    positions=st.sampled_from(["rotary", "learned", "sinusoidal", None]),
    activation=st.sampled_from(["gelu", "relu", "silu"]),
    bias=st.sampled_from([True, False, ("readout", "inner", "norm"), ("query", "output")]),
    tied=st.booleans(),
    shared=st.booleans(),
    scale=st.sampled_from([1.0, 3.5]),
)
def test_losses_and_gradients_are_those_of_torch(
    heads_size, depth, hidden, n, vocabulary, positions, activation, bias, tied, shared, scale
):
    heads, size = heads_size
    model = made(
        vocabulary=vocabulary, width=heads * size, depth=depth, heads=heads, hidden=hidden,
        context=n + 3, positions=positions, activation=activation, bias=bias, tied=tied,
        shared=shared, readout_scale=scale,
    )  # fmt: skip
    tokens = text(model, n=n)
    loss, gradients = fused_gradients(model, tokens)
    assert_like_torch(model, tokens, loss, gradients)
    each = fused_decoder.losses(model, tokens[:, :-1], tokens[:, 1:])
    assert each is not None
    assert each.mean().item() == pytest.approx(loss, rel=1e-6)


@built
@pytest.mark.parametrize(
    "shape",
    [
        {"width": 384, "heads": 6, "context": 5, "vocabulary": 300},
        {"width": 40, "heads": 5, "context": 200, "vocabulary": 1000},
        {"width": 32, "heads": 2, "context": 1},
    ],
    ids=str,
)
def test_wide_and_long_models_too(shape):
    model = made(depth=2, positions="rotary", **shape)
    tokens = text(model)
    assert_like_torch(model, tokens, *fused_gradients(model, tokens))


@built
def test_longer_windows_use_torch():
    model = made(width=16, depth=1, heads=1, context=300)
    with fused_decoder.fused_decoder():
        assert fused_decoder.mean_loss(model, text(model, n=257)) is None
        assert fused_decoder.mean_loss(model, text(model, n=256)) is not None


@built
@pytest.mark.parametrize("x", [-30.0, -9.0, -4.0, -1e-3, 0.0, 1e-3, 3.9, 4.1, 9.0, 30.0])
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activations_are_right_far_from_zero(activation, x):
    model = made(width=16, depth=1, heads=1, hidden=16, activation=activation)
    with torch.no_grad():
        model.blocks[0].feed_forward.inner_bias.fill_(x)
        model.blocks[0].feed_forward.inner.mul_(1e-3)
    tokens = text(model)
    assert_like_torch(model, tokens, *fused_gradients(model, tokens))


@built
def test_every_model_of_a_stack_has_its_own_gradient():
    models = [decoder(31, 24, 2, 1, 24, torch.Generator().manual_seed(i)) for i in range(3)]
    stack = StackedModels(models)
    tokens = torch.stack([text(models[0], seed=i) for i in range(3)])
    lists = TracedLists(fuse=False, trace=False, on=DeviceSettings("cpu", "float32"))
    losses, gradient = lists(stack, next_token, [tokens])
    assert isinstance(fused_next_token(stack, next_token, [tokens]), FusedNextToken)
    for i, model in enumerate(models):
        loss, alone = fused_gradients(model, tokens[i])
        assert losses[i].item() == pytest.approx(loss, rel=1e-6)
        assert torch.equal(gradient[i], torch.cat([g.flatten() for g in alone]))
        assert_like_torch(model, tokens[i], losses[i].item(), alone)


@built
@pytest.mark.parametrize("rows", [1, 5])
def test_threads_change_only_the_order_of_sums(monkeypatch, rows):
    monkeypatch.setattr(fused_decoder, "SINGLE_THREAD", 0)
    model = made(width=32, depth=2, heads=2)
    tokens = text(model, b=rows)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        loss, one = fused_gradients(model, tokens)
        torch.set_num_threads(4)
        again, several = fused_gradients(model, tokens)
    finally:
        torch.set_num_threads(before)
    assert again == loss
    for a, b in zip(one, several, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    _, repeated = fused_gradients(model, tokens)
    assert len(repeated) == len(one)


@built
def test_frozen_parameters_have_no_gradient():
    model = made(width=24, depth=1, heads=1)
    model.table.requires_grad_(False)
    tokens = text(model)
    with fused_decoder.fused_decoder():
        next_token(model, tokens).backward()
    assert model.table.grad is None
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@built
def test_a_token_out_of_range_is_refused_as_by_torch():
    model = made(width=24, depth=1, heads=1)
    for wrong in (-1, model.vocabulary):
        tokens = text(model)
        tokens[1, 2] = wrong
        with (
            fused_decoder.fused_decoder(),
            pytest.raises(IndexError, match="out of range"),
        ):
            next_token(model, tokens)


@built
def test_a_loss_that_is_not_finite_stays_so():
    model = made(width=24, depth=1, heads=1)
    with torch.no_grad():
        model.blocks[0].feed_forward.inner[0, 0] = torch.nan
    tokens = text(model)
    with fused_decoder.fused_decoder():
        assert not torch.isfinite(next_token(model, tokens))


VARIANTS = {
    "encoder": {"kind": "encoder"},
    "post": {"norm": "post"},
    "hard": {"hard": True},
    "gated": {"activation": "swiglu"},
    "tanh": {"activation": "tanh"},
    "rms": {"norm_type": "rmsnorm"},
    "grouped": {"key_value_heads": 1},
    "normed": {"qk_norm": True},
    "experts": {"experts": 2},
    "hidden": {"hidden": (8, 16)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_variants_use_torch(name):
    assert (
        fused_decoder.fused(made(**{"width": 24, "depth": 2, "heads": 2} | VARIANTS[name])) is None
    )


@built
def test_blocks_that_differ_use_torch():
    model = made(width=24, depth=2, heads=2)
    model.blocks[1].attention.scale *= 2
    assert fused_decoder.fused(model) is None


@built
def test_hooks_precision_and_the_context_decide():
    model = made(width=24, depth=2, heads=2)
    tokens = text(model)
    assert fused_decoder.fused(model) is not None
    assert fused_decoder.mean_loss(model, tokens) is None, "outside of the context"
    with fused_decoder.fused_decoder(), torch.autocast("cpu", torch.bfloat16):
        assert fused_decoder.mean_loss(model, tokens) is None
    assert fused_decoder.fused(copy.deepcopy(model).double()) is None
    handle = model.blocks[0].register_forward_hook(lambda *_: None)
    assert fused_decoder.fused(model) is None
    handle.remove()
    assert fused_decoder.fused(model) is not None


def test_without_a_compiler_torch_is_used(monkeypatch):
    monkeypatch.setattr(fused_decoder, "_kernel", lambda: None)
    model = made(width=24, depth=1, heads=1)
    tokens = text(model)
    assert fused_decoder.losses(model, tokens[:, :-1], tokens[:, 1:]) is None
    with fused_decoder.fused_decoder():
        assert torch.isfinite(next_token(model, tokens))
