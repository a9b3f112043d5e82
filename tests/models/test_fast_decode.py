"""The fast decoding step and its cache against the full pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry.models import Transformer
from allometry.models.transformer.fast_decode import Step, applies

STYLES = [
    {},
    {"positions": "rotary"},
    {"positions": "sinusoidal", "bias": False},
    {"positions": None, "bias": ("query", "outer", "readout")},
    {"shared": True, "depth": 3},
    {"tied": True, "readout_scale": 0.5, "activation": "silu"},
    {"head_size": 5, "attention_scale": 1.0},
]
UNLIKE = [{"norm": "post"}, {"norm": None}, {"hard": True}, {"skip": False}, {"width": 8}]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def decoder(**changes):
    shape = {"vocabulary": 11, "width": 24, "depth": 2, "heads": 2, "context": 12}
    model = Transformer(**(shape | changes))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng(p.numel())))
    return model


@pytest.mark.parametrize("style", STYLES, ids=str)
@torch.no_grad()
def test_one_token_at_a_time_equals_the_full_pass(style):
    model = decoder(**style)
    tokens = torch.randint(11, (3, 12), generator=rng())
    cache = model.new_cache()
    steps = [model(part, cache=cache) for part in tokens.split([2, 1, 1, 3, 1, 1, 1, 1, 1], 1)]
    assert isinstance(cache.step, Step)
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))


@pytest.mark.parametrize("style", UNLIKE, ids=str)
@torch.no_grad()
def test_unsupported_models_use_the_full_pass(style):
    model = decoder(**style)
    tokens = torch.randint(11, (2, 6), generator=rng())
    cache = model.new_cache()
    steps = [model(part, cache=cache) for part in tokens.split(1, 1)]
    assert cache.step is None
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))


@torch.no_grad()
def test_hooks_inside_are_called():
    model, heard = decoder(), []
    model.blocks[1].register_forward_hook(lambda *_: heard.append(1))
    assert not applies(model)
    cache = model.new_cache()
    for _ in range(3):
        model(torch.zeros(1, 1, dtype=torch.int64), cache=cache)
    assert len(heard) == 3


def test_gradients_flow_through_the_cache():
    model = decoder()
    tokens = torch.randint(11, (2, 6), generator=rng())
    model(tokens)[:, -1].square().sum().backward()
    expected = model.table.grad.clone()
    model.zero_grad()
    cache = model.new_cache()
    for part in tokens.split([3, 1, 1, 1], 1):
        last = model(part, cache=cache)[:, -1]
    last.square().sum().backward()
    torch.testing.assert_close(model.table.grad, expected)


def test_a_cache_with_gradients_continues_without():
    model = decoder()
    tokens = torch.randint(11, (2, 8), generator=rng())
    cache = model.new_cache()
    model(tokens[:, :3], cache=cache)
    with torch.no_grad():
        rest = [model(tokens[:, t : t + 1], cache=cache) for t in range(3, 8)]
        torch.testing.assert_close(torch.cat(rest, 1), model(tokens)[:, 3:])


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
        torch.testing.assert_close(out[:, -1], model(rows[:, -7:])[:, -1])


def test_steps_go_on_from_what_was_read_with_gradients():
    model = decoder()
    tokens = torch.randint(11, (2, 8), generator=rng())
    cache = model.new_cache()
    model(tokens[:, :5], cache=cache)
    with torch.no_grad():
        steps = [model(part, cache=cache) for part in tokens[:, 5:].split(1, 1)]
        assert isinstance(cache.step, Step)
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens)[:, 5:])


@torch.no_grad()
def test_the_cache_grows_past_its_spare_entries():
    model = decoder(context=90)
    tokens = torch.randint(11, (3, 90), generator=rng())
    cache = model.new_cache()
    steps = [model(part, cache=cache) for part in tokens.split([1] * 90, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))
