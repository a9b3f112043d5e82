"""Attention weights are those that the model's own kernels apply."""

import pytest
import torch

from allometry.models import Transformer
from allometry.models.transformer.attention_weights import attention_weights


def check(part, x, y, weights):
    """Apply the weights to the values: the output of the module, which torch's kernel computed."""
    _, values = part.keys_values(y)
    mixed = (weights @ values).transpose(1, 2).flatten(2)
    made = torch.nn.functional.linear(mixed, part.output, part.output_bias)
    torch.testing.assert_close(made, x)


@pytest.mark.parametrize("positions", ["learned", "rotary", None])
@pytest.mark.parametrize("norm", ["pre", "post", None])
@pytest.mark.parametrize("shared", [False, True])
def test_weights_times_values_are_the_output(positions, norm, shared):
    model = Transformer(
        9, 16, 2, 2, context=12, positions=positions, norm=norm, shared=shared
    ).double()
    tokens = torch.randint(9, (3, 10), generator=torch.Generator().manual_seed(0))
    padding = torch.zeros(3, 10, dtype=torch.bool)
    padding[1, :4] = True
    seen = []
    for block in dict.fromkeys(model.blocks):
        block.attention.register_forward_hook(
            lambda part, given, out: seen.append((part, out, given[0]))
        )
    found = attention_weights(model, tokens, padding=padding).itself
    assert len(found) == len(seen) == 2
    for weights, (part, out, given) in zip(found, seen, strict=True):
        check(part, out, given, weights)
        assert weights.sum(-1).allclose(torch.ones(()).double())
        assert not weights.triu(1).any()
        assert not weights[1, :, 4:, :4].any()


def test_cross_attention():
    model = Transformer(9, 16, 2, 4, context=12, kind="encoder-decoder").double()
    rng = torch.Generator().manual_seed(0)
    tokens, source = (
        torch.randint(9, (2, 5), generator=rng),
        torch.randint(9, (2, 7), generator=rng),
    )
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 5:] = True
    seen = []
    for block in model.blocks:
        block.cross.register_forward_hook(
            lambda part, given, out: seen.append((part, out, given[1]))
        )
    found = attention_weights(model, tokens, source, source_padding=padding)
    assert [m.shape for m in found.cross] == [(2, 4, 5, 7)] * 2
    assert [m.shape for m in found.encoder] == [(2, 4, 7, 7)] * 2
    for weights, (part, out, memory) in zip(found.cross, seen, strict=True):
        check(part, out, memory, weights)
        assert not weights[0, :, :, 5:].any()
