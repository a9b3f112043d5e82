"""State dicts for TransformerLens's `HookedTransformer`, by its documented names.

Letters: h heads, m head size, d width, r hidden size. TransformerLens stores matrices as (inputs,
outputs), those of attention with the heads first.
"""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder
from allometry.construct.stock.described import describe
from allometry.construct.stock.llama import modern
from allometry.models.transformer import options
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.block import Norm
from allometry.models.transformer.model import Block, Transformer
from allometry.targets.vocabulary import Vocabulary

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
"""Names of activations in TransformerLens."""


def write_lens(made: Any, folder: Path | str, vocabulary: Vocabulary | None = None) -> None:
    """Write `model.safetensors` and `config.json`, the arguments of `HookedTransformerConfig`.

    Constructions have no norm there (`normalization_type` is `None`), so their outputs are exact.
    Load it by `HookedTransformer(HookedTransformerConfig.from_dict(config))` and
    `load_state_dict(weights, strict=False)`; what is left out are masks and rotations.

    Args:
        made: A construction of tokens, or a trained transformer.
        folder: The folder; created if needed.
        vocabulary: Not stored; for the common signature.
    """
    model, scale = made, None
    if not isinstance(made, Transformer):
        described = describe(made)
        model, scale = described.model, described.scale
    weights, config = state_dict(model, scale), configuration(model, scale)
    folder = make_folder(folder)
    with atomic_write(folder / "model.safetensors", "wb") as file:
        file.write(safetensors.torch.save(weights, {"format": "pt"}))
    with atomic_write(folder / "config.json") as file:
        file.write(json.dumps(config, indent=1))


def _checked(model: Transformer) -> list[Block]:
    blocks = [model.blocks[i % len(model.blocks)] for i in range(model.depth)]
    found = [b for b in blocks if isinstance(b, Block)]
    heads = [b.attention for b in found if b.attention is not None]
    masks = any(part.head_masks is not None for part in heads)
    plain = not any(map(modern, found))
    needs = {
        "be a decoder or an encoder of tokens": model.encoder is None and model.table is not None,
        "have norms before its parts, or none": all(b.norm in ("pre", None) for b in found),
        "have skip connections": all(b.skip for b in found),
        "have LayerNorm, no gate, and keys of its own for each head": plain,
        "have one mask for all its heads": not masks,
        "have an activation of TransformerLens": _activation(found) is not None,
    }
    for need, fine in needs.items():
        fix = "Use to='safetensors' otherwise."
        require(fine, "export.made", f"{need} for TransformerLens", repr(model)[:40], fix)
    return found


def _activation(blocks: list[Block]) -> str | None:
    parts = [b.feed_forward for b in blocks if b.feed_forward is not None]
    ours = next(
        (n for n, f in options.ACTIVATIONS.items() if parts and f is parts[0].activation), None
    )
    return ACTIVATIONS.get(ours or "relu")


def configuration(model: Transformer, scale: float | None = None) -> dict[str, Any]:
    """The arguments of `HookedTransformerConfig`.

    Args:
        model: The transformer.
        scale: Factor on the scores that replaces hardmax; `None`: the model's own.
    """
    blocks = _checked(model)
    heads = next((b.attention for b in blocks if b.attention is not None), None)
    own = 1.0 if heads is None else heads.scale if scale is None else scale
    assert model.table is not None
    rotary = model.positions == "rotary"
    readout = model.table if model.tied else model.readout
    return {
        "n_layers": model.depth,
        "d_model": model.width,
        "n_ctx": model.context or 1024,
        "d_head": model.head_size,
        "n_heads": model.heads,
        "d_mlp": max(1, model.hidden),
        "d_vocab": model.table.shape[0],
        "d_vocab_out": model.width if readout is None else readout.shape[0],
        "act_fn": _activation(blocks),
        "normalization_type": None if blocks[0].norm is None else "LN",
        "eps": 1e-5,
        "use_attn_scale": True,
        "attn_scale": 1 / own,
        "attention_dir": "causal" if model.kind == "decoder" else "bidirectional",
        "positional_embedding_type": "rotary" if rotary else "standard",
        "rotary_dim": model.head_size if rotary else None,
        "rotary_adjacent_pairs": False,
        "rotary_base": 10000,
        "dtype": str(model.table.dtype).removeprefix("torch."),
        "device": "cpu",
    }


