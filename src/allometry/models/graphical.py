"""Small directed graphical models: factors as functions or networks, with plate diagrams.

Shapes: n draws.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from allometry._core.errors import require

Factor = Callable[..., Distribution]


@final
@dataclass(frozen=True)
class Node:
    """One variable and its conditional distribution.

    Args:
        name: Name of the variable.
        factor: Maps the values of its parents, by name, to its conditional distribution. Without
            parents it is called without arguments, and its distribution is repeated for every
            draw.
        parents: Names of the parents.
        plate: Index it is repeated over (`"N"`); empty for a single variable.
        observed: Drawn shaded.
    """

    name: str
    factor: Factor
    parents: tuple[str, ...] = ()
    plate: str = ""
    observed: bool = False


@final
class Directed:
    r"""$p(x_1, \dots, x_m) = \prod_i p(x_i \mid \mathrm{pa}_i)$.

    Args:
        nodes: In any order; a node's parents must be among them, and there must be no cycle.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> from allometry.models import Directed, Node
        >>> z = Node("z", lambda: Normal(torch.zeros(2), 1.0), plate="N")
        >>> x = Node("x", lambda z: Normal(z.sum(-1, keepdim=True), 0.5), ("z",), "N", True)
        >>> {k: tuple(v.shape) for k, v in Directed([z, x]).sample(5).items()}
        {'z': (5, 2), 'x': (5, 1)}

    References: `koller2009` chapter 3.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        require(len(set(names)) == len(names), "Directed.nodes", "have distinct names", names)
        missing = {p for node in nodes for p in node.parents} - set(names)
        require(not missing, "Directed.nodes", "include every parent", sorted(missing))
        self.nodes = self._sorted(list(nodes))

    @staticmethod
    def _sorted(nodes: list[Node]) -> list[Node]:
        """Parents before children."""
        done: list[Node] = []
        while nodes:
            known = {node.name for node in done}
            ready = [node for node in nodes if set(node.parents) <= known]
            names = [node.name for node in nodes]
            require(len(ready) > 0, "Directed.nodes", "have no cycle", names)
            done += ready
            nodes = [node for node in nodes if node not in ready]
        return done

    def _conditional(self, node: Node, values: Mapping[str, Tensor], n: int) -> Distribution:
        distribution = node.factor(**{p: values[p] for p in node.parents})
        if not node.parents:
            shape = distribution.batch_shape
            distribution = distribution.expand(torch.Size((n, *shape)))
        return distribution

    @torch.no_grad()
    def sample(
        self, n: int, given: Mapping[str, Tensor] | None = None, seed: int = 0
    ) -> dict[str, Tensor]:
        """Ancestral sampling: every variable after its parents.

        Args:
            n: Number of draws.
            given: Values of an intervention, with n rows.
            seed: Seed of the draws; torch's global random state is unchanged.
        """
        require(n >= 1, "sample.n", "be at least 1", n)
        values: dict[str, Tensor] = dict(given or {})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for node in self.nodes:
                if node.name not in values:
                    values[node.name] = self._conditional(node, values, n).sample()
        return {node.name: values[node.name] for node in self.nodes}

    def log_prob(self, values: Mapping[str, Tensor]) -> Float[Tensor, " n"]:
        """The log of the joint density of n rows of values."""
        total: Any = 0.0
        for node in self.nodes:
            x = values[node.name]
            part = self._conditional(node, values, len(x)).log_prob(x)
            total = total + part.flatten(1).sum(1) if part.ndim > 1 else total + part
        return total

    def diagram(self, scale: int = 70) -> str:
        """The plate diagram as SVG; observed variables are shaded."""
        level: dict[str, int] = {}
        for node in self.nodes:
            level[node.name] = 1 + max((level[p] for p in node.parents), default=-1)
        places: dict[str, tuple[float, float]] = {}
        for depth in range(max(level.values()) + 1):
            row = [node.name for node in self.nodes if level[node.name] == depth]
            for i, name in enumerate(row):
                places[name] = (i + 1.0) * scale * 1.3, (depth + 0.8) * scale * 1.3
        r = 0.3 * scale
        parts = [_plate(self.nodes, plate, places, r) for plate in self._plates()]
        for node in self.nodes:
            parts += [_arrow(places[p], places[node.name], r) for p in node.parents]
        for node in self.nodes:
            x, y = places[node.name]
            fill = "#d8d8d8" if node.observed else "#ffffff"
            parts.append(
                f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{r:.0f}" fill="{fill}" stroke="#222"/>'
                f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" font-family="serif" '
                f'font-style="italic" font-size="16">{escape(node.name)}</text>'
            )
        width = max(x for x, _ in places.values()) + scale
        height = max(y for _, y in places.values()) + scale
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">'
            f"{''.join(parts)}</svg>"
        )

    def _plates(self) -> list[str]:
        return sorted({node.plate for node in self.nodes if node.plate})


def _plate(
    nodes: Sequence[Node], plate: str, places: Mapping[str, tuple[float, float]], r: float
) -> str:
    inside = [places[node.name] for node in nodes if node.plate == plate]
    left, top = (min(p[i] for p in inside) - 1.6 * r for i in (0, 1))
    right, bottom = (max(p[i] for p in inside) + 1.6 * r for i in (0, 1))
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" '
        f'height="{bottom - top + 12:.0f}" rx="6" fill="none" stroke="#888"/>'
        f'<text x="{right - 6:.0f}" y="{bottom + 7:.0f}" text-anchor="end" font-family="serif" '
        f'font-size="12">{escape(plate)}</text>'
    )


def _arrow(a: tuple[float, float], b: tuple[float, float], r: float) -> str:
    length = math.dist(a, b)
    u = ((b[0] - a[0]) / length, (b[1] - a[1]) / length)
    start, end = ((a[0] + r * u[0], a[1] + r * u[1]), (b[0] - r * u[0], b[1] - r * u[1]))
    wings = []
    for side in (1, -1):
        x = end[0] - 9 * u[0] + side * 4 * u[1]
        y = end[1] - 9 * u[1] - side * 4 * u[0]
        wings.append(f"{x:.1f},{y:.1f}")
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="#222"/><polygon points="{end[0]:.1f},{end[1]:.1f} {" ".join(wings)}" '
        'fill="#222"/>'
    )
