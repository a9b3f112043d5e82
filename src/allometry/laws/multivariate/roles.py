"""Roles of variables: how each may enter a law, guessed from its name and values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require

ROLES = ("scale", "tuned", "share", "bits", "fraction", "group")
"""Names of the roles."""

_TUNED = re.compile(
    r"(^|_)(lr|learning_?rate|rate|batch|bs|bsz|batch_?size|aspect|aspect_?ratio|warm_?up|"
    r"weight_?decay|wd|momentum|temperature|beta1|beta2|dropout|eps|epsilon)(_|$)"
)
_BITS = re.compile(r"(^|_)(bits?|precision|bit_?width)(_|$)")
_FRACTION = re.compile(r"(^|_)(sparsity|fraction|frac|masked|pruned|dropped)(_|$)")


@final
@dataclass(frozen=True)
class Variable:
    """A variable with its role and its coordinate, in which powers are straight lines.

    Args:
        name: The column.
        role: One of `ROLES` except `group`.
        kind: `log` for log(v/centre), `complement` for log((1 - v)/centre), `linear` for
            (v - centre)/scale.
        centre: Reference value; the coordinate is 0 there.
        scale: Unit of a linear coordinate.
        levels: Number of different values.
        spread: Standard deviation of the coordinate over the runs.
    """

    name: str
    role: str
    kind: str
    centre: float
    scale: float
    levels: int
    spread: float

    def coordinate(self, v: ndarray) -> Float[ndarray, "..."]:
        """The coordinate of some values."""
        v = np.asarray(v, float)
        if self.kind == "log":
            return np.log(v / self.centre)
        if self.kind == "complement":
            return np.log((1 - v) / self.centre)
        return (v - self.centre) / self.scale

    @property
    def text(self) -> str:
        """The coordinate as an expression."""
        if self.kind == "log":
            return f"log({self.name}/{self.centre:.12g})"
        if self.kind == "complement":
            return f"log((1 - {self.name})/{self.centre:.12g})"
        sign, size = ("-", self.centre) if self.centre >= 0 else ("+", -self.centre)
        return f"({self.name} {sign} {size:.12g})/{self.scale:.12g}"

    def power(self, exponent: str) -> str:
        """The variable to the power of minus the exponent, as an expression."""
        if self.kind == "log":
            return f"({self.name}/{self.centre:.12g})^-{exponent}"
        if self.kind == "complement":
            return f"((1 - {self.name})/{self.centre:.12g})^-{exponent}"
        return f"exp(-{exponent}*({self.text}))"

    def to_dict(self) -> dict[str, Any]:
        """The variable as plain values."""
        return dict(self.__dict__)


def guess(columns: Mapping[str, ndarray], said: Mapping[str, str]) -> dict[str, str]:
    """The role of each numeric variable: as said, or guessed from names and values."""
    for name, role in said.items():
        require(role in ROLES, f"fit.roles[{name!r}]", f"be one of {', '.join(ROLES)}", role)
    roles = {name: said.get(name) or _guess(name, v) for name, v in columns.items()}
    unit = [
        name
        for name, v in columns.items()
        if name not in said and v.min() >= 0 and v.max() <= 1 and len(np.unique(v)) > 2
    ]
    if len(unit) >= 2:
        total = np.sum([columns[name] for name in unit], 0)
        if np.abs(total - 1).max() < 0.03:
            roles |= dict.fromkeys(unit, "share")
    return roles


def _guess(name: str, v: Float[ndarray, " n"]) -> str:
    low = re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).casefold())
    levels = len(np.unique(v))
    if _BITS.search(low) and v.min() > 0 and v.max() <= 64:
        return "bits"
    if _FRACTION.search(low) and v.min() >= 0 and v.max() <= 1:
        return "fraction"
    if _TUNED.search(low) and levels >= 3:
        return "tuned"
    return "scale"


def described(name: str, role: str, v: Float[ndarray, " n"]) -> Variable:
    """The variable with its coordinate, given its values in the runs."""
    levels = len(np.unique(v))
    if role == "share":
        return Variable(name, role, "linear", 0.0, 1.0, levels, float(v.std()) or 1.0)
    if role == "fraction" and v.max() < 1 and v.min() >= 0:
        x = np.log(1 - v)
        return Variable(
            name, role, "complement", float(np.exp(x.mean())), 1.0, levels, float(x.std())
        )
    if v.min() > 0:
        x = np.log(v)
        return Variable(name, role, "log", float(np.exp(x.mean())), 1.0, levels, float(x.std()))
    scale = float(v.std()) or 1.0
    return Variable(name, role, "linear", float(v.mean()), scale, levels, 1.0)
