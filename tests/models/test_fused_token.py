"""One token at a time by the fused kernel, against the full pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry._core import native
from allometry.models import Transformer
from allometry.models.transformer import fast_decode
from allometry.models.transformer.fused_token import FusedStep, fused_step

pytestmark = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")

STYLES = [
    {},
    {"positions": "rotary"},
    {"positions": "sinusoidal", "bias": False},
    {"positions": None, "bias": ("query", "outer", "readout")},
    {"shared": True, "depth": 3},
    {"tied": True, "readout_scale": 0.5, "activation": "silu"},
    {"head_size": 5, "attention_scale": 1.0},
    {"width": 6, "heads": 1, "positions": "rotary", "activation": "relu"},
    {"width": 64, "heads": 2, "positions": "rotary", "context": 70},
]


@pytest.fixture(autouse=True)
def _float32():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def decoder(**changes):
    shape = {"vocabulary": 11, "width": 24, "depth": 2, "heads": 2, "context": 12}
    model = Transformer(**(shape | changes))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng(p.numel())))
    return model


def assert_alike(made, truth):
    """Up to rounding: logits are of the order of one to ten."""
    torch.testing.assert_close(made, truth, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("style", STYLES, ids=str)
@torch.no_grad()
def test_one_token_at_a_time_equals_the_full_pass(style):
    model = decoder(**style)
    tokens = torch.randint(11, (3, model.context), generator=rng())
    cache = model.new_cache()
    parts = tokens.split([2, 1, 1, 3, *[1] * (model.context - 7)], 1)
    steps = [model(part, cache=cache) for part in parts]
    assert isinstance(cache.step, FusedStep)
    assert_alike(torch.cat(steps, 1), model(tokens))


@pytest.mark.parametrize("positions", ["rotary", "learned", None])
@torch.no_grad()
def test_padding_is_not_attended_to_and_takes_no_position(positions):
    model = decoder(positions=positions)
    tokens = torch.randint(11, (2, 9), generator=rng())
    padding = torch.zeros(2, 4, dtype=torch.bool)
    padding[1, :2] = True
    cache = model.new_cache()
    steps = [model(tokens[:, :4], padding=padding, cache=cache)]
    steps += [model(part, cache=cache) for part in tokens[:, 4:].split(1, 1)]
    assert isinstance(cache.step, FusedStep)
    assert_alike(torch.cat(steps, 1)[0], model(tokens[:1])[0])
    assert_alike(torch.cat(steps, 1)[1, 2:], model(tokens[1:, 2:])[0])


@settings(max_examples=40, deadline=None)
@given(st.data())
@torch.no_grad()
def test_rows_may_be_kept_repeated_and_reordered(data):
    """Beams of any ancestry, also past the context: always the logits of a full pass."""
    model = decoder(context=7)
    rows = torch.randint(11, (data.draw(st.integers(1, 4)), 3), generator=rng())
    cache = model.new_cache()
    model(rows, cache=cache)
    for step in range(data.draw(st.integers(1, 8))):
        b = len(rows)
        count = data.draw(st.sampled_from([b, b, b, 1, 5]))
        chosen = torch.tensor(
            data.draw(st.lists(st.integers(0, b - 1), min_size=count, max_size=count))
        )
        cache.select(chosen)
        new = torch.randint(11, (count, 1), generator=rng(step))
        rows = torch.cat([rows[chosen], new], 1)
        out = model(new, cache=cache)
        assert_alike(out[:, -1], model(rows[:, -7:])[:, -1])


@torch.no_grad()
def test_a_token_out_of_range_is_refused():
    model = decoder()
    cache = model.new_cache()
    model(torch.zeros(1, 2, dtype=torch.int64), cache=cache)
    with pytest.raises(IndexError, match="out of range"):
        model(torch.tensor([[11]]), cache=cache)


@torch.no_grad()
def test_other_models_use_torch(monkeypatch):
    assert fused_step(decoder().double()) is None
    assert fused_step(decoder(norm="post")) is None
    monkeypatch.setattr(fast_decode, "fused_step", lambda _: None)
    model, cache = decoder(), None
    cache = model.new_cache()
    for _ in range(3):
        model(torch.zeros(1, 1, dtype=torch.int64), cache=cache)
    assert isinstance(cache.step, fast_decode.Step)


@torch.no_grad()
def test_an_unfit_model_is_looked_at_once(monkeypatch):
    model, asked = decoder(norm="post"), []
    monkeypatch.setattr(fast_decode, "applies", lambda _: asked.append(1))
    cache = model.new_cache()
    for _ in range(4):
        model(torch.zeros(1, 1, dtype=torch.int64), cache=cache)
    assert len(asked) == 1
