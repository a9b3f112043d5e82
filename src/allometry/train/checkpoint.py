"""Checkpoints: the state of a training in one safetensors file, written atomically."""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn, optim

from allometry._core.errors import StorageError
from allometry._core.files import (
    atomic_write,
    check_regular,
    path_exists,
    rename,
    storage_errors,
    sync,
)
from allometry._core.user_files import shorten
from allometry.train.distributed import like, whole

WEIGHTS_SUM = "weights_sha256"
"""Metadata key of the checksum of a weights file."""


def save(
    path: Path,
    model: nn.Module,
    optimiser: optim.Optimizer,
    progress: dict[str, Any],
    *,
    first: bool = True,
) -> None:
    """Write weights, optimiser state and `progress` (plain JSON) to `path`; see `write`.

    If the model is sharded over processes, all of them must call this, and the first one writes.
    The file contains whole tensors, so any number of processes can resume from it.
    """
    shares = {f"model.{k}": v for k, v in model.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            shares[f"optimiser.{index}.{name}"] = torch.as_tensor(value)
    tensors = {}
    for name, share in shares.items():
        gathered = whole(share)  # one by one, so that helpers keep none of them
        if first:
            tensors[name] = gathered
    if first:
        write(path, tensors, progress)


def load(path: Path, model: nn.Module, optimiser: optim.Optimizer) -> dict[str, Any] | None:
    """Load the newest intact checkpoint into `model` and `optimiser`; returns its `progress`.

    `None` if there is none; see `newest`.
    """
    found = newest(path)
    if found is None:
        return None
    tensors, progress = found
    own = model.state_dict()
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    model.load_state_dict({k: like(v, own.get(k)) for k, v in weights.items()})
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, field = name.split(".", 2)
            state.setdefault(int(index), {})[field] = like(value, parameters[int(index)])
    frozen = optimiser.state_dict()
    optimiser.load_state_dict({"state": state, "param_groups": frozen["param_groups"]})
    return progress


def write(path: Path, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """Write a checkpoint with its checksum, atomically; the one before is kept as `previous`."""
    tensors = _distinct(tensors)
    words = json.dumps(progress)
    data = safetensors.torch.save(tensors, {"progress": words, "sha256": checksum(tensors, words)})
    with atomic_write(path, "wb") as file:
        file.write(data)
        # The older copy is replaced only after the new one is on disk. Between the two renames a
        # reader finds the older one, and a full disk loses neither.
        sync(file)
        if path_exists(path):
            rename(path, previous(path))


def previous(path: Path) -> Path:
    """Path of the checkpoint before the one at `path`."""
    return path.with_name(path.name + ".previous")


def newest(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and progress of the newest intact checkpoint at `path`; `None` if there is none.

    Raises:
        StorageError: Checkpoints exist, but none is intact.
    """
    there = [each for each in (path, previous(path)) if path_exists(each)]
    for each in there:
        try:
            check_regular(each)
            tensors, metadata = read(each)
            words = metadata.get("progress", "")
            if metadata.get("sha256") != checksum(tensors, words):
                raise StorageError(f"Can't read {each}: its checksum does not match its content.")
            return tensors, json.loads(words)
        except StorageError:
            if each == there[-1]:
                raise
    return None


def checksum(tensors: dict[str, Tensor], words: str) -> str:
    """SHA-256 of names, types, shapes and bytes of `tensors`, and of `words`."""
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(path: Path, model: nn.Module, metadata: dict[str, str]) -> None:
    """Write the weights alone to `path`, with a checksum over them and `metadata`, atomically."""
    tensors = _distinct(dict(model.state_dict()))
    said = metadata | {WEIGHTS_SUM: checksum(tensors, _words(metadata))}
    with atomic_write(path, "wb") as file:
        file.write(safetensors.torch.save(tensors, said))


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata that `save_weights` wrote, checked against their checksum.

    A file without a checksum, from an older version or another program, is not checked.

    Raises:
        StorageError: The file is truncated, or its checksum does not match.
    """
    tensors, metadata = read(path)
    told = metadata.pop(WEIGHTS_SUM, None)
    if told is not None and told != checksum(tensors, _words(metadata)):
        raise StorageError(
            f"Can't read {path}: its checksum does not match its content. Copy the file again, or "
            "train the model again."
        )
    return tensors, metadata


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; raises `StorageError` for any other file."""
    check_regular(path, link=True)
    with storage_errors("read", path):
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return {k: file.get_tensor(k) for k in file.keys()}, file.metadata() or {}  # noqa: SIM118
        # Includes the errors of torch for impossible shapes.
        except (safetensors.SafetensorError, RuntimeError, ValueError, OverflowError) as error:
            raise StorageError(
                f"Can't read {path}: it is not a whole safetensors file ({shorten(error, 120)})."
            ) from error


def _words(metadata: dict[str, str]) -> str:
    return json.dumps(metadata, sort_keys=True)


def _distinct(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies: safetensors refuses tensors that share memory (tied weights)."""
    return {k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}
