"""The inputs of one comparison of two sets, with cached intermediate results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.measure import features as feature_maps
from allometry.measure.classifier import Classifier
from allometry.measure.features import Features
from allometry.measure.image_similarity import data_range
from allometry.measure.sample_inputs import Array, as_tensor, pair, tensor


@final
@dataclass(frozen=True)
class Effort:
    """Work limits of the metrics that train or resample; `QUICK` is for audits."""

    steps: int = 200
    critic_steps: int = 150
    permutations: int = 999
    transport_rows: int = 1000
    geometry_repeats: int = 30
    geometry_rows: int = 1000
    kid_subsets: int = 100
    curve_steps: int = 15


FULL = Effort()
QUICK = Effort(
    steps=60,
    critic_steps=40,
    permutations=199,
    transport_rows=300,
    geometry_repeats=8,
    geometry_rows=300,
    kid_subsets=20,
    curve_steps=4,
)


@final
class NotApplicableError(InputError):
    """A metric can't be computed for these data; the message says what it needs."""


@final
@dataclass(frozen=True, eq=False)
class MeasureContext:
    """Real data, samples and optional further inputs.

    Args:
        real: (n, ...) held-out data.
        samples: (m, ...) samples of the model.
        labels: A class for each real row.
        sample_labels: A class for each sample.
        training: The rows the model was trained on, for the tests of copying.
        rivals: Samples of other models. Default: samples of a Gaussian fitted to the data.
        features: Feature map for distances.
        effort: Work limits.
        seed: Random seed.
    """

    real: Array
    samples: Array
    labels: Array | None = None
    sample_labels: Array | None = None
    training: Array | None = None
    rivals: Mapping[str, Array] = field(default_factory=dict)
    features: Features = field(default_factory=feature_maps.identity)
    effort: Effort = FULL
    seed: int = 0

    @property
    def rng(self) -> torch.Generator:
        """A new generator with the same seed each time: the order of metrics is irrelevant."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def pair(self) -> tuple[Float[Tensor, "n d"], Float[Tensor, "m d"]]:
        """The features of both sets."""
        return pair(self.real, self.samples, features=self.features)

    @cached_property
    def copies_of(self) -> Float[Tensor, "k d"]:
        """The features of the training rows."""
        if self.training is None:
            raise NotApplicableError("needs the rows the model was trained on (--training)")
        return self.features(self.training)

    @cached_property
    def images(self) -> tuple[Tensor, Tensor]:
        """Both sets as images."""
        x, y = tensor(self.real, "real"), tensor(self.samples, "samples")
        if x.ndim not in (3, 4) or min(x.shape[-2:]) < 4:
            raise NotApplicableError("needs images, (n, h, w) or (n, c, h, w)")
        return x, y

    @cached_property
    def span(self) -> float:
        """The range of pixel values."""
        return data_range(self.images[0])

    @cached_property
    def known_labels(self) -> Array:
        """The labels of the real rows."""
        if self.labels is None:
            raise NotApplicableError("needs labels of the real rows (--labels)")
        return self.labels

    @cached_property
    def classifier(self) -> tuple[str, Classifier, Int[Tensor, " k"]]:
        """A classifier trained on one half of the labelled rows, and indices of the other half."""
        x = tensor(self.real, "real")
        y = as_tensor(self.known_labels).reshape(-1)
        require(
            len(y) == len(x), "labels", f"have one entry for each of the {len(x)} rows", len(y)
        )
        order = torch.randperm(len(x), generator=self.rng)
        a, b = order[: len(x) // 2], order[len(x) // 2 :]
        space, model = feature_maps.classifier(x[a], y[a], steps=self.effort.steps, rng=self.rng)
        return space.name, model, b

    @cached_property
    def probabilities(self) -> tuple[Float[Tensor, "n k"], Float[Tensor, "m k"]]:
        """p(y | x) of real rows that were not used to train the classifier, and of the samples."""
        _, model, rows = self.classifier
        x, y = tensor(self.real, "real"), tensor(self.samples, "samples")
        return model.probabilities(x[rows]), model.probabilities(y)

    @cached_property
    def players(self) -> dict[str, Float[Tensor, "m d"]]:
        """The samples and their rivals, as features."""
        x, y = self.pair
        others = {name: self.features(rows) for name, rows in self.rivals.items()}
        return {"samples": y} | (others or {"gaussian": gaussian(x, len(y), self.rng)})


def gaussian(x: Float[Tensor, "n d"], rows: int, rng: torch.Generator) -> Float[Tensor, "m d"]:
    """Samples of the Gaussian distribution with the mean and covariance of x."""
    mean = x.double().mean(0)
    a = x.double() - mean
    values, vectors = torch.linalg.eigh(a.T @ a / max(1, len(x) - 1))
    z = torch.randn(rows, x.shape[1], generator=rng, dtype=torch.float64)
    return (mean + (z * values.clamp(min=0).sqrt()) @ vectors.T).to(x.dtype)
