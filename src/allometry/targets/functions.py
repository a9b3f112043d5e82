r"""Sequence-to-sequence functions on $[0,1]^{d \times n}$.

All map (b, d, n) to (b, d, n). Those in `EQUIVARIANT` satisfy $f(XP) = f(X)P$ for every
permutation P of the columns; those in `ORDERED` need positions.

Letters: b batch, d size of a token, n tokens.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.spec import Spec

Sequences = Float[Tensor, "b d n"]

# Functions that commute with permutations of the columns


def mean(x: Sequences) -> Sequences:
    """Every column becomes the mean column."""
    return x.mean(2, keepdim=True).expand_as(x)


def maximum(x: Sequences) -> Sequences:
    """Every column becomes the row-wise maximum."""
    return x.amax(2, keepdim=True).expand_as(x)


def centred(x: Sequences) -> Sequences:
    """Columns minus their mean."""
    return x - x.mean(2, keepdim=True)


def pairwise_products(x: Sequences) -> Sequences:
    r"""$\frac1n \sum_k x_j \odot x_k$: each column times the mean column, elementwise."""
    return x * x.mean(2, keepdim=True)


def attention(x: Sequences) -> Sequences:
    r"""Softmax attention, $X\,\mathrm{softmax}[X^T X]$."""
    return x @ (x.mT @ x).softmax(1)


def ranks(x: Sequences) -> Sequences:
    r"""Smooth rank in each row, $\frac1n \sum_k \mathrm{sigmoid}(8 (x_j - x_k))$."""
    return torch.sigmoid(8 * (x[:, :, :, None] - x[:, :, None, :])).mean(3)


# Functions that depend on the order of the columns


def sort(x: Sequences) -> Sequences:
    """Rows in ascending order: the same for every order of the columns, so it needs positions."""
    return x.sort(2).values


def reverse(x: Sequences) -> Sequences:
    """Columns in reverse order."""
    return x.flip(2)


def running_mean(x: Sequences) -> Sequences:
    """Cumulative sums of the columns, divided by n so that they stay in [0, 1]."""
    return x.cumsum(2) / x.shape[2]


def shift(x: Sequences) -> Sequences:
    """Columns shifted cyclically by one; the last becomes the first."""
    return x.roll(1, 2)


EQUIVARIANT: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean,
    "maximum": maximum,
    "centred": centred,
    "pairwise_products": pairwise_products,
    "attention": attention,
    "ranks": ranks,
}
"""Functions that a transformer without positions can approximate, by name."""

ORDERED: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": sort,
    "reverse": reverse,
    "running_mean": running_mean,
    "shift": shift,
}
"""Functions that need positions, by name."""


def smooth(
    d: int, *, terms: int = 8, seed: int = 0, equivariant: bool = True
) -> Callable[[Tensor], Tensor]:
    r"""A random smooth function with values of order one.

    $f(X)_j = \sum_i a_i \cos(\omega_i \cdot x_j + \nu_i \cdot \bar x + \theta_i)$ with
    $\bar x$ the mean column; if not `equivariant`, the phase $\theta_i$ also depends on j.

    Args:
        d: Size of a token.
        terms: Number of cosines.
        seed: Seed of the random coefficients.
        equivariant: Whether it commutes with permutations.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    a, omega, nu = draw(d, terms) / terms**0.5, 2 * draw(terms, d), 2 * draw(terms, d)
    theta, turn = 6.28 * draw(terms, 1), draw(terms, 1)

    def f(x: Tensor) -> Tensor:
        x = x.to(torch.float64)
        phase = turn * torch.arange(x.shape[2]) if not equivariant else 0.0
        return a @ torch.cos(omega @ x + nu @ x.mean(2, keepdim=True) + theta + phase)

    return f


@final
class SequenceFunction:
    r"""Learn one of the named functions on $[0,1]^{d \times n}$.

    Inputs are uniform and unlimited, the target is exact, and the loss is the distance $d_2$
    between model and function.

    Args:
        function: A name in `EQUIVARIANT` or `ORDERED`.
        d: Size of a token.
        n: Number of tokens.

    Example:
        >>> x, y = SequenceFunction("sort", d=1, n=3).batch(0, size=4, seed=0)
        >>> bool((y.diff(dim=2) >= 0).all())
        True
    """

    unit = "distance per sequence"
    D_unique = math.inf

    def __init__(self, function: str, d: int = 1, n: int = 2) -> None:
        known = EQUIVARIANT | ORDERED
        require(function in known, "function", f"be one of {', '.join(known)}", function)
        require(d >= 1, "SequenceFunction.d", "be at least 1", d)
        require(n >= 1, "SequenceFunction.n", "be at least 1", n)
        self.function, self.d, self.n = function, d, n
        self.f = known[function]
        self.positions = function in ORDERED
        self.name = f"{function} of {n} tokens of size {d}"

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(SequenceFunction, function=self.function, d=self.d, n=self.n)

    @property
    def fingerprint(self) -> str:
        """Identifies this target."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        shape = {"function": self.function, "d": self.d, "n": self.n}
        rest = {"unit": self.unit, "fingerprint": self.fingerprint}
        return {"target": self.name, "name": self.name} | shape | rest

    def batch(self, step: int, *, size: int, seed: int) -> tuple[Sequences, Sequences]:
        """Inputs and targets of a training step: a pure function of its arguments.

        Args:
            step: Number of the training step.
            size: Sequences in the batch.
            seed: Seed of the training data.
        """
        rng = torch.Generator().manual_seed(seed * 1_000_003 + step)
        x = torch.rand(size, self.d, self.n, generator=rng)
        return x, self.f(x)
