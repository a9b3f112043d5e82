"""Evaluation of an expression and its derivatives for many parameter vectors at once.

Letters: m parameter vectors, p parameters, n runs.

A tape lists the operations of an expression, each once. One pass forward computes the values; one
pass back the derivative with respect to every name. The value at a run depends on nothing but
that run and its parameters, so all derivatives are products elementwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from allometry.laws.multivariate.law_expressions import Node

Array = Any
"""An array, or the scalar that numpy makes of operations on arrays without axes."""

_LOGS = {"log": 1.0, "log2": float(np.log(2.0)), "log10": float(np.log(10.0))}


@final
@dataclass(frozen=True)
class Tape:
    """Operations in the order of evaluation: kind, places of the operands, number, name."""

    steps: tuple[tuple[str, tuple[int, ...], float, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the expression in the order of their first occurrence."""
        return tuple(name for kind, _, _, name in self.steps if kind == "name")

    def values(self, at: Mapping[str, Array]) -> list[Array]:
        """The value of every operation; the last is that of the expression."""
        out: list[Array] = []
        for kind, places, value, name in self.steps:
            if kind == "number":
                out.append(np.array(value))
            elif kind == "name":
                out.append(at[name])
            else:
                out.append(_forward(kind, [out[i] for i in places]))
        return out

    def gradient(self, values: list[Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The derivative of the last value with respect to each of the `wanted` names."""
        needed = self._needed(frozenset(wanted))
        adjoint: list[Array | None] = [None] * len(self.steps)
        adjoint[-1] = np.array(1.0)
        out: dict[str, Array] = {}
        for i in range(len(self.steps) - 1, -1, -1):
            kind, places, _, name = self.steps[i]
            above = adjoint[i]
            if above is None or not needed[i]:
                continue
            if kind == "name":
                out[name] = above
                continue
            ask = [needed[j] for j in places]
            slopes = _backward(kind, [values[j] for j in places], values[i], ask)
            for j, slope in zip(places, slopes, strict=True):
                if slope is None:
                    continue
                known, share = adjoint[j], above * slope
                adjoint[j] = share if known is None else known + share
        return {name: out.get(name, np.array(0.0)) for name in wanted}

    def _needed(self, wanted: frozenset[str]) -> list[bool]:
        """Whether each operation depends on one of the wanted names."""
        needed: list[bool] = []
        for kind, places, _, name in self.steps:
            needed.append(name in wanted if kind == "name" else any(needed[j] for j in places))
        return needed


def compiled(node: Node) -> Tape:
    """The tape of an expression; equal parts are computed once."""
    steps: list[tuple[str, tuple[int, ...], float, str]] = []
    known: dict[tuple[str, tuple[int, ...], float, str], int] = {}

    def place(part: Node) -> int:
        step = (part.kind, tuple(place(inner) for inner in part.parts), part.value, part.name)
        if step not in known:
            known[step] = len(steps)
            steps.append(step)
        return known[step]

    place(node)
    return Tape(tuple(steps))


def _forward(kind: str, a: list[Array]) -> Array:
    if kind == "+":
        return a[0] + a[1]
    if kind == "-":
        return a[0] - a[1]
    if kind == "*":
        return a[0] * a[1]
    if kind == "/":
        return a[0] / a[1]
    if kind == "^":
        return _power(a[0], a[1])
    if kind == "neg":
        return -a[0]
    if kind in _LOGS:
        return np.log(a[0]) / _LOGS[kind]
    if kind in ("min", "max"):
        return np.minimum(a[0], a[1]) if kind == "min" else np.maximum(a[0], a[1])
    return _FUNCTIONS[kind](a[0])


def _power(base: Array, exponent: Array) -> Array:
    """Base to the power of the exponent; a negative base only to whole constant powers."""
    if exponent.ndim == 0:
        return np.power(base, float(exponent))
    return np.exp(exponent * np.log(base))  # the log is of the smaller array


_FUNCTIONS = {
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0.0, x),
}


def _backward(kind: str, a: list[Array], value: Array, ask: list[bool]) -> list[Array | None]:
    """The derivative of an operation with respect to each operand that is asked for."""
    one = np.array(1.0)
    if kind == "+":
        slopes = [lambda: one, lambda: one]
    elif kind == "-":
        slopes = [lambda: one, lambda: -one]
    elif kind == "*":
        slopes = [lambda: a[1], lambda: a[0]]
    elif kind == "/":
        slopes = [lambda: 1 / a[1], lambda: -value / a[1]]
    elif kind == "^":
        slopes = [lambda: _power_slope(a[0], a[1], value), lambda: value * np.log(a[0])]
    elif kind == "neg":
        slopes = [lambda: -one]
    elif kind in _LOGS:
        slopes = [lambda: 1 / (a[0] * _LOGS[kind])]
    elif kind in ("min", "max"):
        first = (a[0] <= a[1]) if kind == "min" else (a[0] >= a[1])
        slopes = [lambda: first.astype(float), lambda: (~first).astype(float)]
    else:
        slopes = [lambda: _slope(kind, a[0], value)]
    return [slope() if wanted else None for slope, wanted in zip(slopes, ask, strict=True)]


def _power_slope(base: Array, exponent: Array, value: Array) -> Array:
    if exponent.ndim == 0:
        return float(exponent) * np.power(base, float(exponent) - 1)
    return exponent * value / base


def _slope(kind: str, x: Array, value: Array) -> Array:
    if kind == "exp":
        return value
    if kind == "sqrt":
        return 0.5 / value
    if kind == "abs":
        return np.sign(x)
    if kind == "tanh":
        return 1 - value**2
    if kind == "sigmoid":
        return value * (1 - value)
    return special.expit(x)  # softplus
