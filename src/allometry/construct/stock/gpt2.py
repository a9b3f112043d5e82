"""Checkpoints of the GPT-2 architecture, from trained decoders and from constructions."""

from typing import Any

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.construct.stock.neutral_norm import Neutral, attention, feed_forward
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols, activation_name, cast
from allometry.models.transformer.experts import MixtureOfExperts
from allometry.models.transformer.model import Block, Transformer

EPS = 1e-5


def constructed(
    model: Transformer, at: Neutral, symbols: Symbols, scale: float, precision: str
) -> Checkpoint:
    """A causal construction: a language model, or a token classifier with other outputs.

    Args:
        model: The construction.
        at: The layout of the wide residual stream.
        symbols: Its tokens.
        scale: Factor on the scores.
        precision: Of the weights.
    """
    assert model.table is not None
    weights: dict[str, Tensor] = {}
    positions = model.position_table
    context = model.context or 1024
    weights["transformer.wte.weight"] = at.rows(model.table.detach()) + at.constants()
    weights["transformer.wpe.weight"] = (
        torch.zeros(context, at.width) if positions is None else at.rows(positions.detach())
    )
    hidden = max(model.hidden, 1)
    for layer in range(model.depth):
        block = model.blocks[layer % len(model.blocks)]
        assert isinstance(block, Block)
        name = f"transformer.h.{layer}"
        a = attention(block.attention, at, scale)
        assert not isinstance(block.feed_forward, MixtureOfExperts)
        inner, inner_bias, outer, outer_bias = feed_forward(block.feed_forward, at, hidden)
        joint = torch.cat([a.query, a.key, a.value])
        weights |= _norm(f"{name}.ln_1", at.gains(False)) | _norm(f"{name}.ln_2", at.gains(False))
        # GPT-2 stores its matrices as (inputs, outputs).
        weights |= {
            f"{name}.attn.c_attn.weight": joint.T,
            f"{name}.attn.c_attn.bias": torch.cat([a.query_bias, a.key_bias, a.value_bias]),
            f"{name}.attn.c_proj.weight": a.output.T,
            f"{name}.attn.c_proj.bias": a.output_bias,
            f"{name}.mlp.c_fc.weight": inner.T,
            f"{name}.mlp.c_fc.bias": inner_bias,
            f"{name}.mlp.c_proj.weight": outer.T,
            f"{name}.mlp.c_proj.bias": outer_bias,
        }
    last = at.gains(False)
    last[0] = at.gain / at.level  # this coordinate is 1 after the norm: the readout's bias
    weights |= _norm("transformer.ln_f", last)
    assert model.readout is not None
    readout = at.reads(model.readout.detach())
    bias = model.readout_bias
    generates = model.readout.shape[0] == len(symbols.words) and symbols.labels is None
    config = _config(model, at.width, at.size, hidden, "relu", generates, symbols)
    if generates:
        if bias is not None:
            readout[:, 0] = bias.detach()
        weights["lm_head.weight"] = readout
    else:
        zero = torch.zeros(readout.shape[0])
        weights["classifier.weight"] = readout
        weights["classifier.bias"] = zero if bias is None else bias.detach()
    config["dtype"] = precision
    ids = list(range(len(symbols.words)))
    return Checkpoint(config, cast(weights, precision), ids, None, precision, generates)


def trained(model: Transformer, symbols: Symbols) -> Checkpoint:
    """A trained decoder with added positions (or none) and norms before each part."""
    assert model.table is not None
    first = model.blocks[0]
    assert isinstance(first, Block)
    square = model.head_size * model.heads == model.width
    require(square, "export.model", "have heads that divide its width", model.head_size)
    d, context = model.width, model.context or 1024
    added = model.position_buffer if model.position_table is None else model.position_table
    weights: dict[str, Tensor] = {
        "transformer.wte.weight": model.table,
        "transformer.wpe.weight": torch.zeros(context, d) if added is None else added,
    }
    for layer in range(model.depth):
        block = model.blocks[layer % len(model.blocks)]
        assert isinstance(block, Block)
        weights |= _trained_block(block, f"transformer.h.{layer}", model.hidden)
    assert isinstance(model.final_norm, nn.LayerNorm)
    weights |= _norm("transformer.ln_f", model.final_norm.weight, model.final_norm.bias)
    readout = model.table if model.tied else model.readout
    assert readout is not None
    weights["lm_head.weight"] = model.readout_scale * readout
    name = activation_name(None if first.feed_forward is None else first.feed_forward.activation)
    config = _config(model, d, model.head_size, model.hidden, name or "gelu", True, symbols)
    precision = "float64" if model.table.dtype == torch.float64 else "float32"
    config["dtype"] = precision
    return Checkpoint(
        config, cast(weights, precision), list(range(len(symbols.words))), None, precision
    )


def _trained_block(block: Block, name: str, hidden: int) -> dict[str, Tensor]:
    a, f = block.attention, block.feed_forward
    assert a is not None
    assert f is not None
    assert isinstance(block.attention_norm, nn.LayerNorm)
    assert isinstance(block.feed_forward_norm, nn.LayerNorm)
    d = a.query.shape[1]

    def given(bias: Tensor | None, size: int) -> Tensor:
        return torch.zeros(size, dtype=a.query.dtype) if bias is None else bias

    biases = [given(b, d) for b in (a.query_bias, a.key_bias, a.value_bias)]
    factor = a.scale * a.size**0.5
    return {
        **_norm(f"{name}.ln_1", block.attention_norm.weight, block.attention_norm.bias),
        **_norm(f"{name}.ln_2", block.feed_forward_norm.weight, block.feed_forward_norm.bias),
        f"{name}.attn.c_attn.weight": torch.cat([factor * a.query, a.key, a.value]).T,
        f"{name}.attn.c_attn.bias": torch.cat([factor * biases[0], *biases[1:]]),
        f"{name}.attn.c_proj.weight": a.output.T,
        f"{name}.attn.c_proj.bias": given(a.output_bias, d),
        f"{name}.mlp.c_fc.weight": f.inner.T,
        f"{name}.mlp.c_fc.bias": given(f.inner_bias, hidden),
        f"{name}.mlp.c_proj.weight": f.outer.T,
        f"{name}.mlp.c_proj.bias": given(f.outer_bias, d),
    }


def _norm(name: str, weight: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": _zeros(weight) if bias is None else bias}


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like)


def _config(
    model: Transformer,
    width: int,
    size: int,
    hidden: int,
    activation: str,
    generates: bool,
    symbols: Symbols,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel" if generates else "GPT2ForTokenClassification"],
        "vocab_size": len(symbols.words),
        "n_positions": model.context or 1024,
        "n_embd": width,
        "n_layer": model.depth,
        "n_head": width // size,
        "n_inner": hidden,
        "activation_function": activation,
        "layer_norm_epsilon": EPS,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "classifier_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": symbols.before[0] if symbols.before else None,
        "eos_token_id": list(symbols.ends) or None,
    }
    if not generates:
        labels = list(symbols.labels or ())
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    return config
