"""A training frozen between two steps, in one safetensors file that is whole or absent."""

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn, optim

from allometry._core.errors import StorageError
from allometry._core.files import replacing, storage


def save(
    path: Path, model: nn.Module, optimiser: optim.Optimizer, progress: dict[str, Any]
) -> None:
    """Write weights, optimiser state and `progress` (plain JSON) to `path`, atomically."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            tensors[f"optimiser.{index}.{name}"] = torch.as_tensor(value)
    with replacing(path, "wb") as file:
        file.write(safetensors.torch.save(_distinct(tensors), {"progress": json.dumps(progress)}))


def load(path: Path, model: nn.Module, optimiser: optim.Optimizer) -> dict[str, Any]:
    """Put the state of `path` into `model` and `optimiser`; give back its `progress`."""
    tensors, metadata = read(path)
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    model.load_state_dict(weights)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, field = name.split(".", 2)
            state.setdefault(int(index), {})[field] = value
    frozen = optimiser.state_dict()
    optimiser.load_state_dict({"state": state, "param_groups": frozen["param_groups"]})
    return json.loads(metadata["progress"])


def save_weights(path: Path, model: nn.Module, metadata: dict[str, str]) -> None:
    """Write the weights alone to `path`, atomically."""
    with replacing(path, "wb") as file:
        file.write(safetensors.torch.save(_distinct(dict(model.state_dict())), metadata))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; a torn or foreign file is refused in words."""
    with storage("read", path):
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return {k: file.get_tensor(k) for k in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except safetensors.SafetensorError as error:
            raise StorageError(
                f"Can't read {path}: it is not a whole safetensors file ({error})."
            ) from error


def _distinct(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies: safetensors refuses tensors that share memory (tied weights)."""
    return {k: v.detach().clone().contiguous() for k, v in tensors.items()}
