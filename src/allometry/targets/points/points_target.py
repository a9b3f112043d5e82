"""Points of a known density as a target: learn the density from samples."""

import hashlib
import math
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.targets.points.density import Density
from allometry.targets.row_batches import SPLITS, epoch_rows


@final
class Points:
    """Samples of a `Density`: new ones at every step, or epochs over a fixed set.

    Args:
        density: The distribution.
        size: Number of training points; `None` gives new points in every batch.
        held_out: Number of points of the validation and of the test split.
        seed: Seed of the fixed sets. The training set does not depend on `held_out`.
        fingerprint: Expected fingerprint.

    Attributes:
        density: The distribution, with `log_prob` and `entropy`.
        validation: Held-out points; likewise `test`.
        unit: Unit of the loss.

    Example:
        >>> from allometry.targets import points
        >>> moons = points.Points(points.TwoMoons(noise=0.05))
        >>> moons.batch(0, size=256, seed=0).shape
        torch.Size([256, 2])
        >>> round(moons.entropy.value, 3)
        0.289
    """

    def __init__(
        self,
        density: Density,
        size: int | None = None,
        held_out: int = 10_000,
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        require(size is None or size >= 1, "Points.size", "be at least 1", size)
        require(held_out >= 1, "Points.held_out", "be at least 1", held_out)
        self.density = density
        self.name = density.name
        self.size, self.held_out, self.seed = size, held_out, seed
        self.shape = (density.dim,)
        self.levels = None
        self.unit = "nats"
        self.validation, self.test = (
            torch.from_numpy(density.draw(held_out, np.random.default_rng([seed, part])))
            for part in (1, 2)
        )
        first = size if size is not None else 64
        self._train = torch.from_numpy(density.draw(first, np.random.default_rng([seed, 0])))
        digest = hashlib.sha256(repr((density.spec.key, size)).encode())
        for part in (self._train, self.validation, self.test):
            # Rounded, because the last bit of a cosine differs between machines.
            digest.update(part.float().numpy().round(3).tobytes())
        self.fingerprint = digest.hexdigest()
        if fingerprint not in (None, self.fingerprint):
            raise InputError(
                f"Points.fingerprint must be {self.fingerprint[:12]}... of {self.name}; got "
                f"{fingerprint[:12]}.... The distribution changed; start a new study for it."
            )

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(
            Points,
            density=self.density.spec,
            size=self.size,
            held_out=self.held_out,
            seed=self.seed,
            fingerprint=self.fingerprint,
        )

    @property
    def dim(self) -> int:
        """Number of coordinates of a point."""
        return self.density.dim

    @property
    def entropy(self) -> Estimate:
        """Irreducible loss in nats."""
        return self.density.entropy

    @property
    def D_unique(self) -> float:
        """Number of training points; infinite if every batch is new."""
        return math.inf if self.size is None else self.size

    def split(self, name: str) -> Float[Tensor, "n d"]:
        """The points of a split, in the default dtype; a train split needs a fixed `size`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        if name == "train":
            fix = "Give size for a fixed training set."
            require(self.size is not None, "Points.size", "be given for a split", None, fix)
            return self._train.to(torch.get_default_dtype())
        return getattr(self, name).to(torch.get_default_dtype())

    def batch(self, step: int, *, size: int, seed: int) -> Float[Tensor, "{size} d"]:
        """The points of a training step: a pure function of its arguments."""
        require(step >= 0, "step", "be at least 0", step)
        if self.size is None:
            # The first entry makes training independent of the held-out sets of any seed.
            rng = np.random.default_rng([7, self.seed, seed, step])
            points = torch.from_numpy(self.density.draw(size, rng))
        else:
            points = self._train[epoch_rows(self.size, step, size, seed)]
        return points.to(torch.get_default_dtype())

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            "kind": "points",
            "density": self.density.spec.to_dict(),
            "shape": list(self.shape),
            "size": self.size,
            "held_out": self.held_out,
            "D_unique": self.size,
            "unit": self.unit,
            "token": "point",
            "entropy": self.entropy.to_dict(),
            "fingerprint": self.fingerprint,
        }

    def __repr__(self) -> str:
        points = "new points" if self.size is None else f"{self.size:,} training points"
        return f"Points({self.name}: {points}, d = {self.dim})"
