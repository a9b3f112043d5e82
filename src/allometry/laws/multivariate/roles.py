"""Roles of variables: how each may enter a law, guessed from its name and values."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require

ROLES = ("scale", "tuned", "share", "bits", "fraction", "group")
"""Names of the roles."""

_TUNED = re.compile(
    r"(^|_)(lr|learning_?rate|rate|eta|step_?size|batch|bs|bsz|gbs|gbsz|mbs|batch_?size|"
    r"aspect|aspect_?ratio|warm_?up|weight_?decay|wd|momentum|temperature|beta1|beta2|dropout|eps|epsilon)(_|$)"
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
        kind: `log` for log(v/centre), `offset` for log((v + scale)/centre) where v may be 0,
            `complement` for log((1 - v)/centre), `linear` for (v - centre)/scale.
        centre: Reference value; the coordinate is 0 there.
        scale: Unit of a linear coordinate, or what is added to one that may be 0.
        levels: Number of different values.
        spread: Standard deviation of the coordinate over the runs.
        symbol: The column's name in expressions: the same, if it is a name of the language.
    """

    name: str
    role: str
    kind: str
    centre: float
    scale: float
    levels: int
    spread: float
    symbol: str = ""

    def coordinate(self, v: ndarray) -> Float[ndarray, "..."]:
        """The coordinate of some values."""
        v = np.asarray(v, float)
        if self.kind == "log":
            return np.log(v / self.centre)
        if self.kind == "offset":
            return np.log((v + self.scale) / self.centre)
        if self.kind == "complement":
            return np.log((1 - v) / self.centre)
        return (v - self.centre) / self.scale

    @property
    def ratio(self) -> str:
        """What the coordinate is the log of, as an expression."""
        if self.kind == "offset":
            return f"(({self.symbol} + {self.scale:.12g})/{self.centre:.12g})"
        if self.kind == "complement":
            return f"((1 - {self.symbol})/{self.centre:.12g})"
        return f"({self.symbol}/{self.centre:.12g})"

    @property
    def text(self) -> str:
        """The coordinate as an expression."""
        if self.kind != "linear":
            return f"log{self.ratio}"
        sign, size = ("-", self.centre) if self.centre >= 0 else ("+", -self.centre)
        return f"({self.symbol} {sign} {size:.12g})/{self.scale:.12g}"

    def power(self, exponent: str) -> str:
        """The variable to the power of minus the exponent, as an expression."""
        if self.kind != "linear":
            return f"{self.ratio}^-{exponent}"
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
        name for name, v in columns.items() if name not in said and v.min() >= 0 and v.max() <= 1
    ]
    if len(unit) >= 2:
        total = np.sum([columns[name] for name in unit], 0)
        if np.abs(total - 1).max() < 0.03:
            roles |= dict.fromkeys(unit, "share")
    return roles


def _plain(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).casefold())


def _guess(name: str, v: Float[ndarray, " n"]) -> str:
    low = _plain(name)
    levels = len(np.unique(v))
    if _BITS.search(low) and v.min() > 0 and v.max() <= 64:
        return "bits"
    if _FRACTION.search(low) and v.min() >= 0 and v.max() <= 1:
        return "fraction"
    if _TUNED.search(low) and levels >= 3:
        return "tuned"
    return "scale"


OFFSET = 20.0
"""Ratio of largest to smallest positive value from which a column with zeros enters by its log."""

_LOGGED = re.compile(r"(^|_)(ln|log|log2|log10)(_|$)")


def described(name: str, role: str, v: Float[ndarray, " n"], symbol: str = "") -> Variable:
    """The variable with its coordinate, given its values in the runs."""
    levels = len(np.unique(v))
    symbol = symbol or name
    if role == "share":
        return Variable(name, role, "linear", 0.0, 1.0, levels, float(v.std()) or 1.0, symbol)
    if role == "fraction" and v.max() < 1 and v.min() >= 0:
        x = np.log(1 - v)
        centre = float(np.exp(x.mean()))
        return Variable(name, role, "complement", centre, 1.0, levels, float(x.std()), symbol)
    # A column that is a log already, such as log_flops, enters as it is.
    if v.min() > 0 and not _LOGGED.search(_plain(name)):
        x = np.log(v)
        centre = float(np.exp(x.mean()))
        return Variable(name, role, "log", centre, 1.0, levels, float(x.std()), symbol)
    if role == "scale" and v.min() == 0 and v.max() > OFFSET * v[v > 0].min(initial=np.inf):
        least = float(v[v > 0].min())
        x = np.log(v + least)
        centre = float(np.exp(x.mean()))
        return Variable(name, role, "offset", centre, least, levels, float(x.std()), symbol)
    scale = float(v.std()) or 1.0
    return Variable(name, role, "linear", float(v.mean()), scale, levels, 1.0, symbol)


def symbols(names: Sequence[str], taken: Container[str]) -> list[str]:
    """A name of the language for each column, all different.

    Args:
        names: The columns.
        taken: Names that have another meaning in expressions, such as those of functions.
    """
    out: list[str] = []
    for name in names:
        symbol = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not re.match(r"[A-Za-z_]", symbol):
            symbol = f"x_{symbol}"
        while symbol in taken or symbol in out or (symbol != name and symbol in names):
            symbol += "_"
        out.append(symbol)
    return out
