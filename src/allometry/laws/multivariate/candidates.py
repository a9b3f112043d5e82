"""Candidate forms composed from the roles of the variables.

Every candidate is an expression in the variables over their reference values, with weakly
informative priors: exponents near 0.3, interactions near 0, levels within a factor of ten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import final

import numpy as np
from numpy import ndarray

from allometry.laws.multivariate.expression_forms import ExpressionForm, Parameter
from allometry.laws.multivariate.law_expressions import parse
from allometry.laws.multivariate.levels import MOST_GROUPS
from allometry.laws.multivariate.roles import Variable
from allometry.laws.multivariate.variable_runs import Table

EXPONENT = (0.3, 0.3)
"""Prior mean and standard deviation of an exponent."""

CROSS = 0.15
"""Prior standard deviation of an exponent that couples two variables."""

CURVED = 0.05
"""Prior standard deviation of a coefficient of a product of two logs."""

NARROW = 0.5
"""Standard deviation of a log below which the prior of its exponent widens in proportion."""

SKEWED = 60
"""Runs from which the two sides of a bowl may differ."""

BILINEAR_POWER = "bilinear power"
"""Name of the bilinear power law without an irreducible loss."""

MOST_PARAMETERS = 32
"""Largest number of parameters of a candidate."""


@final
@dataclass
class _Builder:
    """Parameters of one expression as they are named."""

    level: float
    best: float
    log: bool
    sign: int = 1
    taken: frozenset[str] = frozenset()
    known: dict[str, Parameter] = field(default_factory=dict)

    def _named(self, name: str) -> str:
        """The name, changed if a column has it."""
        while name in self.taken:
            name += "_"
        return name

    def irreducible(self) -> str:
        """The response that remains at infinite scale: a floor, or a ceiling if it rises."""
        name = self._named("E")
        if self.log:
            e = float(np.log(self.best))
            self.known[name] = Parameter(name, 1, 0.2 * self.best, self.best, e - 0.4, 0.5)
        else:
            ends = sorted([self.best, self.best - 2 * self.sign * self.level])
            mean = self.best - 0.5 * self.sign * self.level
            self.known[name] = Parameter(name, 0, ends[0], ends[1], mean, 2 * self.level)
        return name

    def amplitude(self, name: str, share: float = 1.0) -> str:
        """A level, relative to the spread of the response."""
        name, size = self._named(name), share * self.level
        mean = float(np.log(size))
        self.known[name] = Parameter(name, self.sign, 0.05 * size, 3 * size, mean, 1.5)
        return name

    def exponent(
        self, name: str, v: Variable, mean: float = EXPONENT[0], sd: float = EXPONENT[1]
    ) -> str:
        """A real exponent of a variable; larger where the variable takes a narrow range."""
        name = self._named(name)
        if v.kind != "linear":
            wide = max(1.0, NARROW / max(v.spread, 0.02))
            mean, sd = wide * mean, wide * sd
        self.known[name] = Parameter(name, 0, mean - 0.8 * sd, mean + 2 * sd, mean, sd)
        return name

    def real(self, name: str, sd: float, mean: float = 0.0) -> str:
        """A real coefficient."""
        name = self._named(name)
        self.known[name] = Parameter(name, 0, mean - sd, mean + sd, mean, sd)
        return name

    def positive(self, name: str, mean: float, sd: float) -> str:
        """A positive coefficient, by its log."""
        name = self._named(name)
        low, high = np.exp(np.log(mean) - sd), np.exp(np.log(mean) + sd)
        self.known[name] = Parameter(name, 1, low, high, float(np.log(mean)), sd)
        return name


Body = Callable[[_Builder, Sequence[Variable]], str]


def _additive(b: _Builder, scale: Sequence[Variable]) -> str:
    return " + ".join(
        f"{b.amplitude(f'A_{v.symbol}')}*{v.power(b.exponent(f'a_{v.symbol}', v))}" for v in scale
    )


def _product(b: _Builder, scale: Sequence[Variable], suffix: str = "", cross: bool = False) -> str:
    mean, sd = (0.2, 0.2) if cross else EXPONENT
    return "*".join(v.power(b.exponent(f"a{suffix}_{v.symbol}", v, mean, sd)) for v in scale)


def _multiplicative(b: _Builder, scale: Sequence[Variable]) -> str:
    return f"{b.amplitude('A')}*{_product(b, scale)}"


def _interaction(b: _Builder, scale: Sequence[Variable]) -> str:
    cross = f"{b.amplitude('C', share=0.3)}*{_product(b, scale, 'c', cross=True)}"
    return f"{_additive(b, scale)} + {cross}"


def _coupled(b: _Builder, scale: Sequence[Variable]) -> str:
    inner = " + ".join(
        f"{b.positive(f'B_{v.symbol}', 0.5, 1.0)}*"
        f"{v.power(b.exponent(f'a_{v.symbol}', v, 0.5, 0.4))}"
        for v in scale
    )
    return f"{b.amplitude('A')}*({inner})^{b.positive('g', 0.7, 0.5)}"


def _posynomial(b: _Builder, scale: Sequence[Variable]) -> str:
    terms = []
    for v in scale:
        factors = [v.power(b.exponent(f"a_{v.symbol}", v))]
        factors += [
            u.power(b.exponent(f"a_{v.symbol}_{u.symbol}", u, 0.0, CROSS))
            for u in scale
            if u is not v
        ]
        terms.append(f"{b.amplitude(f'A_{v.symbol}')}*{'*'.join(factors)}")
    return " + ".join(terms)


def _exponential(b: _Builder, scale: Sequence[Variable], share: float = 1.0) -> str:
    """Exponents that change with the logs of the other variables."""
    pairs = [
        f"{b.real(f'h_{u.symbol}_{v.symbol}', CURVED)}*({u.text})*({v.text})"
        for u, v in combinations(scale, 2)
    ]
    powers = [f"{b.exponent(f'a_{v.symbol}', v)}*({v.text})" for v in scale]
    inside = " - ".join(["0", *powers]) + "".join(f" + {pair}" for pair in pairs)
    return f"{b.amplitude('A', share)}*exp({inside})"


def _shifted(b: _Builder, scale: Sequence[Variable]) -> str:
    """Powers of variables plus constants: the effect of small values saturates."""
    factors = []
    for v in scale:
        a = b.exponent(f"a_{v.symbol}", v)
        if v.kind in ("log", "offset") and v.levels >= 3:
            shift = b.positive(f"s_{v.symbol}", 0.2, 1.5)
            factors.append(f"({v.ratio} + {shift})^-{a}")
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
    mean = float(np.log(b.best)) if b.log else b.best
    level = b.real("c", 3 * unit, mean + 0.5 * b.sign * unit)
    terms = [
        f"{b.real(f'b_{v.symbol}', 0.5 * unit / max(v.spread, 0.02))}*({v.text})" for v in every
    ]
    for u, v in (*((v, v) for v in every if v.levels >= 3), *combinations(every, 2)):
        sd = 0.15 * unit / max(u.spread, 0.02) / max(v.spread, 0.02)
        name = f"h_{u.symbol}" if u is v else f"h_{u.symbol}_{v.symbol}"
        terms.append(f"{b.real(name, sd)}*({u.text})*({v.text})")
    inside = " + ".join([level, *terms])
    return f"exp({inside})" if b.log else inside


def _bowl(
    b: _Builder, tuned: Sequence[Variable], scale: Sequence[Variable], unit: float, n: int
) -> str:
    """Bowls in the logs of tuned variables whose centres move as powers of scale.

    With many runs, the centre of one moves with the other tuned variables too, as the best
    learning rate does with the batch, and its two sides may differ: losses rise faster above the
    best rate than below it.
    """
    terms = []
    for i, t in enumerate(tuned):
        centre = [f"({t.text}) - {b.real(f'm_{t.symbol}', 2 * t.spread)}"]
        moved = [u for u in scale if u.levels >= 2]
        moved += [u for u in tuned[:i] if u.levels >= 3 and n >= SKEWED]
        centre += [f"{b.real(f'm_{t.symbol}_{u.symbol}', 0.4)}*({u.text})" for u in moved]
        curve = b.positive(f"q_{t.symbol}", 0.1 * unit / max(t.spread, 0.3) ** 2, 1.5)
        away = f"({' - '.join(centre)})"
        side = ""
        if n >= SKEWED and t.levels >= 5:
            skew = b.real(f"k_{t.symbol}", 0.7)
            side = f"*exp({skew}*tanh({away}/{max(t.spread, 0.1):.12g}))"
        terms.append(f"{curve}*{away}^2{side}")
    joined = " + ".join(terms)
    return joined if b.sign > 0 else f"-1*({joined})"


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
    size = float(np.abs(y).max())
    # One or two runs say nothing of the spread: a typical one stands in.
    level = max(float(y.std()), (1e-3 if len(y) > 2 else 0.1) * size, 1e-12)
    sign = -1 if table.rising else 1
    best = float(y.max() if table.rising else y.min())

    def builder() -> _Builder:
        return _Builder(level, best, table.link.log, sign, frozenset(table.symbols))

    out: list[ExpressionForm] = []

    def add(name: str, b: _Builder, text: str) -> None:
        if len(b.known) <= MOST_PARAMETERS:
            node = parse(text, longest=10**6)
            out.append(ExpressionForm(name, node, table.symbols, table.link, b.known))

    for name, (body, least) in BODIES.items():
        if len(scale) < max(least, 1):
            continue
        b = builder()
        base = f"{b.irreducible()} + {body(b, scale)}"
        if not tuned and not shares:
            add(name, b, base)
            continue
        if tuned and not shares:
            add(f"{name} + bowl", b, f"{base} + {_bowl(b, tuned, scale, level, len(y))}")
        if shares:
            add(f"{name} x mixture", b, f"{base}*exp({_exponents(b, shares)})")
    if not shares:
        b = builder()
        add("quadratic", b, _quadratic(b, table.variables))
    if scale and not tuned and not shares:
        b = builder()
        add("power", b, f"{b.amplitude('A', share=3)}*{_product(b, scale)}")
        if len(scale) >= 2:
            # Routed models: Clark et al. (2022), Eq. (7), without their saturation.
            b = builder()
            add(BILINEAR_POWER, b, _exponential(b, scale, share=3))
    if tuned and not scale:
        b = builder()
        add("bowl", b, f"{b.irreducible()} + {_bowl(b, tuned, scale, level, len(y))}")
    if shares and not scale:
        b = builder()
        inside = _exponents(b, shares)
        add("exponential mixture", b, f"{b.irreducible()} + {b.amplitude('A')}*exp({inside})")
        b = builder()
        add("linear mixture", b, _linear_mixture(b, shares))
    if 1 < len(table.groups) <= MOST_GROUPS:
        out += [form.sharing() for form in out]
    return out


def _exponents(b: _Builder, shares: Sequence[Variable]) -> str:
    return " + ".join(f"{b.real(f't_{v.symbol}', 2.0)}*{v.symbol}" for v in shares)


def _linear_mixture(b: _Builder, shares: Sequence[Variable]) -> str:
    unit = 1.0 if b.log else b.level
    mean = float(np.log(b.best)) if b.log else b.best
    inside = " + ".join(
        f"{b.real(f'b_{v.symbol}', 3 * unit, mean + 0.3 * b.sign * unit)}*{v.symbol}"
        for v in shares
    )
    return f"exp({inside})" if b.log else inside
