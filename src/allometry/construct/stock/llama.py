"""Checkpoints of the Llama and Qwen3 architectures, from trained decoders.

Llama has RMSNorm, gated feed-forward layers and rotary positions; Qwen3 also normalises queries
and keys. Both may share keys and values among heads.
"""

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols, activation_name, cast
from allometry.models.transformer.attention import RMS_EPS
from allometry.models.transformer.experts import MixtureOfExperts
from allometry.models.transformer.model import Block, Transformer

FIX = "Use to='safetensors' otherwise."


def modern(block: Block) -> bool:
    """Whether a block has a part that GPT-2, GPT-NeoX and our ONNX graph lack."""
    attention, feed_forward = block.attention, block.feed_forward
    grouped = attention is not None and (
        attention.key_value_heads != attention.heads or attention.query_norm is not None
    )
    gated = feed_forward is not None and feed_forward.gate is not None
    mixture = isinstance(feed_forward, MixtureOfExperts)
    return grouped or gated or mixture or isinstance(block.attention_norm, nn.RMSNorm)


def trained(model: Transformer, symbols: Symbols) -> Checkpoint:
    """A trained decoder with RMSNorm, gated feed-forward layers and rotary positions."""
    first = model.blocks[0]
    assert isinstance(first, Block)
    assert model.table is not None
    heads, feed_forward = first.attention, first.feed_forward
    assert heads is not None
    assert feed_forward is not None
    needs = {
        "have no mixture of experts": not isinstance(feed_forward, MixtureOfExperts),
        "have RMSNorm": isinstance(first.attention_norm, nn.RMSNorm),
        "have a gated activation such as swiglu": feed_forward.gate is not None,
        "have rotary positions": model.positions == "rotary",
        "have no bias in feed-forward layers with qk_norm": heads.query_norm is None
        or (feed_forward.inner_bias is None and feed_forward.outer_bias is None),
    }
    for need, fine in needs.items():
        require(fine, "export.model", f"{need} for a stock checkpoint", _described(model), FIX)
    weights: dict[str, Tensor] = {"model.embed_tokens.weight": model.table}
    for layer in range(model.depth):
        block = model.blocks[layer % len(model.blocks)]
        assert isinstance(block, Block)
        weights |= _block(block, f"model.layers.{layer}")
    assert model.final_norm is not None
    weights["model.norm.weight"] = model.final_norm.weight
    readout = model.table if model.tied else model.readout
    assert readout is not None
    weights["lm_head.weight"] = model.readout_scale * readout
    precision = "float64" if model.table.dtype == torch.float64 else "float32"
    name = "llama" if heads.query_norm is None else "qwen3"
    config = {
        "model_type": name,
        "architectures": ["LlamaForCausalLM" if name == "llama" else "Qwen3ForCausalLM"],
        "vocab_size": len(symbols.words),
        "hidden_size": model.width,
        "num_hidden_layers": model.depth,
        "num_attention_heads": model.heads,
        "num_key_value_heads": heads.key_value_heads,
        "head_dim": model.head_size,
        "intermediate_size": model.hidden,
        "hidden_act": activation_name(feed_forward.activation),
        "max_position_embeddings": model.context,
        "rms_norm_eps": RMS_EPS,
        "rope_theta": 10000.0,
        "attention_bias": True,
        "mlp_bias": name == "llama",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": precision,
    }
    return Checkpoint(
        config, cast(weights, precision), list(range(len(symbols.words))), None, precision
    )


def _described(model: Transformer) -> str:
    first = model.blocks[0]
    assert isinstance(first, Block)
    norm = type(first.attention_norm).__name__
    gated = first.feed_forward is not None and first.feed_forward.gate is not None
    return f"{norm}, {'a' if gated else 'no'} gate, {model.positions} positions"


def _block(block: Block, name: str) -> dict[str, Tensor]:
    a, f = block.attention, block.feed_forward
    assert a is not None
    assert f is not None
    assert f.gate is not None
    assert block.attention_norm is not None
    assert block.feed_forward_norm is not None
    factor = a.scale * a.size**0.5
    # The norm of the queries would undo a factor before it.
    before, after = (factor, 1.0) if a.query_norm is None else (1.0, factor)
    parts = {
        "self_attn.q_proj": (before * a.query, a.query_bias, before),
        "self_attn.k_proj": (a.key, a.key_bias, 1.0),
        "self_attn.v_proj": (a.value, a.value_bias, 1.0),
        "self_attn.o_proj": (a.output, a.output_bias, 1.0),
        "mlp.gate_proj": (f.gate, f.gate_bias, 1.0),
        "mlp.up_proj": (f.inner, f.inner_bias, 1.0),
        "mlp.down_proj": (f.outer, f.outer_bias, 1.0),
    }
    weights: dict[str, Tensor] = {
        f"{name}.input_layernorm.weight": block.attention_norm.weight,
        f"{name}.post_attention_layernorm.weight": block.feed_forward_norm.weight,
    }
    for part, (weight, bias, scale) in parts.items():
        weights[f"{name}.{part}.weight"] = weight
        if a.query_norm is None or part.startswith("self_attn"):
            zeros = weight.new_zeros(len(weight))
            weights[f"{name}.{part}.bias"] = zeros if bias is None else scale * bias
    if a.query_norm is not None and a.key_norm is not None:
        weights[f"{name}.self_attn.q_norm.weight"] = after * a.query_norm.weight
        weights[f"{name}.self_attn.k_norm.weight"] = a.key_norm.weight
    return weights
