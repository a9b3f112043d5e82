"""Checkpoints of the GPT-NeoX architecture, from trained decoders with rotary positions."""

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols, activation_name, cast
from allometry.models.transformer.model import Block, Transformer


def trained(model: Transformer, symbols: Symbols) -> Checkpoint:
    """A trained decoder with rotary positions and norms before each part."""
    assert model.table is not None
    square = model.head_size * model.heads == model.width
    require(square, "export.model", "have heads that divide its width", model.head_size)
    weights: dict[str, Tensor] = {"gpt_neox.embed_in.weight": model.table}
    activation = None
    for layer in range(model.depth):
        block = model.blocks[layer % len(model.blocks)]
        assert isinstance(block, Block)
        assert block.feed_forward is not None
        activation = activation_name(block.feed_forward.activation)
        weights |= _block(block, f"gpt_neox.layers.{layer}", model.hidden)
    require(activation is not None, "export.model", "have an activation with a name", activation)
    assert isinstance(model.final_norm, nn.LayerNorm)
    weights["gpt_neox.final_layer_norm.weight"] = model.final_norm.weight
    weights["gpt_neox.final_layer_norm.bias"] = _or_zeros(model.final_norm.bias, model.width)
    readout = model.table if model.tied else model.readout
    assert readout is not None
    weights["embed_out.weight"] = model.readout_scale * readout
    config = {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": len(symbols.words),
        "hidden_size": model.width,
        "num_hidden_layers": model.depth,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": activation,
        "max_position_embeddings": model.context,
        "layer_norm_eps": 1e-5,
        "rotary_pct": 1.0,
        "rotary_emb_base": 10000,
        "use_parallel_residual": False,
        "attention_bias": True,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    precision = "float64" if model.table.dtype == torch.float64 else "float32"
    config["dtype"] = precision
    return Checkpoint(
        config, cast(weights, precision), list(range(len(symbols.words))), None, precision
    )


def _block(block: Block, name: str, hidden: int) -> dict[str, Tensor]:
    a, f = block.attention, block.feed_forward
    assert a is not None
    assert f is not None
    assert isinstance(block.attention_norm, nn.LayerNorm)
    assert isinstance(block.feed_forward_norm, nn.LayerNorm)
    d = a.query.shape[1]
    factor = a.scale * a.size**0.5

    def joint(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Query, key and value of the first head, then those of the next."""
        parts = [t.unflatten(0, (a.heads, a.size)) for t in (factor * q, k, v)]
        return torch.stack(parts, 1).flatten(0, 2)

    biases = [_or_zeros(b, d) for b in (a.query_bias, a.key_bias, a.value_bias)]
    return {
        f"{name}.input_layernorm.weight": block.attention_norm.weight,
        f"{name}.input_layernorm.bias": _or_zeros(block.attention_norm.bias, d),
        f"{name}.post_attention_layernorm.weight": block.feed_forward_norm.weight,
        f"{name}.post_attention_layernorm.bias": _or_zeros(block.feed_forward_norm.bias, d),
        f"{name}.attention.query_key_value.weight": joint(a.query, a.key, a.value),
        f"{name}.attention.query_key_value.bias": joint(*biases),
        f"{name}.attention.dense.weight": a.output,
        f"{name}.attention.dense.bias": _or_zeros(a.output_bias, d),
        f"{name}.mlp.dense_h_to_4h.weight": f.inner,
        f"{name}.mlp.dense_h_to_4h.bias": _or_zeros(f.inner_bias, hidden),
        f"{name}.mlp.dense_4h_to_h.weight": f.outer,
        f"{name}.mlp.dense_4h_to_h.bias": _or_zeros(f.outer_bias, d),
    }


def _or_zeros(bias: Tensor | None, size: int) -> Tensor:
    return torch.zeros(size) if bias is None else bias
