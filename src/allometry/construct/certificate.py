"""What a construction promises and what it was measured to do."""

import math
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
from allometry.measure.contextual import Contextual
from allometry.models.transformer.model import Transformer


@final
@dataclass(frozen=True)
class Term:
    """One step of the proof's triangle inequality.

    Attributes:
        name: piecewise, contextual or softening.
        measured: Distance between the functions on both sides of the step.
        bound: What the proof promises; `None` where it depends on an unknown Lipschitz constant.
        words: How the bound comes about.
    """

    name: str
    measured: Estimate
    bound: float | None
    words: str


@final
@dataclass(frozen=True)
class Certificate:
    r"""The bound promised and the error measured.

    Attributes:
        d_p: Measured distance to the target on $[0,1]^{d \times n}$.
        p: Its exponent.
        terms: The triangle inequality behind it, term by term; their sum bounds `d_p`.
        sup_error: Largest error met on the points measured: a lower bound of the supremum.
        equivariance_error: Largest $|g(XP) - g(X)P|$ met.
        blocks: Number of blocks.
        layers: Attention and feed-forward layers, counted apart.
        heads: Heads of an attention layer, with their size.
        hidden: Hidden size of a feed-forward layer.
        parameters: Of the architecture's class with every part present (the paper's count).
        stored: As built, parts that are the identity left out.
        nonzero: Of the stored ones, those that are not 0.
        bits: Binary digits that the largest code needs.
        margin: What float64's 53 leave.
        cells: Grid sequences checked, one point in the middle of each.
        grid_error: Largest error there against the tabulated value.
        clashes: Codes shared by sequences with different values (repeated columns).
        contextual: Exhaustive check of the contextual mapping.
        hardmax_difference: Largest difference of softmax and hardmax networks on the grid.
        notes: Departures from the paper, and what was not checked.
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
        """Bits of float64 to spare."""
        return 53 - self.bits

    @property
    def bound(self) -> Estimate:
        """The sum of the measured terms: an upper bound of `d_p`, by the triangle inequality."""
        value = sum(t.measured.value for t in self.terms)
        se = math.sqrt(sum((t.measured.se or 0.0) ** 2 for t in self.terms))
        return Estimate(value, se, method="triangle inequality")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
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
            ("largest error met", f"{self.sup_error.value:.4g}"),
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


@final
class Construction:
    """A model whose weights come from a proof; call it on (b, d, n) or (d, n).

    Attributes:
        model: An ordinary module, in float64.
        certificate: Measured when first asked for.
    """

    def __init__(
        self, model: Transformer, certify: Callable[["Construction"], Certificate], **details: Any
    ) -> None:
        self.model = model
        self.details = details
        self._certify = certify

    def __call__(self, x: Any) -> Any:
        """The network's output, as a tensor or as an array like the input."""
        tensor = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x).double()
        require(tensor.ndim in (2, 3), "x", "be of shape (b, d, n) or (d, n)", tuple(tensor.shape))
        batch = tensor if tensor.ndim == 3 else tensor[None]
        # Wide hidden layers are the largest thing in memory: 2^23 numbers of them at a time.
        step = max(1, 2**23 // (max(self.model.hidden, 64) * batch.shape[2]))
        with torch.no_grad():
            y = torch.cat([self.model(part) for part in batch.split(step)])
        y = y if tensor.ndim == 3 else y[0]
        return y if isinstance(x, Tensor) else y.numpy()

    @cached_property
    def certificate(self) -> Certificate:
        """The bound promised and the error measured."""
        return self._certify(self)

    def save(self, path: Path | str) -> Path:
        """Write the weights as safetensors.

        Args:
            path: The file.
        """
        weights = {name: w.detach().contiguous() for name, w in self.model.state_dict().items()}
        with atomic_write(path, "wb") as file:
            file.write(safetensors.torch.save(weights))
        return Path(path)

    def __getattr__(self, name: str) -> Any:
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Construction({self.model.depth:,} blocks of width {self.model.width})"
