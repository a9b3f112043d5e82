"""Export of networks: safetensors, ONNX, GGUF, Hugging Face `transformers`, TransformerLens."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from allometry._core.errors import require
from allometry._core.files import atomic_write
from allometry.construct.onnx_graph import graph
from allometry.construct.stock.gguf_file import write_gguf
from allometry.construct.stock.hugging_face import write_folder
from allometry.construct.stock.llama import modern
from allometry.construct.stock.transformer_lens import write_lens
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.experts import MixtureOfExperts
from allometry.models.transformer.model import Block, Transformer
from allometry.targets.vocabulary import Vocabulary

FORMATS = ("safetensors", "onnx", "hf", "gguf", "transformer-lens")


def export(
    made: Any,
    path: Path | str,
    to: str | None = None,
    *,
    vocabulary: Vocabulary | None = None,
    architecture: str | None = None,
) -> Path:
    """Write the network of a construction, or a trained decoder, for use in other programs.

    The safetensors file has the state dict of `models.Transformer`, with the configuration under
    "config" in its metadata. The ONNX graph maps `tokens` to `outputs` for any batch size and
    length, in the precision of the weights: float64 for constructions, so verdicts are the
    same. The folder for `transformers` is a stock
    architecture (GPT-2, GPT-NeoX, Llama, Qwen3, BERT or MPNet): `AutoModelForCausalLM` or
    `AutoModelForTokenClassification` loads it without custom code. The answers of the loaded
    checkpoint are compared with the original's; `allometry.json` in the folder records the result.
    A GGUF file is for llama.cpp; the folder for TransformerLens has weights and configuration.

    Args:
        made: A construction or a trained decoder.
        path: The file, or the folder for "hf" and "transformer-lens".
        to: "safetensors", "onnx", "gguf", "hf" or "transformer-lens". Default: the suffix of the
            file, "hf" without one.
        vocabulary: Of a trained decoder, for the tokenizer in the folder.
        architecture: "gpt2" or "llama" for a causal construction and "hf" or "gguf". Default:
            GPT-2, or BERT or MPNet for constructions that see later positions.

    Example:
        >>> import tempfile
        >>> from allometry.construct import dyck, export
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(dyck(2, 3, 16), f"{folder}/dyck.safetensors").name
        'dyck.safetensors'
    """
    model = made if isinstance(made, Transformer) else made.model
    require(isinstance(model, Transformer), "export.made", "have a transformer", type(model))
    path = Path(path)
    to = to or path.suffix.removeprefix(".") or "hf"
    require(to in FORMATS, "export.to", f"be one of {', '.join(FORMATS)}", to)
    if to == "hf":
        write_folder(made, path, vocabulary, architecture)
        return path
    if to == "gguf":
        return write_gguf(made, path, vocabulary, architecture)
    fits = architecture is None
    require(fits, "export.architecture", "be given for hf or gguf only", to, "Leave it out.")
    if to == "transformer-lens":
        write_lens(made, path, vocabulary)
        return path
    if to == "safetensors":
        return _weights(model, path)
    fix = "Export it to safetensors."
    fine = model.encoder is None and model.input is None
    require(fine, "export.made", "be a decoder or an encoder for ONNX", model.kind, fix)
    skips = all(block.skip for block in model.blocks if isinstance(block, Block))
    require(skips, "export.made", "have skip connections for ONNX", "none", fix)
    layers = [block.feed_forward for block in model.blocks if isinstance(block, Block)]
    dense = not any(isinstance(layer, MixtureOfExperts) for layer in layers)
    require(dense, "export.made", "have no mixture of experts for ONNX", "one", fix)
    with atomic_write(path, "wb") as file:
        file.write(graph(model).SerializeToString())
    return path


def configuration(model: Transformer) -> dict[str, Any]:
    """The settings that, with the weights, define the model."""
    blocks = [b for b in model.blocks if isinstance(b, Block)]
    heads = [b.attention for b in blocks if isinstance(b.attention, Attention)]
    return {
        "vocabulary": model.vocabulary,
        "width": model.width,
        "depth": model.depth,
        "shared": model.shared,
        "context": model.context,
        "columns": model.columns,
        "causal": model.kind == "decoder",
        "heads": heads[0].heads if heads else 0,
        "hard": heads[0].hard if heads else False,
        "scale": heads[0].scale if heads else 1.0,
        "sights": [list(b.attention.head_masks or ()) if b.attention else [] for b in blocks],
        **_modern_settings(blocks[0]),
        "shapes": {name: list(w.shape) for name, w in model.state_dict().items()},
    }


def _modern_settings(block: Block) -> dict[str, Any]:
    """Settings of parts that constructions never have; empty for a plain block."""
    if not modern(block):
        return {}
    feed_forward, heads = block.feed_forward, block.attention
    return {
        "norm_type": "rmsnorm" if isinstance(block.attention_norm, nn.RMSNorm) else "layernorm",
        "gated": feed_forward is not None and feed_forward.gate is not None,
        "key_value_heads": heads.key_value_heads if heads is not None else 0,
        "qk_norm": heads is not None and heads.query_norm is not None,
    }


def _weights(model: Transformer, path: Path) -> Path:
    tensors = {name: w.detach().contiguous() for name, w in model.state_dict().items()}
    metadata = {"format": "pt", "config": json.dumps(configuration(model))}
    with atomic_write(path, "wb") as file:
        file.write(safetensors.torch.save(tensors, metadata))
    return path
