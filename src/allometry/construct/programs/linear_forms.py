"""Linear forms of named coordinates."""

from itertools import pairwise

from allometry.construct.named_weights import ONE

Form = dict[str, float]
"""Factors by coordinate; "1" is the constant."""


def gap(numbers: list[float]) -> float:
    """The smallest difference of distinct numbers; 1 if there are no two."""
    ordered = sorted(set(numbers))
    return min((b - a for a, b in pairwise(ordered)), default=1.0)


def affine(x: list[float], y: list[float]) -> tuple[float, float] | None:
    """The factor and constant with y = a x + b for all entries, or `None`."""
    i = next((i for i in range(len(x)) if x[i] != x[0]), None)
    if i is None:
        return None
    a = (y[i] - y[0]) / (x[i] - x[0])
    b = y[0] - a * x[0]
    scale = max(1.0, *(abs(v) for v in y))
    fits = all(abs(a * u + b - v) <= 1e-12 * scale for u, v in zip(x, y, strict=True))
    return (a, b) if fits else None


def plus(total: Form, form: Form, factor: float, constant: float) -> Form:
    """`total` + `factor` * `form` + `constant`."""
    result = dict(total)
    for name, value in form.items():
        result[name] = result.get(name, 0.0) + factor * value
    if constant:
        result[ONE] = result.get(ONE, 0.0) + constant
    return result
