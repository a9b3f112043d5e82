"""Finished models, loaded from their weights files."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import nn

from allometry._core.errors import InputError
from allometry._core.files import path_exists, path_inside, storage_errors
from allometry._core.user_files import parse_json, shorten
from allometry.decode.reader import Reader
from allometry.targets import Vocabulary, vocabulary_from_dict
from allometry.train import checkpoint
from allometry.train.restore import restore


@final
@dataclass(frozen=True)
class SavedModel:
    """A language model with its vocabulary.

    Args:
        model: With its trained weights.
        vocabulary: From text to ids and back.
        family: Its recipe.
        target: Name of its training data.
        unit: Of its loss.
    """

    model: nn.Module
    vocabulary: Vocabulary
    family: str
    target: str
    unit: str


def load(path: Path | str) -> SavedModel:
    """The model in a weights file, or the one of lowest loss in a study's folder.

    The file names the class of its model. Nothing is unpickled, and only registered classes (see
    `allometry.register`) are created.

    Args:
        path: A `.safetensors` file that a study wrote, or a study's folder.
    """
    path = Path(path)
    with storage_errors("read", path):
        folder = path.is_dir()
    path = _best(path) if folder else path
    tensors, about = checkpoint.read_weights(path)
    if "model" not in about or "vocabulary" not in about:
        raise InputError(f"{path} must be a model that a study saved; it does not say what it is.")
    saved = parse_json(about["vocabulary"], f"The vocabulary in {path}")
    model, vocabulary = restore(about["model"], tensors, path), vocabulary_from_dict(saved)
    _require_vocabulary(model, vocabulary, path)
    return SavedModel(
        model,
        vocabulary,
        about.get("family", ""),
        about.get("target", ""),
        about.get("unit", ""),
    )


def _require_vocabulary(model: nn.Module, vocabulary: Vocabulary, path: Path) -> None:
    """Refuse a model that does not predict the symbols of its vocabulary."""
    try:
        with torch.no_grad():
            symbols = Reader(model, [torch.zeros(1, dtype=torch.int64)]).start().shape[-1]
    except Exception as error:  # the first use of the model that the file describes
        raise InputError(
            f"{path} must hold a model that predicts symbols; got one that does not "
            f"({shorten(error)})."
        ) from error
    if symbols != vocabulary.size:
        raise InputError(
            f"{path} must hold a vocabulary of as many symbols as its model predicts, {symbols}; "
            f"got {vocabulary.size}. Use the file as the study wrote it."
        )


def _best(folder: Path) -> Path:
    from allometry.runs.folder import Runs

    frame = Runs(folder).frame()
    done = frame[frame["status"] == "done"].sort_values("loss")
    for key in done["key"]:
        path = path_inside(folder, "weights", f"{key}.safetensors")
        if path_exists(path):
            return path
    raise InputError(f"{folder} must hold a finished run with its weights; got none.")
