"""Export of constructed networks: safetensors, ONNX, Hugging Face `transformers`."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import safetensors.torch

from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder
from allometry.construct.onnx_graph import graph
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, Transformer

FORMATS = ("safetensors", "onnx", "hf")


def export(made: Any, path: Path | str, to: str | None = None) -> Path:
    """Write the network of a construction for use in other programs.

    The safetensors file has the state dict of `models.Transformer`, with the configuration under
    "config" in its metadata. The ONNX graph maps `tokens` to `outputs` for any batch size and
    length, in float64, so verdicts are the same. The folder for `transformers` contains its own
    code, which does not need this package:
    `AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=torch.float64)`.

    Args:
        made: A construction, or its model.
        path: The file, or the folder for "hf".
        to: "safetensors", "onnx" or "hf". Default: the suffix of the file, "hf" without one.

    Example:
        >>> import tempfile
        >>> from allometry.construct import dyck, export
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(dyck(2, 3, 16), f"{folder}/dyck.safetensors").name
        'dyck.safetensors'
    """
    model = made if isinstance(made, Transformer) else made.model
    require(isinstance(model, Transformer), "export.made", "have a transformer", type(model))
    plain = model.final_norm is None and model.positions in (None, "learned")
    require(plain and model.encoder is None, "export.made", "be a construction", repr(model)[:40])
    path = Path(path)
    to = to or path.suffix.removeprefix(".") or "hf"
    require(to in FORMATS, "export.to", f"be one of {', '.join(FORMATS)}", to)
    if to == "onnx":
        with atomic_write(path, "wb") as file:
            file.write(graph(model).SerializeToString())
        return path
    if to == "hf":
        return _folder(model, make_folder(path))
    return _weights(model, path)


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
        "shapes": {name: list(w.shape) for name, w in model.state_dict().items()},
    }


def _weights(model: Transformer, path: Path) -> Path:
    tensors = {name: w.detach().contiguous() for name, w in model.state_dict().items()}
    metadata = {"format": "pt", "config": json.dumps(configuration(model))}
    with atomic_write(path, "wb") as file:
        file.write(safetensors.torch.save(tensors, metadata))
    return path


def _folder(model: Transformer, folder: Path) -> Path:
    code = files("allometry.construct").joinpath("modeling_constructed.py").read_text("utf-8")
    with atomic_write(folder / "modeling_constructed.py") as file:
        file.write(code)
    config = {
        "model_type": "allometry_constructed",
        "architectures": ["ConstructedModel"],
        "dtype": "float64",
        "auto_map": {
            "AutoConfig": "modeling_constructed.ConstructedConfig",
            "AutoModel": "modeling_constructed.ConstructedModel",
        },
    }
    with atomic_write(folder / "config.json") as file:
        json.dump(config | configuration(model), file, indent=1)
    _weights(model, folder / "model.safetensors")
    return folder
