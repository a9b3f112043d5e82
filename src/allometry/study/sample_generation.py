"""Choose a study's model, and sample points or images from it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.files import path_exists, path_inside, storage_errors
from allometry._core.user_files import parse_json
from allometry.models.pixelcnn import PixelCNN
from allometry.runs.folder import Runs
from allometry.study.recipes.pixel_runs import images_of
from allometry.train import checkpoint
from allometry.train.restore import restore


@final
@dataclass(frozen=True)
class ChosenModel:
    """A weights file and what is known about its model.

    Args:
        path: The file.
        family: Its recipe; empty if the file has none.
        N: Its parameters; `None` if only the file is known.
        loss: On the validation split.
        unit: Of the loss.
        among: Number of saved models that it was chosen from.
    """

    path: Path
    family: str
    N: float | None = None
    loss: float | None = None
    unit: str = ""
    among: int = 1

    @property
    def is_text(self) -> bool:
        """Whether the model generates text rather than points or images."""
        return "vocabulary" in checkpoint.read_weights(self.path)[1]


def choose(
    path: Path | str, *, family: str | None = None, size: float | None = None
) -> ChosenModel:
    """The model in a weights file, or one of a study's folder, by default that of lowest loss.

    Args:
        path: A `.safetensors` file that a study wrote, or a study's folder.
        family: Only models of this family.
        size: The model whose number of parameters is nearest to this, in ratio.
    """
    path = Path(path)
    with storage_errors("read", path):
        folder = path.is_dir()
    if not folder:
        asked = {"family": family, "size": size}
        for name, value in asked.items():
            require(value is None, name, "be left out with a file: it holds one model", value)
        about = checkpoint.read_weights(path)[1]
        return ChosenModel(path, about.get("family", ""), unit=about.get("unit", ""))
    runs = Runs(path)
    frame = runs.frame()
    done = frame[frame["status"] == "done"].sort_values("loss")
    files = {key: path_inside(path, "weights", f"{key}.safetensors") for key in done["key"]}
    done = done[[path_exists(files[key]) for key in done["key"]]]
    if done.empty:
        raise InputError(f"{path} must hold a finished run with its weights; got none.")
    if family is not None:
        saved = list(dict.fromkeys(done["family"]))
        require(family in saved, "family", f"be one of {', '.join(saved)}, saved here", family)
        done = done[done["family"] == family]
    among = len(done)
    if size is not None:
        distances = [abs(math.log(max(n, 1.0) / size)) for n in done["N"]]
        done = done[[distance == min(distances) for distance in distances]]
    row = done.iloc[0]
    unit = str(runs.about.get("unit") or runs.about.get("target", {}).get("unit", ""))
    numbers = {"N": float(row["N"]), "loss": float(row["loss"])}
    return ChosenModel(files[row["key"]], str(row["family"]), **numbers, unit=unit, among=among)


@final
@dataclass(frozen=True)
class GeneratedSamples:
    """Samples of a model: rows of numbers, or images.

    Args:
        values: (n, dim), or (n, channels, height, width).
        levels: Number of whole values; `None` for real numbers.
    """

    values: ndarray
    levels: int | None


def draw(
    choice: ChosenModel, n: int, seed: int = 0, shape: Sequence[int] | None = None
) -> GeneratedSamples:
    """Samples of a saved flow, autoencoder with a likelihood, PixelCNN or generator.

    Args:
        choice: The model.
        n: Number of samples.
        seed: Of the sampling.
        shape: (channels, height, width) of a PixelCNN's images. Default: as its file says.
    """
    require(n >= 1, "n", "be at least 1", n)
    tensors, about = checkpoint.read_weights(choice.path)
    description = about.get("model")
    if "generator" in about:
        description, prefix = about["generator"], "generator."
        tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    model: Any = None if description is None else restore(description, tensors, choice.path)
    if not hasattr(model, "sample"):
        kind = about.get("family") or "a model"
        raise InputError(f"{choice.path} must hold a model that can be sampled; got {kind}.")
    with torch.no_grad():
        if isinstance(model, PixelCNN):
            size: Sequence[int] = shape or json.loads(about.get("shape", "[]"))
            fix = "Files of earlier versions do not say it."
            known = len(size) == 3
            require(known, str(choice.path), "say the size of its images", tuple(size), fix)
            rows = images_of(model, size, n, seed)
        else:
            rows = model.sample(n, rng=torch.Generator().manual_seed(seed))
    arguments = parse_json(str(description), f"The model in {choice.path}").get("arguments", {})
    levels = arguments.get("levels")
    return GeneratedSamples(rows.numpy(), levels if isinstance(levels, int) else None)
