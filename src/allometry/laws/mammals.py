"""Mammals by mass: metabolic rates and brains, from published tables."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@final
@dataclass(frozen=True)
class Sample:
    """Pairs of positive values with their names.

    Args:
        names: Name of each animal.
        x: Body mass in kg.
        y: The other quantity.
        unit: What y is, with its unit.
    """

    names: tuple[str, ...]
    x: Float[ndarray, " n"]
    y: Float[ndarray, " n"]
    unit: str


def metabolic_rates() -> Sample:
    r"""Body masses and basal metabolic rates of 26 groups of mammals, mouse to cow.

    Kleiber's own fit is $\log_{10} B = 1.83 + 0.756 \log_{10} M$.

    Example:
        >>> from allometry import laws
        >>> table = laws.mammals.metabolic_rates()
        >>> print(laws.allometry(table.x, table.y).words())
        exponent 0.756 (0.738 to 0.774): sublinear: y grows slower than x

    References: `kleiber1947` Table 1.
    """
    return _sample(_METABOLIC_RATE, "metabolic rate, kcal per day")


def brain_masses() -> Sample:
    """Body masses and brain masses of 62 species of mammals, shrew to elephant.

    References: `allison1976`; the table is in many textbooks, for example `weisberg1985`.
    """
    return _sample(_BRAIN_MASS, "brain mass, g")


def _sample(rows: tuple[tuple[str, float, float], ...], unit: str) -> Sample:
    names, x, y = zip(*rows, strict=True)
    return Sample(names, np.array(x), np.array(y), unit)


_METABOLIC_RATE = (
    ("mouse", 0.021, 3.6),
    ("rat", 0.282, 28.1),
    ("guinea pig", 0.41, 35.1),
    ("rabbit", 2.98, 167.0),
    ("rabbit", 1.52, 83.0),
    ("rabbit", 2.46, 119.0),
    ("rabbit", 3.57, 164.0),
    ("rabbit", 4.33, 191.0),
    ("rabbit", 5.33, 233.0),
    ("cat", 3.0, 152.0),
    ("macaque", 4.2, 207.0),
    ("dog", 6.6, 288.0),
    ("dog", 14.1, 534.0),
    ("dog", 24.8, 875.0),
    ("dog", 23.6, 872.0),
    ("goat", 36.0, 800.0),
    ("chimpanzee", 38.0, 1090.0),
    ("sheep", 46.4, 1254.0),
    ("sheep", 46.8, 1330.0),
    ("woman", 57.2, 1368.0),
    ("woman", 54.8, 1224.0),
    ("woman", 57.9, 1320.0),
    ("cow", 300.0, 4221.0),
    ("cow", 435.0, 8166.0),
    ("cow", 600.0, 7877.0),
    ("heifer", 482.0, 7754.0),
)

_BRAIN_MASS = (
    ("Arctic fox", 3.385, 44.5),
    ("owl monkey", 0.48, 15.5),
    ("mountain beaver", 1.35, 8.1),
    ("cow", 465.0, 423.0),
    ("grey wolf", 36.33, 119.5),
    ("goat", 27.66, 115.0),
    ("roe deer", 14.83, 98.2),
    ("guinea pig", 1.04, 5.5),
    ("vervet", 4.19, 58.0),
    ("chinchilla", 0.425, 6.4),
    ("ground squirrel", 0.101, 4.0),
    ("Arctic ground squirrel", 0.92, 5.7),
    ("African giant pouched rat", 1.0, 6.6),
    ("lesser short-tailed shrew", 0.005, 0.14),
    ("star-nosed mole", 0.06, 1.0),
    ("nine-banded armadillo", 3.5, 10.8),
    ("tree hyrax", 2.0, 12.3),
    ("North American opossum", 1.7, 6.3),
    ("Asian elephant", 2547.0, 4603.0),
    ("big brown bat", 0.023, 0.3),
    ("donkey", 187.1, 419.0),
    ("horse", 521.0, 655.0),
    ("European hedgehog", 0.785, 3.5),
    ("patas monkey", 10.0, 115.0),
    ("cat", 3.3, 25.6),
    ("galago", 0.2, 5.0),
    ("genet", 1.41, 17.5),
    ("giraffe", 529.0, 680.0),
    ("gorilla", 207.0, 406.0),
    ("grey seal", 85.0, 325.0),
    ("rock hyrax a", 0.75, 12.3),
    ("human", 62.0, 1320.0),
    ("African elephant", 6654.0, 5712.0),
    ("water opossum", 3.5, 3.9),
    ("rhesus monkey", 6.8, 179.0),
    ("kangaroo", 35.0, 56.0),
    ("yellow-bellied marmot", 4.05, 17.0),
    ("golden hamster", 0.12, 1.0),
    ("mouse", 0.023, 0.4),
    ("little brown bat", 0.01, 0.25),
    ("slow loris", 1.4, 12.5),
    ("okapi", 250.0, 490.0),
    ("rabbit", 2.5, 12.1),
    ("sheep", 55.5, 175.0),
    ("jaguar", 100.0, 157.0),
    ("chimpanzee", 52.16, 440.0),
    ("baboon", 10.55, 179.5),
    ("desert hedgehog", 0.55, 2.4),
    ("giant armadillo", 60.0, 81.0),
    ("rock hyrax b", 3.6, 21.0),
    ("raccoon", 4.288, 39.2),
    ("rat", 0.28, 1.9),
    ("Eastern American mole", 0.075, 1.2),
    ("mole rat", 0.122, 3.0),
    ("musk shrew", 0.048, 0.33),
    ("pig", 192.0, 180.0),
    ("echidna", 3.0, 25.0),
    ("Brazilian tapir", 160.0, 169.0),
    ("tenrec", 0.9, 2.6),
    ("phalanger", 1.62, 11.4),
    ("tree shrew", 0.104, 2.5),
    ("red fox", 4.235, 50.4),
)
