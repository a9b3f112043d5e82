"""Published forms in other variables than size and data, as expressions with their sources.

A form's variables have letters of their own; columns take their places by name or by order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from allometry._core.errors import InputError, require
from allometry.laws.multivariate.expression_forms import ExpressionForm, Parameter
from allometry.laws.multivariate.law_expressions import Node, parse, replaced
from allometry.laws.multivariate.variable_runs import Table


@final
@dataclass(frozen=True)
class Published:
    """A published form.

    Args:
        text: The expression.
        variables: Its variables with their meaning.
        source: Key in the bibliography.
        locator: Where in the source.
        ranges: Ranges of starting values of parameters that are neither levels nor exponents.
    """

    text: str
    variables: dict[str, str]
    source: str
    locator: str
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


_EXPERTS = "1/(1/(X - 1 + 1/(1/X_start - 1/X_max)) + 1/X_max)"
_REPEATED = "(U + U*R_star*(1 - exp(-(D/U - 1)/R_star)))"
_STUDENT = "(E + (A/N^alpha + B/D^beta)^gamma)"

LIBRARY: dict[str, Published] = {
    "routed": Published(
        f"exp(d + a*log(N) + b*log({_EXPERTS}) + c*log(N)*log({_EXPERTS}))",
        {"N": "parameters without experts", "X": "experts"},
        "clark2022",
        "Eq. (1) and (2), bilinear in the logs with saturating experts",
        {
            "a": (-0.2, 0.0),
            "b": (-0.3, 0.0),
            "c": (-0.01, 0.02),
            "d": (0.5, 4.0),
            "X_start": (1.05, 4.0),
            "X_max": (100.0, 2000.0),
        },
    ),
    "routed_bilinear": Published(
        "exp(d + a*log(N) + b*log(X) + c*log(N)*log(X))",
        {"N": "parameters without experts", "X": "experts"},
        "clark2022",
        "section 4, bilinear in the logs",
        {"a": (-0.2, 0.0), "b": (-0.3, 0.0), "c": (-0.01, 0.02), "d": (0.5, 4.0)},
    ),
    "fine_grained_experts": Published(
        "E + (g/G^gamma + A)/N^alpha + B/D^beta",
        {"N": "parameters", "D": "tokens", "G": "granularity of experts"},
        "krajewski2024",
        "law of granularity",
    ),
    "sparse_experts": Published(
        "E + A/N^alpha + B/D^beta + c/(1 - S)^lambda + d/((1 - S)^delta*N^gamma)",
        {"N": "parameters", "D": "tokens", "S": "share of inactive experts"},
        "abnar2025",
        "law of size, data and sparsity",
    ),
    "pruned": Published(
        "(a*(1 - S)^b + c)/N^alpha + B/D^beta + E",
        {"N": "non-zero parameters", "D": "tokens", "S": "sparsity of the weights"},
        "frantar2024",
        "Eq. (1)",
    ),
    "vocabulary": Published(
        "A/N^alpha + B/V^nu + C/D^beta + E",
        {"N": "parameters without vocabulary", "V": "vocabulary", "D": "characters or tokens"},
        "tao2024",
        "parametric loss in non-vocabulary and vocabulary parameters; E may be negative",
    ),
    "repeated_tokens": Published(
        f"E + A/N^alpha + B/{_REPEATED}^beta",
        {"N": "parameters", "D": "tokens", "U": "unique tokens"},
        "muennighoff2023",
        "Eq. (5) for the data, without the excess of parameters",
        {"R_star": (1.0, 40.0)},
    ),
    "step_law": Published(
        "E + A/N^alpha + B/D^beta"
        " + q*(log(lr) - log(k) - m*log(N) - s*log(D))^2 + r*(log(bs) - log(h) - t*log(D))^2",
        {"N": "parameters", "D": "tokens", "lr": "learning rate", "bs": "batch size"},
        "li2025",
        "optima of Eq. (1) as centres of quadratics in the logs",
        {
            "m": (-1.0, 0.0),
            "s": (0.0, 0.6),
            "t": (0.2, 0.8),
            "k": (0.1, 1000.0),
            "h": (0.01, 1000.0),
            "q": (0.001, 0.2),
            "r": (0.001, 0.2),
        },
    ),
    "critical_batch": Published(
        "(A/N)^alpha + (B*(1 + b/bs)/T)^beta",
        {"N": "parameters", "T": "steps", "bs": "batch size"},
        "kaplan2020",
        "Eq. (5.4) and (5.6), with one critical batch b",
        {"A": (1e10, 1e16), "B": (100.0, 1e5), "b": (10.0, 1e7)},
    ),
    "width_depth": Published(
        "E + A/w^alpha + B/d^beta + C/N^gamma + F/D^zeta",
        {"w": "width", "d": "depth", "N": "parameters", "D": "tokens"},
        "mcleish2025",
        "law of width, depth, parameters and tokens",
    ),
    "precision": Published(
        "A/(N*(1 - exp(-P/p)))^alpha + B/D^beta + E",
        {"N": "parameters", "D": "tokens", "P": "bits of the weights in training"},
        "kumar2024",
        "Eq. (3), weights alone",
        {"p": (0.5, 8.0)},
    ),
    "quantised": Published(
        "A/N^alpha + B/D^beta + E + C*D^gamma/N^nu*exp(-P/p)",
        {"N": "parameters", "D": "tokens", "P": "bits after training"},
        "kumar2024",
        "Eq. (2), added to the law of the unquantised model",
        {"p": (0.3, 3.0)},
    ),
    "parallel_streams": Published(
        "(A/(N*(k*log(P) + 1)))^alpha + E",
        {"N": "parameters", "P": "parallel streams"},
        "chen2025",
        "parallel scaling law",
        {"k": (0.05, 2.0), "A": (1e3, 1e9)},
    ),
    "distilled": Published(
        f"T + 1/T^c*(1 + (T/({_STUDENT}*d))^(1/f))^(-b*f)*(F/N^mu + G/D^nu)^omega",
        {
            "N": "parameters of the student",
            "D": "tokens of distillation",
            "T": "loss of the teacher",
        },
        "busbridge2025",
        "Eq. (8)",
        {
            "d": (0.5, 2.0),
            "f": (0.1, 1.0),
            "b": (0.1, 3.0),
            "c": (0.1, 3.0),
            "gamma": (0.5, 1.0),
            "omega": (0.5, 1.0),
        },
    ),
    "fine_tuned": Published(
        "A/(X^alpha*D^beta) + E",
        {"X": "model size, data or tuned parameters", "D": "examples of fine-tuning"},
        "zhang2024",
        "Eq. (1)",
    ),
    "fine_tuned_rectified": Published(
        "B/(D_pre + D^beta) + E",
        {"D": "examples of fine-tuning"},
        "lin2024",
        "rectified law",
        {"D_pre": (0.1, 1e4)},
    ),
    "transfer": Published(
        "E + A/N^alpha + B/(D + k*D^delta*N^nu)^beta",
        {"N": "parameters", "D": "tokens of fine-tuning"},
        "hernandez2021",
        "effective data transferred, k D^delta N^nu, in an additive law",
        {"delta": (0.05, 0.6), "nu": (0.1, 0.8), "k": (1.0, 1e6)},
    ),
    "pass_at_k": Published(
        "exp(-a*k^(-b))",
        {"k": "samples"},
        "brown2024",
        "coverage of repeated sampling",
        {"a": (0.05, 5.0)},
    ),
    "best_of_n": Published(
        "r + sqrt(log(n) - (n - 1)/n)*(alpha - beta*sqrt(log(n) - (n - 1)/n))",
        {"n": "samples"},
        "gao2023",
        "Eq. (1) with the divergence of best-of-n; n above 1",
    ),
}
"""The published forms by name."""


def mixture(shares: Sequence[str]) -> str:
    """The data mixing law of some shares: c + k exp(t_1 r_1 + ...).

    References:
        `ye2024`.
    """
    inside = " + ".join(f"t_{name}*{name}" for name in shares)
    return f"c + k*exp({inside})"


def in_columns(
    form: str,
    table: Table,
    ranges: Mapping[str, tuple[float, float]],
    mapping: Mapping[str, str] | None,
    rng: np.random.Generator,
) -> ExpressionForm | None:
    """The published form of this name in the table's columns; None if there is no such form.

    Args:
        form: Name of the form.
        table: The runs.
        ranges: Ranges of starting values that replace those of the form.
        mapping: Columns for the form's variables. Default: the same names, or the same order.
        rng: Random numbers.
    """
    if form == "mixture":
        shares = [v.symbol for v in table.variables if v.role == "share"]
        require(len(shares) > 1, "data", "have shares of a mixture that sum to one", shares)
        return ranged(form, parse(mixture(shares)), table, ranges, rng)
    if form not in LIBRARY:
        return None
    entry = LIBRARY[form]
    letters = list(entry.variables)
    if mapping is None:
        same = set(letters) <= set(table.names)
        places = letters if same else list(table.names)
        if len(places) != len(letters):
            raise InputError(
                f"fit.variables must name {len(letters)} columns for the form {form!r} "
                f"({', '.join(f'{k}: {v}' for k, v in entry.variables.items())}); got "
                f"{', '.join(table.names)}."
            )
        mapping = dict(zip(letters, places, strict=True))
    missing = [v for v in letters if v not in mapping]
    require(not missing, "fit.variables", f"have a column for {', '.join(missing)}", mapping)
    node = parse(entry.text)
    clash = (set(node.names()) - set(letters)) & set(table.symbols)
    renamed = {name: Node("name", name=f"{name}_") for name in clash}
    symbol = dict(zip(table.names, table.symbols, strict=True))
    columns = {
        letter: Node("name", name=symbol.get(mapping[letter], mapping[letter]))
        for letter in letters
    }
    own = {f"{k}_" if k in clash else k: v for k, v in (entry.ranges | dict(ranges)).items()}
    return ranged(form, replaced(node, renamed | columns), table, own, rng)


def ranged(
    name: str,
    node: Node,
    table: Table,
    ranges: Mapping[str, tuple[float, float]],
    rng: np.random.Generator,
) -> ExpressionForm:
    """An expression as a form, with ranges of starting values and signs taken from the data."""
    known: dict[str, Parameter] = {}
    for letter, ends in ranges.items():
        low, high = (float(end) for end in ends)
        require(low < high, f"fit.parameters[{letter!r}]", "be a range (low, high)", (low, high))
        sign = 1 if low > 0 else -1 if high < 0 else 0
        size = sorted([abs(low), abs(high)]) if sign else [low, high]
        known[letter] = Parameter(letter, sign, size[0], size[1])
    form = ExpressionForm(name, node, table.symbols, table.link, known)
    stray = [letter for letter in ranges if letter not in form.letters]
    require(not stray, "fit.parameters", "name parameters of the expression", stray)
    missing = [v.name for v in table.variables if v.symbol not in form.variables]
    if missing:
        raise InputError(
            f"The expression must use every variable; got none of {', '.join(missing)} in "
            f"{form.equation!r}. Leave it out of the variables, or use it."
        )
    rows = np.array(table.places(form.variables))
    settled = form.signs_by_data(table.X[rows], table.z, rng)
    return settled.with_signs({letter: p.sign for letter, p in known.items()})
