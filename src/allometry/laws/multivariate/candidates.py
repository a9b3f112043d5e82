"""Candidate forms composed from the roles of the variables.

Every candidate is an expression in the variables over their reference values, with weakly
informative priors: exponents near 0.3, interactions near 0, levels within a factor of ten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.multivariate.expression_forms import ExpressionForm, Parameter
from allometry.laws.multivariate.roles import Variable
from allometry.laws.multivariate.tables import Table

EXPONENT = (0.3, 0.3)
"""Prior mean and standard deviation of an exponent."""

CROSS = 0.15
"""Prior standard deviation of an exponent that couples two variables."""

CURVED = 0.05
"""Prior standard deviation of a coefficient of a product of two logs."""

MOST_PARAMETERS = 32
"""Largest number of parameters of a candidate."""


@final
@dataclass
class _Builder:
    """Parameters of one expression as they are named."""

    level: float
    lowest: float
    log: bool
    known: dict[str, Parameter] = field(default_factory=dict)

    def irreducible(self) -> str:
        """The response that remains at infinite scale."""
        if self.log:
            e = float(np.log(self.lowest))
            self.known["E"] = Parameter("E", 1, 0.2 * self.lowest, self.lowest, e - 0.4, 0.5)
        else:
            low = self.lowest - 2 * self.level
            self.known["E"] = Parameter(
                "E", 0, low, self.lowest, self.lowest - 0.5 * self.level, 2 * self.level
            )
        return "E"

    def amplitude(self, name: str, sign: int = 1, share: float = 1.0) -> str:
        """A level, relative to the spread of the response."""
        size = share * self.level
        self.known[name] = Parameter(name, sign, 0.05 * size, 3 * size, float(np.log(size)), 1.5)
        return name

    def exponent(self, name: str, mean: float = EXPONENT[0], sd: float = EXPONENT[1]) -> str:
        """A real exponent."""
        self.known[name] = Parameter(name, 0, mean - 0.8 * sd, mean + 2 * sd, mean, sd)
        return name

    def real(self, name: str, sd: float, mean: float = 0.0) -> str:
        """A real coefficient."""
        self.known[name] = Parameter(name, 0, mean - sd, mean + sd, mean, sd)
        return name

    def positive(self, name: str, mean: float, sd: float) -> str:
        """A positive coefficient, by its log."""
        low, high = np.exp(np.log(mean) - sd), np.exp(np.log(mean) + sd)
        self.known[name] = Parameter(name, 1, low, high, float(np.log(mean)), sd)
        return name


Body = Callable[[_Builder, Sequence[Variable]], str]


def _additive(b: _Builder, scale: Sequence[Variable]) -> str:
    return " + ".join(
        f"{b.amplitude(f'A_{v.name}')}*{v.power(b.exponent(f'a_{v.name}'))}" for v in scale
    )


def _product(b: _Builder, scale: Sequence[Variable], suffix: str = "", cross: bool = False) -> str:
    mean, sd = (0.2, 0.2) if cross else EXPONENT
    return "*".join(v.power(b.exponent(f"a{suffix}_{v.name}", mean, sd)) for v in scale)


def _multiplicative(b: _Builder, scale: Sequence[Variable]) -> str:
    return f"{b.amplitude('A')}*{_product(b, scale)}"


def _interaction(b: _Builder, scale: Sequence[Variable]) -> str:
    cross = f"{b.amplitude('C', share=0.3)}*{_product(b, scale, 'c', cross=True)}"
    return f"{_additive(b, scale)} + {cross}"


def _coupled(b: _Builder, scale: Sequence[Variable]) -> str:
    inner = " + ".join(
        f"{b.positive(f'B_{v.name}', 0.5, 1.0)}*{v.power(b.exponent(f'a_{v.name}', 0.5, 0.4))}"
        for v in scale
    )
    return f"{b.amplitude('A')}*({inner})^{b.positive('g', 0.7, 0.5)}"


def _posynomial(b: _Builder, scale: Sequence[Variable]) -> str:
    terms = []
    for v in scale:
        factors = [v.power(b.exponent(f"a_{v.name}"))]
        factors += [
            u.power(b.exponent(f"a_{v.name}_{u.name}", 0.0, CROSS)) for u in scale if u is not v
        ]
        terms.append(f"{b.amplitude(f'A_{v.name}')}*{'*'.join(factors)}")
    return " + ".join(terms)


def _exponential(b: _Builder, scale: Sequence[Variable]) -> str:
    """Exponents that change with the logs of the other variables."""
    pairs = [
        f"{b.real(f'h_{u.name}_{v.name}', CURVED)}*({u.text})*({v.text})"
        for u, v in combinations(scale, 2)
    ]
    powers = [f"{b.exponent(f'a_{v.name}')}*({v.text})" for v in scale]
    inside = " - ".join(["0", *powers]) + "".join(f" + {pair}" for pair in pairs)
    return f"{b.amplitude('A')}*exp({inside})"


def _shifted(b: _Builder, scale: Sequence[Variable]) -> str:
    """Powers of variables plus constants: the effect of small values saturates."""
    factors = []
    for v in scale:
        a = b.exponent(f"a_{v.name}")
        if v.kind == "log" and v.levels >= 3:
            shift = b.positive(f"s_{v.name}", 0.2, 1.5)
            factors.append(f"({v.name}/{v.centre:.12g} + {shift})^-{a}")
        else:
            factors.append(v.power(a))
    return f"{b.amplitude('A')}*{'*'.join(factors)}"


BODIES: dict[str, tuple[Body, int]] = {
    "additive": (_additive, 1),
    "multiplicative": (_multiplicative, 2),
    "shifted": (_shifted, 1),
    "interaction": (_interaction, 2),
    "coupled": (_coupled, 2),
    "posynomial": (_posynomial, 2),
    "bilinear": (_exponential, 2),
}
"""What is added to the irreducible loss, with the least number of scale variables."""


def _quadratic(b: _Builder, every: Sequence[Variable]) -> str:
    """A quadratic in the coordinates, on the scale of the link."""
    unit = 1.0 if b.log else b.level
    mean = float(np.log(b.lowest)) if b.log else b.lowest
    b.known["c"] = Parameter("c", 0, mean, mean + unit, mean + 0.5 * unit, 3 * unit)
    terms = [f"{b.real(f'b_{v.name}', 0.5 * unit / max(v.spread, 0.3))}*({v.text})" for v in every]
    for u, v in (*((v, v) for v in every if v.levels >= 3), *combinations(every, 2)):
        sd = 0.15 * unit / max(u.spread, 0.3) / max(v.spread, 0.3)
        name = f"h_{u.name}" if u is v else f"h_{u.name}_{v.name}"
        terms.append(f"{b.real(name, sd)}*({u.text})*({v.text})")
    inside = " + ".join(["c", *terms])
    return f"exp({inside})" if b.log else inside


def _bowl(b: _Builder, tuned: Sequence[Variable], scale: Sequence[Variable], unit: float) -> str:
    """Quadratics in the logs of tuned variables whose centres move as powers of scale."""
    terms = []
    for t in tuned:
        centre = [f"({t.text}) - {b.real(f'm_{t.name}', 2 * t.spread)}"]
        centre += [
            f"{b.real(f'm_{t.name}_{u.name}', 0.4)}*({u.text})" for u in scale if u.levels >= 2
        ]
        curve = b.positive(f"q_{t.name}", 0.1 * unit / max(t.spread, 0.3) ** 2, 1.5)
        terms.append(f"{curve}*({' - '.join(centre)})^2")
    return " + ".join(terms)


def compose(table: Table, rows: ndarray | None = None) -> list[ExpressionForm]:
    """The candidates for a table, simplest first.

    Args:
        table: The runs.
        rows: Rows whose responses set the priors. Default: all.
    """
    y = table.y if rows is None else table.y[rows]
    scale = [v for v in table.variables if v.role in ("scale", "bits", "fraction")]
    tuned = [v for v in table.variables if v.role == "tuned"]
    shares = [v for v in table.variables if v.role == "share"]
    level = max(float(y.std()), 1e-3 * float(np.abs(y).max()), 1e-12)

    def builder() -> _Builder:
        return _Builder(level, float(y.min()), table.link.log)

    out: list[ExpressionForm] = []

    def add(name: str, b: _Builder, text: str) -> None:
        form = ExpressionForm(name, text, table.names, table.link, b.known)
        if form.p <= MOST_PARAMETERS:
            out.append(form)

    for name, (body, least) in BODIES.items():
        if len(scale) < max(least, 1):
            continue
        b = builder()
        base = f"{b.irreducible()} + {body(b, scale)}"
        if not tuned and not shares:
            add(name, b, base)
            continue
        if tuned and not shares:
            add(f"{name} + bowl", b, f"{base} + {_bowl(b, tuned, scale, level)}")
        if shares:
            add(f"{name} x mixture", b, f"{base}*exp({_mixture(b, shares)})")
    if not shares:
        b = builder()
        add("quadratic", b, _quadratic(b, table.variables))
    if scale and not tuned and not shares:
        b = builder()
        add("power", b, f"{b.amplitude('A', share=3)}*{_product(b, scale)}")
    if tuned and not scale:
        b = builder()
        add("bowl", b, f"{b.irreducible()} + {_bowl(b, tuned, scale, level)}")
    if shares and not scale:
        b = builder()
        add("exponential mixture", b, f"E + A*exp({_mixture(b, shares)})")
        b = builder()
        add("linear mixture", b, _linear_mixture(b, shares))
    return out


def _mixture(b: _Builder, shares: Sequence[Variable]) -> str:
    b.irreducible()
    b.amplitude("A")
    return " + ".join(f"{b.real(f't_{v.name}', 2.0)}*{v.name}" for v in shares)


def _linear_mixture(b: _Builder, shares: Sequence[Variable]) -> str:
    unit = 1.0 if b.log else b.level
    mean = float(np.log(b.lowest)) if b.log else b.lowest
    inside = " + ".join(
        f"{b.real(f'b_{v.name}', 3 * unit, mean + 0.3 * unit)}*{v.name}" for v in shares
    )
    return f"exp({inside})" if b.log else inside


def increasing(table: Table) -> Float[ndarray, " v"]:
    """Slopes of a linear regression of the response on the coordinates."""
    Z = np.concatenate([np.ones((1, table.n)), table.coordinates()])
    gram = Z @ Z.T + 1e-6 * table.n * np.eye(len(Z))
    return np.linalg.solve(gram, Z @ table.z)[1:]
