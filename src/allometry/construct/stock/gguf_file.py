"""GGUF files for llama.cpp, from checkpoints of GPT-2, GPT-NeoX and Llama.

llama.cpp evaluates the first two with the tanh approximation of GELU. A construction's ReLU
becomes GELU(K x) / K there: equal to ReLU up to e^-K^2/8 where x is 0 or at least 1/2 from it,
as in constructions. The file has no tokenizer: token ids are those of the exported model.
"""

from pathlib import Path
from typing import Any

import torch

from allometry._core.errors import require, require_extra
from allometry._core.files import make_folder
from allometry.construct.stock import hugging_face
from allometry.construct.stock.described import describe
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols
from allometry.models.transformer.model import Transformer
from allometry.targets.vocabulary import Vocabulary

STEEP = 64.0
"""K: GELU is exact in llama.cpp beyond 10 on either side."""

NAMES = {
    "gpt2": {
        "transformer.wte": "token_embd",
        "transformer.wpe": "position_embd",
        "transformer.ln_f": "output_norm",
        "lm_head": "output",
        "transformer.h.": "blk.",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
    "gpt_neox": {
        "gpt_neox.embed_in": "token_embd",
        "gpt_neox.final_layer_norm": "output_norm",
        "embed_out": "output",
        "gpt_neox.layers.": "blk.",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
    "llama": {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers.": "blk.",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
}
"""Names in GGUF by architecture."""


KINDS = {"gpt2": "gpt2", "gpt_neox": "gptneox", "llama": "llama"}
"""Architectures in llama.cpp."""


def write_gguf(
    made: Any,
    path: Path | str,
    vocabulary: Vocabulary | None = None,
    architecture: str | None = None,
) -> Path:
    """Write a GGUF file in float32, and return its path.

    Args:
        made: A trained decoder, or a construction that generates tokens. Answers of a construction
            are compared in `transformers` first.
        path: The file, or a folder for `model.gguf`.
        vocabulary: Not stored; for the common signature.
        architecture: "gpt2" or "llama", of a construction. Default: GPT-2.
    """
    gguf = require_extra("gguf", "gguf")
    hugging_face.check_architecture(made, architecture)
    if isinstance(made, Transformer):
        words = [str(i) for i in range(made.vocabulary or 0)]
        checkpoint = hugging_face.trained(made, Symbols(words))
    else:
        checkpoint = hugging_face.in_float32(describe(made), architecture)
    config = checkpoint.config
    name, kind = config["architectures"][0], config["model_type"]
    fix = "Use to='hf' or 'safetensors'."
    require(name != "Qwen3ForCausalLM", "export.made", "have no qk_norm for GGUF", name, fix)
    generates = name in ("GPT2LMHeadModel", "GPTNeoXForCausalLM", "LlamaForCausalLM")
    require(generates, "export.made", "be a decoder that generates tokens for GGUF", name)
    act = config.get("activation_function") or config["hidden_act"]
    known = ("silu",) if kind == "llama" else ("relu", "gelu", "gelu_pytorch_tanh")
    require(act in known, "export.made", f"have {' or '.join(known)} for GGUF", act, fix)
    path = Path(path)
    path = path if path.suffix == ".gguf" else path / "model.gguf"
    make_folder(path.parent)
    partial = path.with_suffix(".part")
    writer = gguf.GGUFWriter(partial, KINDS[kind])
    _settings(writer, config)
    for key, value in _tensors(checkpoint, act).items():
        writer.add_tensor(key, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
    return path


def _settings(writer: Any, config: dict[str, Any]) -> None:
    old = config["model_type"] == "gpt2"
    width = config["n_embd"] if old else config["hidden_size"]
    heads = config["n_head"] if old else config["num_attention_heads"]
    writer.add_context_length(config["n_positions"] if old else config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["n_layer"] if old else config["num_hidden_layers"])
    writer.add_feed_forward_length(config["n_inner"] if old else config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_vocab_size(config["vocab_size"])
    # Older builds of llama.cpp know only this name of "none".
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(0)
    if config["model_type"] == "llama":
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_dimension_count(config["head_dim"])
        writer.add_rope_freq_base(config["rope_theta"])
        return
    writer.add_layer_norm_eps(1e-5)
    if not old:
        writer.add_rope_dimension_count(width // heads)
        writer.add_rope_freq_base(10000.0)
        writer.add_parallel_residual(False)


def _tensors(checkpoint: Checkpoint, act: str) -> dict[str, torch.Tensor]:
    kind = checkpoint.config["model_type"]
    tensors = {}
    for old, weight in checkpoint.weights.items():
        name = old
        for theirs, ours in NAMES[kind].items():
            name = name.replace(theirs, ours)
        value = weight.float()
        if kind == "gpt2" and value.ndim == 2 and name.startswith("blk."):
            value = value.T  # GPT-2 stores (inputs, outputs); GGUF wants (outputs, inputs)
        if kind == "gpt_neox" and "attn_qkv" in name:
            heads = checkpoint.config["num_attention_heads"]
            value = value.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        if kind == "llama":
            if name.endswith(".bias") and not bool(value.any()):
                continue
            value = _adjacent(value, name, checkpoint.config)
        if act == "relu" and "ffn_up" in name:
            value = STEEP * value
        if act == "relu" and name.endswith("ffn_down.weight"):
            value = value / STEEP
        tensors[name] = value.contiguous()
    return tensors


def _adjacent(value: torch.Tensor, name: str, config: dict[str, Any]) -> torch.Tensor:
    """Queries and keys with the two coordinates of a rotary pair side by side."""
    for part, heads in (("attn_q.", "num_attention_heads"), ("attn_k.", "num_key_value_heads")):
        if part in name:
            halves = value.unflatten(0, (config[heads], 2, -1))
            return halves.transpose(1, 2).flatten(0, 2)
    return value
