"""Real-valued series as a target: predict the next value."""

import hashlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.spec import Spec


@final
class AutoregressiveSeries:
    r"""Values of a Gaussian AR(p) process with known irreducible loss.

    $x_t = \sum_k \phi_k x_{t-k} + e_t$; the smallest possible loss of a predictor is
    $\tfrac12 \log 2\pi e\sigma^2$ in nats, or $\sigma^2$ in mean square.

    Args:
        phi: Coefficients of a stationary process.
        sigma: Standard deviation of the innovations.
        length: Number of values.
        seed: Seed of the values.
        splits: Shares of train, validation and test, in order of time.

    Attributes:
        train: The first values; likewise `validation`, `test`.
        entropy_rate: Irreducible loss in nats per value.
    """

    def __init__(
        self,
        phi: Sequence[float],
        sigma: float = 1.0,
        length: int = 10_000,
        seed: int = 0,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
    ) -> None:
        from scipy import signal  # slow to import

        require(sigma > 0, "AutoregressiveSeries.sigma", "be positive", sigma)
        require(length >= 10, "AutoregressiveSeries.length", "be at least 10", length)
        good = len(splits) == 3 and abs(sum(splits) - 1) < 1e-9 and splits[0] > 0
        require(good, "AutoregressiveSeries.splits", "be three shares that sum to 1", splits)
        polynomial = np.concatenate([[1.0], -np.asarray(phi, dtype=np.float64)])
        largest = np.abs(np.roots(polynomial)).max(initial=0.0)
        require(
            bool(largest < 1), "AutoregressiveSeries.phi", "be of a stationary process", list(phi)
        )
        self.name = f"ar{len(phi)}"
        self.arguments: dict[str, Any] = {
            "phi": list(phi),
            "sigma": sigma,
            "length": length,
            "seed": seed,
            "splits": list(splits),
        }
        # Burn-in until the initial values have no effect in double precision.
        burn = int(np.ceil(37 / -np.log(max(largest, 1e-3)))) + len(phi)
        noise = np.random.default_rng(seed).normal(scale=sigma, size=burn + length)
        x = torch.from_numpy(signal.lfilter([1.0], polynomial, noise)[burn:].copy())
        first, second = int(length * splits[0]), int(length * round(splits[0] + splits[1], 12))
        self.train, self.validation, self.test = x[:first], x[first:second], x[second:]
        self.entropy_rate = 0.5 * float(np.log(2 * np.pi * np.e * sigma**2))
        self.unit = "nats per value"
        self.fingerprint = hashlib.sha256(x.numpy().tobytes()).hexdigest()

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target."""
        return Spec(AutoregressiveSeries, **self.arguments)

    @property
    def D_unique(self) -> int:
        """Number of training values."""
        return len(self.train)

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            **self.arguments,
            "D_unique": self.D_unique,
            "unit": self.unit,
            "entropy_rate": self.entropy_rate,
            "fingerprint": self.fingerprint,
        }

    def batch(
        self, step: int, *, size: int, context: int, seed: int
    ) -> Float[Tensor, "{size} {context}+1"]:
        """Random windows of the training values: a pure function of seed and step."""
        require(len(self.train) > context, "context", f"be below {len(self.train)}", context)
        rng = np.random.default_rng([seed, step])
        starts = torch.from_numpy(rng.integers(len(self.train) - context, size=size))
        return self.train[starts[:, None] + torch.arange(context + 1)]
