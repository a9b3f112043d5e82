"""Measures that every family has: the samples of saved models against held-out data.

Each model draws as many samples as there are test rows, at most `MOST`. All families are compared
with the same rows, in the same coordinates and by the same estimators, whatever their own loss is.
Texts have the measures of `text_measures`.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import InputError
from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write, make_folder, path_exists, path_inside, read_json
from allometry.measure import copying, kid, prdc, sliced_wasserstein
from allometry.measure import features as feature_maps
from allometry.runs.folder import Runs
from allometry.study.recipes.density_runs import Vectors
from allometry.study.recipes.sample_scores import as_images, rows
from allometry.study.sample_generation import ChosenModel, draw
from allometry.study.text_measures import TextYardstick
from allometry.targets import Images, NumericTable, Sources, Text

Language = Text | Sources
"""Targets of tokens."""

MOST = 1000
"""Samples that are measured, at most."""

TRAINING_ROWS = 2000
"""Training rows with which copies are looked for."""

COMPONENTS = 32
"""Principal components of images in which KID is computed."""

NAMES = ("sliced_wasserstein", "kid", "precision", "recall", "copying")
"""The measures."""

VERSION = 2
"""Of the estimators; measures of another version are computed again."""


@final
@dataclass(frozen=True)
class MeasuredRun:
    """A finished run and the measures of its samples.

    Args:
        key: The run's key.
        family: As the journal names it.
        N: Parameters.
        D: Examples seen.
        C: Training FLOPs.
        seed: Of the run.
        loss: Its own loss on the validation split.
        seconds: To draw 1,000 samples on one core.
        measures: By name.
        pictures: Some samples, for a figure.
        excerpts: Some samples of text.
    """

    key: str
    family: str
    N: float
    D: float
    C: float
    seed: int
    loss: float
    seconds: float
    measures: dict[str, Estimate]
    pictures: ndarray | None = None
    excerpts: tuple[str, ...] = ()


def measure_runs(
    folder: Path,
    target: Vectors | Language,
    *,
    context: int = 64,
    shown: int | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> list[MeasuredRun]:
    """Measure the samples of every finished run in a study's folder that has weights.

    Results are kept in `folder/measures`; the same call again reads them.

    Args:
        folder: The study's folder.
        target: What its models learnt.
        context: Tokens in a window of text.
        shown: Samples that are kept for figures. Default: 36 images, 500 points, 3 texts.
        watch: Receives the number of runs measured and of all.
    """
    kept = 3 if isinstance(target, Language) else 36 if isinstance(target, Images) else 500
    shown = kept if shown is None else shown
    frame = Runs(folder).frame()
    done = frame[frame["status"] == "done"]
    made: list[MeasuredRun] = []
    yardstick: _Yardstick | TextYardstick | None = None
    for place, row in enumerate(done.to_dict("records")):
        if watch is not None:
            watch(place, len(done))
        weights = path_inside(folder, "weights", f"{row['key']}.safetensors")
        if not path_exists(weights):
            continue
        file = path_inside(folder, "measures", f"{row['key']}.json")
        saved = _read(file)
        if saved is None:
            yardstick = yardstick or _yardstick(target, context)
            saved = yardstick.measure(ChosenModel(weights, str(row["family"])), shown)
            found = {k: {"value": e.value, "se": e.se} for k, e in saved["measures"].items()}
            saved |= {"version": VERSION, "measures": found}
            make_folder(file.parent)
            with atomic_write(file) as out:
                json.dump(saved, out)
        numbers: dict[str, Any] = {name: float(row[name]) for name in ("N", "D", "C", "loss")}
        measures = {k: Estimate(v["value"], v["se"]) for k, v in saved["measures"].items()}
        samples: dict[str, Any] = _shown(saved["pictures"], target)
        made.append(
            MeasuredRun(
                str(row["key"]), str(row["family"]), seed=int(row["seed"]),
                seconds=float(saved["seconds"]), measures=measures,
                **samples, **numbers,
            )
        )  # fmt: skip
    return made


def reference(target: Vectors | Language, *, context: int = 64) -> dict[str, Estimate]:
    """The measures of real data: training rows in place of samples.

    For points and images no model is expected to be better, because the estimators have a bias at
    this number of rows. The test part of a text is another passage than the training part.
    """
    yardstick = _yardstick(target, context)
    if isinstance(yardstick, TextYardstick):
        return yardstick.real()
    return yardstick.scores(yardstick.training[: len(yardstick.test)], copies=False)


def _yardstick(target: Vectors | Language, context: int) -> "_Yardstick | TextYardstick":
    return TextYardstick(target, context) if isinstance(target, Language) else _Yardstick(target)


@final
class _Yardstick:
    """Held-out and training rows of a target, and a fixed feature map."""

    def __init__(self, target: Vectors) -> None:
        if isinstance(target, NumericTable):
            raise InputError(
                f"The measures of all families must be given points or images; got the table "
                f"{target.name}. Compare families of a table by their likelihood."
            )
        self.target = target
        self.test = rows(target, "test")[:MOST]
        self.training = _training(target)
        images = isinstance(target, Images)
        components = min(COMPONENTS, self.test.shape[1])
        self.features = feature_maps.pca(self.training, components) if images else None

    def measure(self, choice: ChosenModel, shown: int) -> dict[str, Any]:
        """Draw samples and measure them; the result is plain values."""
        started = time.process_time()
        shape = self.target.shape if isinstance(self.target, Images) else None
        drawn = torch.as_tensor(draw(choice, len(self.test), seed=1, shape=shape).values)
        seconds = (time.process_time() - started) * 1000 / len(self.test)
        samples, whole = self._coordinates(drawn)
        pictures = whole[:shown].flatten(1).tolist()
        return {"seconds": seconds, "measures": self.scores(samples), "pictures": pictures}

    def _coordinates(self, drawn: Tensor) -> tuple[Float[Tensor, "n d"], Tensor]:
        """Samples in the coordinates of `rows`, and as values of the target."""
        target = self.target
        if not isinstance(target, Images):
            return drawn.float(), drawn
        # Generators give rows in [0, 1]; other families give whole pixel values.
        whole = drawn if drawn.ndim > 2 else as_images(drawn, target)
        noise = torch.rand(whole.flatten(1).shape, generator=torch.Generator().manual_seed(2))
        return (whole.flatten(1).float() + noise) / (target.levels or 1), whole

    def scores(self, samples: Float[Tensor, "n d"], *, copies: bool = True) -> dict[str, Estimate]:
        """The measures of some samples against the test rows."""
        near = prdc(self.test, samples, features=self.features)
        found = {
            "sliced_wasserstein": sliced_wasserstein(self.test, samples, projections=200),
            "kid": kid(self.test, samples, features=self.features, subsets=9),
            "precision": near["precision"],
            "recall": near["recall"],
        }
        if copies:
            found["copying"] = copying(self.training, self.test, samples, features=self.features)
        return found


def _training(target: Vectors) -> Float[Tensor, "n d"]:
    """Training rows in the coordinates of `rows`."""
    if isinstance(target, Images):
        return rows(target, "train")[:TRAINING_ROWS]
    return target.batch(0, size=TRAINING_ROWS, seed=3).float()


def _read(file: Path) -> dict[str, Any] | None:
    """Saved measures; `None` if there are none, or damaged ones."""
    if not path_exists(file):
        return None
    try:
        saved = read_json(file)
        complete = saved["version"] == VERSION and {"seconds", "pictures"} <= set(saved)
        return saved if complete and set(saved["measures"]) == set(NAMES) else None
    except (InputError, KeyError, TypeError, ValueError):
        return None


def _shown(pictures: list[Any], target: Vectors | Language) -> dict[str, Any]:
    """The samples of a saved file, for figures."""
    if isinstance(target, Language):
        return {"excerpts": tuple(map(str, pictures))}
    values = torch.tensor(pictures)
    if isinstance(target, Images):
        return {"pictures": values.unflatten(1, target.shape).numpy() if len(values) else None}
    return {"pictures": values.numpy()}
