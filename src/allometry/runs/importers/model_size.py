"""Number of parameters of a saved model: from the headers of its weights, or its configuration."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry._core.user_files import MOST_SMALL, open_regular, parse_json, read_text

MOST_HEADER = 1 << 27
"""Largest header of a safetensors file in bytes."""

_EMBEDDINGS = (
    "embed_tokens", "wte", "wpe", "embed_in", "word_embeddings", "position_embeddings",
    "embed_positions", "token_type_embeddings", "tok_embeddings", "shared.weight",
)  # fmt: skip
"""Parts of the names of embedding matrices."""


@final
@dataclass(frozen=True)
class ModelSize:
    """Parameters of a model.

    Args:
        total: All parameters; tied matrices count once.
        rest: Those that are not in an embedding.
        source: Name of the file that says so.
    """

    total: float
    rest: float
    source: str


def size_of_folder(folder: Path) -> ModelSize | None:
    """The size of the model saved in a folder; `None` if the files do not say."""
    try:
        weights = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    except (OSError, ValueError):
        return None
    if weights:
        return _size_of_weights(weights)
    config = folder / "config.json"
    if config.is_file():
        settings = parse_json(read_text(config, MOST_SMALL), str(config))
        if isinstance(settings, dict):
            return size_of_config(settings, config.name)
    return None


def _size_of_weights(files: list[Path]) -> ModelSize:
    total, embedded = 0, 0
    for file in files:
        for name, count in _tensors(file).items():
            total += count
            embedded += count if any(part in name for part in _EMBEDDINGS) else 0
    return ModelSize(float(total), float(total - embedded), files[0].name)


def _tensors(file: Path) -> dict[str, int]:
    """The number of entries of each tensor, from the header alone."""
    with open_regular(file, 1 << 50) as data:
        head = data.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else MOST_HEADER + 1
        if length > MOST_HEADER:
            raise InputError(f"{file} must be a safetensors file; its header is damaged.")
        header = parse_json(data.read(length), str(file))
    if not isinstance(header, dict):
        raise InputError(f"{file} must be a safetensors file; its header is not an object.")
    counts = {}
    for name, tensor in header.items():
        shape = tensor.get("shape") if isinstance(tensor, dict) else None
        if name != "__metadata__" and isinstance(shape, list):
            if not all(isinstance(n, int) and 0 <= n < 2**48 for n in shape):
                raise InputError(f"{file} must hold tensors of whole sizes; got {shape!r:.60}.")
            counts[name] = math.prod(shape)
    return counts


def size_of_config(config: dict[str, Any], source: str = "config.json") -> ModelSize | None:
    """The size of a decoder-only transformer, from its Hugging Face configuration.

    GPT-2, GPT-NeoX, OPT, and the Llama family (Llama, Mistral, Qwen2, Qwen3, Gemma, ...) are
    known; other types give `None`.
    """
    kind = str(config.get("model_type", "")).lower()
    width = _first(config, "n_embd", "hidden_size", "d_model")
    depth = _first(config, "n_layer", "num_hidden_layers", "n_layers")
    vocabulary = _first(config, "vocab_size")
    inner = _first(config, "n_inner", "intermediate_size", "ffn_dim")
    if not all(v > 0 for v in (width, depth, vocabulary)):
        return None
    positions = _first(config, "n_positions", "max_position_embeddings")
    tied = config.get("tie_word_embeddings", kind in ("gpt2", "opt"))
    inner = inner if inner > 0 else 4 * width
    embedded = vocabulary * width
    head = 0.0 if tied else vocabulary * width
    if kind == "gpt2":
        block = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
        return _made(depth * block + 2 * width + head, embedded + positions * width, source)
    if kind == "gpt_neox":
        block = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
        return _made(depth * block + 2 * width + head, embedded, source)
    if kind == "opt":
        block = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
        return _made(depth * block + 2 * width + head, embedded + (positions + 2) * width, source)
    if kind in ("llama", "mistral", "qwen2", "qwen3"):
        return _made(_llama(config, kind, width, depth, inner) + head, embedded, source)
    return None


def _llama(config: dict[str, Any], kind: str, width: float, depth: float, inner: float) -> float:
    """Parameters of the blocks and the last norm of a model of the Llama family."""
    heads = _first(config, "num_attention_heads")
    groups = _first(config, "num_key_value_heads")
    groups = groups if groups > 0 else heads
    size = _first(config, "head_dim")
    size = size if size > 0 else width / max(heads, 1.0)
    attention = 2 * width * size * heads + 2 * width * size * groups
    if kind == "qwen2" or config.get("attention_bias"):
        attention += size * (heads + 2 * groups)
    if config.get("attention_bias") and kind in ("llama", "qwen3"):
        attention += width
    if kind == "qwen3":
        attention += 2 * size
    if config.get("mlp_bias"):
        attention += 2 * inner + width
    return depth * (attention + 3 * width * inner + 2 * width) + width


def _made(rest: float, embedded: float, source: str) -> ModelSize | None:
    total = rest + embedded
    return ModelSize(total, rest, source) if math.isfinite(total) and total > 0 else None


def _first(config: dict[str, Any], *names: str) -> float:
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return number(value)
    return math.nan
