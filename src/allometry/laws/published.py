"""Published exponents of cities, brains and highways, with their sources.

Nothing here is fitted. The table of cities was compared with the paper row by row, and those of
brains agree with their published R2 and n. Of highways, the first two rows were compared with the
paper; the others are consistent with them and with one another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from allometry._core.errors import require
from allometry._core.estimate import Estimate


@final
@dataclass(frozen=True)
class PublishedExponent:
    """One row of a published table: the exponent of a quantity in a size.

    Args:
        quantity: What scales.
        exponent: With its published 95 % interval.
        r2: Coefficient of determination, if published.
        n: Number of observations, if published.
        where: Country and year, or the animals.
    """

    quantity: str
    exponent: Estimate
    r2: float | None = None
    n: int | None = None
    where: str = ""


def cities() -> list[PublishedExponent]:
    r"""How 23 quantities of cities scale with population, $Y = Y_0 N^\beta$.

    Example:
        >>> from allometry.laws import published
        >>> print(published.cities()[0].quantity, published.cities()[0].exponent)
        new patents 1.27 (1.25 to 1.29)

    References: `bettencourt2007` Table 1.
    """
    return [
        PublishedExponent(name, Estimate(b, lo=lo, hi=hi, n=n), r2, n, where)
        for name, b, lo, hi, r2, n, where in _CITIES
    ]


def city_theory(dimension: int = 2, path: float = 1.0) -> dict[str, float]:
    r"""Exponents of cities from a mean-field model of mixing people.

    People explore the city along paths of fractal dimension H, and networks reach everyone. With
    $\delta = H / (D(D + H))$ the area scales as $N^{D/(D+H)}$, the
    area of networks as $N^{1-\delta}$, and interactions, hence outputs, as $N^{1+\delta}$.

    Args:
        dimension: D of the city.
        path: H of the paths.

    Example:
        >>> from allometry.laws import published
        >>> {k: round(v, 3) for k, v in published.city_theory().items()}
        {'land area': 0.667, 'infrastructure': 0.833, 'outputs': 1.167}

    References: `bettencourt2013`.
    """
    require(dimension >= 1, "city_theory.dimension", "be at least 1", dimension)
    require(path > 0, "city_theory.path", "be positive", path)
    delta = path / (dimension * (dimension + path))
    area = dimension / (dimension + path)
    return {"land area": area, "infrastructure": 1 - delta, "outputs": 1 + delta}


def brains() -> list[PublishedExponent]:
    """How the resting metabolism of brains scales with their volume or mass.

    References: `karbowski2007`; `herculanohouzel2011` for the six species.
    """
    rows = (
        ("oxygen consumption", Estimate(0.86, lo=0.75, hi=0.96, n=7), 0.989, 7, "Karbowski"),
        ("glucose consumption", Estimate(0.86, lo=0.80, hi=0.91, n=10), 0.994, 10, "Karbowski"),
        ("glucose use", Estimate(0.873, lo=0.830, hi=0.915, n=6), None, 6, "Herculano-Houzel"),
    )
    return [PublishedExponent(*row) for row in rows]


def highways_and_cortex() -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """Eight exponents in surface area: of city highways, and of the mammalian neocortex.

    Rows are in the published order. Conductors are highways and neurons, leaves are exits and
    synapses, the diameter is that of an axon or the number of lanes, and the velocity that along
    an axon or across the city. Leaves are conductors times leaves per conductor, and the surface
    of conductors is their number times their length (the square root of the area) times their
    diameter. Two rows are known by their number alone; in the cortex 3/2 is the exponent of the
    volume of white matter, and 3/8 that of the number of areas. Only the interval of the first row
    is given, plus or minus 0.083.

    References: `changizi2010`.
    """
    city = {name: Estimate(a) for name, a, _ in _HIGHWAYS}
    city["conductors"] = Estimate(0.759, lo=0.759 - 0.083, hi=0.759 + 0.083)
    return city, {name: Estimate(a, exact=True) for name, _, a in _HIGHWAYS}


def by_kind(rows: Iterable[PublishedExponent]) -> dict[str, list[PublishedExponent]]:
    """Rows by kind: `superlinear`, `linear` or `sublinear`, by their intervals."""
    out: dict[str, list[PublishedExponent]] = {"superlinear": [], "linear": [], "sublinear": []}
    for row in rows:
        lo, hi = row.exponent.interval
        out["superlinear" if lo > 1 else "sublinear" if hi < 1 else "linear"].append(row)
    return out


_CITIES = (
    ("new patents", 1.27, 1.25, 1.29, 0.72, 331, "U.S. 2001"),
    ("inventors", 1.25, 1.22, 1.27, 0.76, 331, "U.S. 2001"),
    ("private R&D employment", 1.34, 1.29, 1.39, 0.92, 266, "U.S. 2002"),
    ("supercreative employment", 1.15, 1.11, 1.18, 0.89, 287, "U.S. 2003"),
    ("R&D establishments", 1.19, 1.14, 1.22, 0.77, 287, "U.S. 1997"),
    ("R&D employment", 1.26, 1.18, 1.43, 0.93, 295, "China 2002"),
    ("total wages", 1.12, 1.09, 1.13, 0.96, 361, "U.S. 2002"),
    ("total bank deposits", 1.08, 1.03, 1.11, 0.91, 267, "U.S. 1996"),
    ("GDP", 1.15, 1.06, 1.23, 0.96, 295, "China 2002"),
    ("GDP", 1.26, 1.09, 1.46, 0.64, 196, "EU 1999-2003"),
    ("GDP", 1.13, 1.03, 1.23, 0.94, 37, "Germany 2003"),
    ("total electrical consumption", 1.07, 1.03, 1.11, 0.88, 392, "Germany 2002"),
    ("new AIDS cases", 1.23, 1.18, 1.29, 0.76, 93, "U.S. 2002-2003"),
    ("serious crimes", 1.16, 1.11, 1.18, 0.89, 287, "U.S. 2003"),
    ("total housing", 1.00, 0.99, 1.01, 0.99, 316, "U.S. 1990"),
    ("total employment", 1.01, 0.99, 1.02, 0.98, 331, "U.S. 2001"),
    ("household electrical consumption", 1.00, 0.94, 1.06, 0.88, 377, "Germany 2002"),
    ("household electrical consumption", 1.05, 0.89, 1.22, 0.91, 295, "China 2002"),
    ("household water consumption", 1.01, 0.89, 1.11, 0.96, 295, "China 2002"),
    ("gasoline stations", 0.77, 0.74, 0.81, 0.93, 318, "U.S. 2001"),
    ("gasoline sales", 0.79, 0.73, 0.80, 0.94, 318, "U.S. 2001"),
    ("length of electrical cables", 0.87, 0.82, 0.92, 0.75, 380, "Germany 2002"),
    ("road surface", 0.83, 0.74, 0.92, 0.87, 29, "Germany 2002"),
)
_HIGHWAYS = (
    ("conductors", 0.759, 3 / 4),
    ("leaves", 1.138, 9 / 8),
    ("leaves per conductor", 0.379, 3 / 8),
    ("diameter", 0.174, 1 / 8),
    ("velocity", 0.108, 1 / 8),
    ("surface of conductors", 1.433, 11 / 8),
    ("row 7", 1.462, 3 / 2),
    ("row 8", 0.390, 3 / 8),
)
