"""Certificates of universal approximators: the bound from the proof and the measured error."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write
from allometry.construct.sequence_functions import GridTable
from allometry.measure.contextual import Contextual
from allometry.models.transformer.attention import NARROW
from allometry.models.transformer.model import Transformer


@final
@dataclass(frozen=True)
class Term:
    """One term of the proof's triangle inequality.

    Attributes:
        name: piecewise, contextual or softening.
        measured: Distance between the functions on both sides of the step.
        bound: Bound from the proof; `None` if it depends on an unknown Lipschitz constant.
        words: Source of the bound.
    """

    name: str
    measured: Estimate
    bound: float | None
    words: str


@final
@dataclass(frozen=True)
class Certificate:
    r"""The bound from the proof and the measured error.

    Attributes:
        d_p: Measured distance to the target on $[0,1]^{d \times n}$.
        p: Its exponent.
        terms: Terms of the triangle inequality; their sum bounds `d_p`.
        sup_error: Largest measured error: a lower bound of the supremum.
        equivariance_error: Largest measured $|g(XP) - g(X)P|$.
        blocks: Number of blocks.
        layers: Numbers of attention and feed-forward layers.
        heads: Number of heads of an attention layer, and their size.
        hidden: Hidden size of a feed-forward layer.
        parameters: Parameters of the architecture with every part present (the paper's count).
        stored: Parameters as built, without parts that are the identity.
        nonzero: Stored parameters that are not 0.
        bits: Binary digits that the largest code needs.
        margin: Unused bits of float64's 53.
        cells: Number of grid sequences checked, one point in the middle of each.
        grid_error: Largest error there against the tabulated value.
        clashes: Codes shared by sequences with different values (repeated columns).
        contextual: Exhaustive check of the contextual mapping.
        hardmax_difference: Largest difference of softmax and hardmax networks on the grid.
        notes: Differences from the paper, and what was not checked.
    """

    d_p: Estimate
    p: float
    terms: tuple[Term, ...]
    sup_error: Estimate
    equivariance_error: Estimate
    blocks: int
    layers: dict[str, int]
    heads: tuple[int, int]
    hidden: int
    parameters: int
    stored: int
    nonzero: int
    bits: int
    cells: int
    grid_error: float
    clashes: int
    contextual: Contextual | None
    hardmax_difference: float | None
    notes: tuple[str, ...] = field(default=())

    @property
    def margin(self) -> int:
        """Unused bits of float64."""
        return 53 - self.bits

    @property
    def bound(self) -> Estimate:
        """The sum of the measured terms: an upper bound of `d_p`, by the triangle inequality."""
        value = sum(t.measured.value for t in self.terms)
        se = math.sqrt(sum((t.measured.se or 0.0) ** 2 for t in self.terms))
        return Estimate(value, se, method="triangle inequality")

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON values."""
        out: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("d_p", "sup_error", "equivariance_error"):
            out[name] = out[name].to_dict()
        out["terms"] = {
            t.name: t.measured.to_dict() | {"bound": t.bound, "words": t.words} for t in self.terms
        }
        check = self.contextual
        out["contextual"] = None if check is None else vars(check) | {"holds": bool(check)}
        return out | {"margin": self.margin, "bound": self.bound.to_dict()}

    def __str__(self) -> str:
        rows = [("d_p", f"{self.d_p} (p = {self.p:g})")]
        for t in self.terms:
            bound = "" if t.bound is None else f", at most {t.bound:.3g} ({t.words})"
            rows.append((f"  {t.name}", f"{t.measured}{bound}"))
        rows += [
            ("largest error", f"{self.sup_error.value:.4g}"),
            ("equivariance error", f"{self.equivariance_error.value:.2g}"),
            ("blocks", f"{self.blocks:,}"),
            ("layers", ", ".join(f"{count:,} {name}" for name, count in self.layers.items())),
            ("parameters", f"{self.parameters:,} ({self.nonzero:,} not zero)"),
            ("bits", f"{self.bits} of 53"),
            ("grid", f"{self.cells:,} cells, error {self.grid_error:.2g}"),
        ]
        if self.contextual is not None:
            rows.append(("contextual mapping", "holds" if self.contextual else "fails"))
        return "\n".join(f"{name:<20} {value}" for name, value in rows) + "".join(
            f"\nnote: {note}" for note in self.notes
        )


class Construction(ABC):
    """A model whose weights come from a proof; call it on (b, d, n) or (d, n).

    Abstract; see `UniversalConstruction` and `CompactConstruction`.

    Attributes:
        model: The transformer, in float64.
        f: The target, as a function of float64 tensors.
        d: Size of a token.
        n: Number of tokens.
        delta: Size of a grid cell.
        p: Exponent of the error.
        positions: Whether a positional encoding is added.
        table: Codes with their target values.
        ramp: Width of a jump's ramp as a share of a cell.
    """

    model: Transformer
    f: Callable[[Tensor], Tensor]
    d: int
    n: int
    delta: float
    p: float
    positions: bool
    table: GridTable
    ramp: float

    @abstractmethod
    def _certify(self) -> Certificate:
        """Measure the certificate."""

    @final
    @cached_property
    def certificate(self) -> Certificate:
        """The bound from the proof and the measured error; computed once."""
        return self._certify()

    @final
    def __call__(self, x: Any) -> Any:
        """The network's output: a tensor for a tensor, otherwise an array."""
        tensor = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x).double()
        require(tensor.ndim in (2, 3), "x", "be of shape (b, d, n) or (d, n)", tuple(tensor.shape))
        batch = tensor if tensor.ndim == 3 else tensor[None]
        # Wide hidden layers dominate the memory: at most 2^23 of their numbers at a time.
        step = max(1, 2**23 // (max(self.model.hidden, 64) * batch.shape[2]))
        if self.model.hidden <= NARROW:  # thousands of thin blocks are fastest from the cache
            step = min(step, max(1, 2**15 // batch.shape[2]))
        with torch.no_grad():
            y = torch.cat([self.model(part) for part in batch.split(step)])
        y = y if tensor.ndim == 3 else y[0]
        return y if isinstance(x, Tensor) else y.numpy()

    @final
    def save(self, path: Path | str) -> Path:
        """Write the weights as safetensors.

        Args:
            path: The file.
        """
        weights = {name: w.detach().contiguous() for name, w in self.model.state_dict().items()}
        with atomic_write(path, "wb") as file:
            file.write(safetensors.torch.save(weights))
        return Path(path)

    @final
    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.model.depth:,} blocks of width {self.model.width})"
