"""Polynomial networks with layers of chosen degrees, by name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from allometry._core.spec import Spec
from allometry.models.polynomial import PolynomialNetwork


@final
@dataclass(frozen=True)
class Stack:
    """Layers of chosen degrees.

    Args:
        degrees: One for each layer; a fractional one makes a mixed layer.
        width: Of every layer.
        fractional: Signed powers instead of mixed layers.
        tied: Forms of a layer share their weights.
    """

    degrees: Sequence[float]
    width: int = 8
    fractional: bool = False
    tied: bool = False

    @property
    def words(self) -> str:
        """Degrees and width, for a table."""
        letters = ("e" if d == math.e else f"{d:g}" for d in self.degrees)
        more = ", signed power" if self.fractional else ", tied" if self.tied else ""
        return f"{'-'.join(letters)}, width {self.width}{more}"

    @property
    def spec(self) -> Spec:
        """The spec that makes this stack in another process."""
        more = {"fractional": self.fractional, "tied": self.tied}
        return Spec(Stack, degrees=list(self.degrees), width=self.width, **more)

    def network(self, inputs: int, norm: bool, rng: torch.Generator | None = None) -> nn.Module:
        """The untrained network."""
        return PolynomialNetwork(
            *(inputs, self.width, self.degrees),
            norm=norm,
            fractional=self.fractional,
            tied=self.tied,
            rng=rng,
        )

    def size(self, inputs: int) -> int:
        """Parameters."""
        return sum(p.numel() for p in self.network(inputs, False).parameters())


STACKS = {
    "T_2": Stack((2,) * 6),
    "T_3": Stack((3,) * 4),
    "T_4": Stack((4,) * 3),
    "T_e": Stack((math.e,) * 4),
    "T_e wide": Stack((math.e,) * 4, width=9),
    "T_e power": Stack((math.e,) * 4, fractional=True),
    "T_33222": Stack((3, 3, 2, 2, 2)),
}
"""Twelve linear forms of width 8, 873 parameters. T_e can't meet this budget exactly and appears
on both sides of it: 801 parameters at width 8 and 946 at width 9."""

SMALL = {
    "T_2": Stack((2,) * 3, width=1),
    "T_3": Stack((3,) * 2, width=1),
    "T_2 wide": Stack((2,) * 3, width=2),
    "T_3 wide": Stack((3,) * 2, width=2),
    "half cubic": Stack((2.5,) * 2, width=2),
    "tied cubes": Stack((3,) * 2, width=3, tied=True),
}
"""Six linear forms; and two counterexamples that have degree 9 at other costs."""
