"""Forms written as expressions in any variables.

Letters: m parameter vectors at once, p parameters, n runs, v variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry.laws.forms import Draws, Form
from allometry.laws.multivariate.law_expressions import Node, degree, parse
from allometry.laws.multivariate.tapes import Tape, compiled

FLOOR = 1e-3
"""Below this share of the unit the log of a predicted response continues as a line."""


@final
@dataclass(frozen=True)
class Parameter:
    """A parameter of an expression.

    Args:
        name: Its name in the expression.
        sign: 1 or -1 for a parameter that keeps its sign and is fitted by its log; 0 for a real.
        low: Lower end of the range of starts (of the absolute value if `sign` is not 0).
        high: Upper end.
        mean: Prior mean of the fitted quantity: the log of the absolute value, or the value.
        sd: Prior standard deviation; infinite for no prior.
    """

    name: str
    sign: int = 1
    low: float = 0.01
    high: float = 10.0
    mean: float = 0.0
    sd: float = np.inf

    def inner(self, value: ndarray) -> ndarray:
        """The fitted quantity of natural values."""
        return np.log(np.abs(value)) if self.sign else np.asarray(value, float)


@final
@dataclass(frozen=True)
class Link:
    """The scale of the residuals: logs of a positive response, or the response over a unit."""

    log: bool
    unit: float

    def __call__(self, y: ndarray) -> ndarray:
        """Responses on the scale of the residuals."""
        if not self.log:
            return y / self.unit
        floor = FLOOR * self.unit
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(y > floor, np.log(y), np.log(floor) + (y / floor - 1))

    def slope(self, y: ndarray) -> ndarray:
        """The derivative of the link."""
        if not self.log:
            return np.broadcast_to(1 / self.unit, y.shape)
        return 1 / np.maximum(y, FLOOR * self.unit)

    def inverse(self, f: ndarray) -> ndarray:
        """Responses from values on the scale of the residuals."""
        with np.errstate(over="ignore"):
            return np.exp(f) if self.log else f * self.unit


@final
class ExpressionForm(Form):
    """An expression as a form.

    Its input is the variables as they are, not their logs. Its output is on the scale of `link`.

    Args:
        name: Name of the form.
        text: The expression, or its tree.
        variables: The names in it that are variables; all others are parameters.
        link: The scale of the residuals.
        parameters: Parameters with ranges and priors; others have defaults.
    """

    centred = False
    shared: bool = False
    """Whether groups share all parameters but a level."""

    def __init__(
        self,
        name: str,
        text: str | Node,
        variables: Sequence[str],
        link: Link,
        parameters: Mapping[str, Parameter] | None = None,
    ) -> None:
        self.node = parse(text) if isinstance(text, str) else text
        self.tape: Tape = compiled(self.node)
        self.name, self.link = name, link
        self.equation = str(self.node)
        names = self.tape.names
        self.variables = tuple(v for v in variables if v in names)
        self.letters = tuple(v for v in names if v not in variables)
        require(
            bool(self.letters),
            "The expression",
            "have a parameter beside its variables",
            self.equation,
        )
        require(
            bool(self.variables),
            "The expression",
            f"have one of the variables {', '.join(variables) or '(none given)'}",
            self.equation,
        )
        known = parameters or {}
        exponents = _exponents(self.node)
        self.parameters = tuple(
            known.get(letter) or _default(letter, letter in exponents) for letter in self.letters
        )
        self.linear = _linear(self.node, self.letters)

    def with_signs(self, signs: Mapping[str, int]) -> "ExpressionForm":
        """The form with other signs of some parameters."""
        own = {p.name: replace(p, sign=signs.get(p.name, p.sign)) for p in self.parameters}
        return ExpressionForm(self.name, self.node, self.variables, self.link, own)

    def sharing(self) -> "ExpressionForm":
        """The form with the same parameters in all groups but for a level."""
        own = {p.name: p for p in self.parameters}
        name = f"{self.name}, shared"
        form = ExpressionForm(name, self.node, self.variables, self.link, own)
        form.shared = True
        return form

    @property
    def signs(self) -> ndarray:
        """The sign of each parameter; 0 for reals."""
        return np.array([p.sign for p in self.parameters])

    def natural(self, theta: Float[ndarray, "m p"]) -> Float[ndarray, "m p"]:
        """Parameters as they stand in the expression."""
        signs = self.signs
        with np.errstate(over="ignore"):
            return np.where(signs != 0, signs * np.exp(np.where(signs != 0, theta, 0.0)), theta)

    def _at(self, natural: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]) -> dict:
        at = dict(zip(self.variables, X, strict=True))
        return at | {letter: natural[:, j, None] for j, letter in enumerate(self.letters)}

    def response(
        self, natural: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """The expression's value, not on the scale of the link."""
        with np.errstate(all="ignore"):
            y = self.tape.values(self._at(natural, X))[-1]
        return np.broadcast_to(y, (len(natural), X.shape[-1]))

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """The value on the scale of the link."""
        return self.link(self.response(self.natural(theta), X))

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """The value and its derivative with respect to `theta`, by one pass back."""
        natural = self.natural(theta)
        with np.errstate(all="ignore"):
            values = self.tape.values(self._at(natural, X))
            slopes = self.tape.gradient(values, self.letters)
            y = np.broadcast_to(values[-1], (len(theta), X.shape[-1]))
            outer = self.link.slope(y)
            J = np.empty((len(theta), self.p, X.shape[-1]))
            for j, (letter, sign) in enumerate(zip(self.letters, self.signs, strict=True)):
                inner = natural[:, j, None] if sign else 1.0
                np.multiply(slopes[letter] * inner, outer, out=J[:, j])
        return self.link(y), J

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Random parameters in their ranges; linear ones by least squares given the others.

        Args:
            X: The variables.
            y: The response on the scale of the link.
            count: Number of starts.
            rng: Random numbers.
        """
        natural = np.stack([_random(p, count, rng) for p in self.parameters], 1)
        if self.linear:
            solved = self._solved(natural, X, self.link.inverse(y))
            for j, value in zip(self.linear, solved.T, strict=True):
                p = self.parameters[j]
                good = np.isfinite(value) & ((value * p.sign > 0) | (p.sign == 0))
                natural[:, j] = np.where(good, value, natural[:, j])
        theta = np.stack([p.inner(natural[:, j]) for j, p in enumerate(self.parameters)], 1)
        return np.clip(np.nan_to_num(theta), -200, 200)

    def _solved(
        self, natural: Float[ndarray, "m p"], X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> Float[ndarray, "m k"]:
        """The linear parameters of each start by ridge regression of the response."""
        base = natural.copy()
        base[:, self.linear] = 0.0
        constant = self.response(base, X)
        basis = []
        for j in self.linear:
            unit = base.copy()
            unit[:, j] = 1.0
            basis.append(self.response(unit, X) - constant)
        weight = self.link.slope(y)
        B = np.nan_to_num(np.stack(basis, 1) * weight, posinf=0.0, neginf=0.0)
        target = np.nan_to_num((y - constant) * weight, posinf=0.0, neginf=0.0)
        scale = np.sqrt((B**2).mean(2)) + 1e-300
        B = B / scale[:, :, None]
        gram = B @ B.transpose(0, 2, 1) + 1e-6 * len(y) * np.eye(len(self.linear))
        return np.linalg.solve(gram, B @ target[:, :, None])[:, :, 0] / scale

    def signs_by_data(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"], rng: np.random.Generator
    ) -> "ExpressionForm":
        """The form with the signs of its linear parameters that fit best, others unchanged."""
        if not self.linear:
            return self
        natural = np.stack([_random(p, 200, rng) for p in self.parameters], 1)
        solved = self._solved(natural, X, self.link.inverse(y))
        natural[:, self.linear] = solved
        with np.errstate(all="ignore"):
            error = np.nan_to_num(
                ((self.link(self.response(natural, X)) - y) ** 2).mean(1), nan=np.inf
            )
        best = natural[int(np.argmin(error))]
        return self.with_signs({self.letters[j]: (-1 if best[j] < 0 else 1) for j in self.linear})

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Means and standard deviations of the parameters' priors."""
        return (
            np.array([p.mean for p in self.parameters]),
            np.array([p.sd for p in self.parameters]),
        )

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by their names in the expression."""
        return dict(zip(self.letters, self.natural(theta).T, strict=True))


def _random(p: Parameter, count: int, rng: np.random.Generator) -> Float[ndarray, " m"]:
    if p.sign:
        return p.sign * np.exp(rng.uniform(np.log(p.low), np.log(p.high), count))
    return rng.uniform(p.low, p.high, count)


def _default(name: str, exponent: bool) -> Parameter:
    """Exponents start from 0.03 to 1.5 and may change sign; other parameters are positive."""
    return Parameter(name, 0, 0.03, 1.5) if exponent else Parameter(name, 1, 0.01, 100.0)


def _exponents(node: Node) -> set[str]:
    """Names in exponents, as factors within exp, and beside logs."""
    found: set[str] = set()
    if node.kind == "^":
        found.update(node.parts[1].names())
    elif node.kind in ("exp", "sigmoid", "tanh"):
        found.update(node.parts[0].names())
    for part in node.parts:
        found |= _exponents(part)
    return found


def _linear(node: Node, letters: Sequence[str]) -> list[int]:
    """A largest set of parameters in which the expression is affine, by place."""
    chosen: list[int] = []
    for j, letter in enumerate(letters):
        names = frozenset(letters[i] for i in chosen) | {letter}
        if degree(node, names) <= 1:
            chosen.append(j)
    return chosen