def state_dict(model: Transformer, scale: float | None = None) -> dict[str, Tensor]:
    """The weights by TransformerLens's names."""
    blocks = _checked(model)
    assert model.table is not None
    d, dtype = model.width, model.table.dtype
    weights: dict[str, Tensor] = {"embed.W_E": model.table}
    if model.positions != "rotary":
        added = model.position_buffer if model.position_table is None else model.position_table
        zero = torch.zeros(model.context or 1024, d, dtype=dtype)
        weights["pos_embed.W_pos"] = zero if added is None else added
    for i, block in enumerate(blocks):
        weights |= _attention(block.attention, model, f"blocks.{i}.attn")
        weights |= _feed_forward(block, model, f"blocks.{i}.mlp")
        for name, norm in (("ln1", block.attention_norm), ("ln2", block.feed_forward_norm)):
            if norm is not None:
                weights |= _norm(norm, f"blocks.{i}.{name}")
    if model.final_norm is not None:
        weights |= _norm(model.final_norm, "ln_final")
    readout = model.table if model.tied else model.readout
    readout = torch.eye(d, dtype=dtype) if readout is None else model.readout_scale * readout
    bias = model.readout_bias
    weights["unembed.W_U"] = readout.T
    weights["unembed.b_U"] = torch.zeros(readout.shape[0], dtype=dtype) if bias is None else bias
    return {name: w.detach().clone().contiguous() for name, w in weights.items()}


def _attention(part: Attention | None, model: Transformer, name: str) -> dict[str, Tensor]:
    h, m, d = model.heads, model.head_size, model.width
    assert model.table is not None
    dtype = model.table.dtype
    matrices = {k: torch.zeros(h, d, m, dtype=dtype) for k in ("W_Q", "W_K", "W_V")}
    biases = {k: torch.zeros(h, m, dtype=dtype) for k in ("b_Q", "b_K", "b_V")}
    output, written = torch.zeros(h, m, d, dtype=dtype), torch.zeros(d, dtype=dtype)
    if part is not None:
        for key, weight in zip(matrices, (part.query, part.key, part.value), strict=True):
            matrices[key] = weight.unflatten(0, (h, m)).mT
        ours = (part.query_bias, part.key_bias, part.value_bias)
        for key, bias in zip(biases, ours, strict=True):
            biases[key] = biases[key] if bias is None else bias.unflatten(0, (h, m))
        output = part.output.T.unflatten(0, (h, m))
        written = written if part.output_bias is None else part.output_bias
    whole = matrices | biases | {"W_O": output, "b_O": written}
    return {f"{name}.{key}": value for key, value in whole.items()}


def _feed_forward(block: Block, model: Transformer, name: str) -> dict[str, Tensor]:
    r, d = max(1, model.hidden), model.width
    assert model.table is not None
    dtype = model.table.dtype
    inner, outer = torch.zeros(d, r, dtype=dtype), torch.zeros(r, d, dtype=dtype)
    inner_bias, outer_bias = torch.zeros(r, dtype=dtype), torch.zeros(d, dtype=dtype)
    part = block.feed_forward
    if part is not None:
        size = part.inner.shape[0]  # blocks of constructions differ in their number of neurons
        inner[:, :size], outer[:size] = part.inner.detach().T, part.outer.detach().T
        if part.inner_bias is not None:
            inner_bias[:size] = part.inner_bias.detach()
        outer_bias = outer_bias if part.outer_bias is None else part.outer_bias
    whole = {"W_in": inner, "b_in": inner_bias, "W_out": outer, "b_out": outer_bias}
    return {f"{name}.{key}": value for key, value in whole.items()}


def _norm(norm: Norm, name: str) -> dict[str, Tensor]:
    assert isinstance(norm, torch.nn.LayerNorm)
    bias = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
    return {f"{name}.w": norm.weight, f"{name}.b": bias}
