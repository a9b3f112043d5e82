r"""Differentiable games: each player minimises its own cost over its own parameters.

Notation: $\theta_i$ the parameters of player i, $c_i(\theta_1..\theta_n)$ its cost, $\xi$ the
game's field, $\xi_i = \partial c_i/\partial\theta_i$, $J = \partial\xi/\partial\theta$ the game's
Jacobian, $\eta$ the rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from allometry._core.errors import require

Players = tuple[Tensor, ...]
Cost = Callable[[Players], Tensor]
Update = Callable[["Game", Players, Players | None], tuple[Players, Players | None]]


@final
@dataclass(frozen=True)
class Game:
    """Costs of all players, each a function of all parameters.

    Costs may be vectors over independent games (parameters with a leading axis): the gradient of
    their sum contains all their gradients.

    Args:
        costs: One cost function for each player.
    """

    costs: tuple[Cost, ...]

    def field(self, players: Players, *, differentiable: bool = False) -> Players:
        r"""$\xi$: the gradient of each player's cost in its own parameters."""
        return tuple(
            self.slope(i, players, differentiable=differentiable) for i in range(len(self.costs))
        )

    def slope(self, i: int, players: Players, *, differentiable: bool = False) -> Tensor:
        r"""$\partial c_i / \partial\theta_i$."""
        if not differentiable:
            players = tuple(p.detach().requires_grad_(True) for p in players)
        loss = self.costs[i](players).sum()
        found = torch.autograd.grad(
            loss, players[i], create_graph=differentiable, materialize_grads=True
        )[0]
        return found if differentiable else found.detach()


def _down(players: Players, field: Players, lr: float) -> Players:
    return tuple((p - lr * g).detach() for p, g in zip(players, field, strict=True))


def simultaneous(lr: float) -> Update:
    r"""$\theta \leftarrow \theta - \eta\,\xi(\theta)$."""
    return lambda game, players, memory: (_down(players, game.field(players), lr), memory)


def alternating(lr: float) -> Update:
    """Players update one after another, each with the new parameters of those before it."""

    def update(
        game: Game, players: Players, memory: Players | None
    ) -> tuple[Players, Players | None]:
        for i in range(len(players)):
            moved = (players[i] - lr * game.slope(i, players)).detach()
            players = (*players[:i], moved, *players[i + 1 :])
        return players, memory

    return update


def extragradient(lr: float) -> Update:
    r"""$\theta \leftarrow \theta - \eta\,\xi(\theta - \eta\,\xi(\theta))$.

    References: `korpelevich1976`.
    """

    def update(
        game: Game, players: Players, memory: Players | None
    ) -> tuple[Players, Players | None]:
        ahead = _down(players, game.field(players), lr)
        return _down(players, game.field(ahead), lr), memory

    return update


def optimistic(lr: float) -> Update:
    r"""$\theta \leftarrow \theta - 2\eta\,\xi_t + \eta\,\xi_{t-1}$.

    References: `daskalakis2018` Eq. (6).
    """

    def update(
        game: Game, players: Players, memory: Players | None
    ) -> tuple[Players, Players | None]:
        field = game.field(players)
        before = field if memory is None else memory
        step = tuple(2 * g - h for g, h in zip(field, before, strict=True))
        return _down(players, step, lr), field

    return update


def unrolled(lr: float, k: int, *, leader: int = 0) -> Update:
    """The leader differentiates through `k` steps of the others; they use simultaneous gradients.

    References: `metz2017` Eq. (6) to (9).
    """
    require(k >= 0, "unrolled.k", "be at least 0", k)

    def update(
        game: Game, players: Players, memory: Players | None
    ) -> tuple[Players, Players | None]:
        own = players[leader].detach().requires_grad_(True)
        ahead = tuple(
            own if i == leader else p.detach().requires_grad_(True) for i, p in enumerate(players)
        )
        for _ in range(k):
            field = game.field(ahead, differentiable=True)
            ahead = tuple(
                own if i == leader else p - lr * g
                for i, (p, g) in enumerate(zip(ahead, field, strict=True))
            )
        (slope,) = torch.autograd.grad(game.costs[leader](ahead).sum(), own)
        field = list(game.field(players))
        field[leader] = slope
        return _down(players, tuple(field), lr), memory

    return update


def play(
    game: Game, players: Sequence[Tensor], update: Update, steps: int
) -> tuple[Players, list[Players]]:
    """Parameters after `steps` updates, and the trajectory including the start."""
    require(steps >= 0, "play.steps", "be at least 0", steps)
    here: Players = tuple(p.detach() for p in players)
    path, memory = [here], None
    for _ in range(steps):
        here, memory = update(game, here, memory)
        path.append(here)
    return here, path


def jacobian(game: Game, players: Sequence[Tensor]) -> Float[Tensor, "P P"]:
    r"""$J = \partial\xi/\partial\theta$ over the concatenated parameters of all players."""
    sizes, shapes = [p.numel() for p in players], [p.shape for p in players]

    def field(flat: Tensor) -> Tensor:
        parts = flat.split(sizes)
        own = tuple(p.view(s) for p, s in zip(parts, shapes, strict=True))
        return torch.cat([g.flatten() for g in game.field(own, differentiable=True)])

    at = torch.cat([p.detach().flatten() for p in players])
    found = torch.autograd.functional.jacobian(field, at)
    assert isinstance(found, Tensor)
    return found


@final
@dataclass(frozen=True)
class LocalNash:
    """Properties of a point from the field and its Jacobian.

    Attributes:
        stationary: Every player's gradient is within the tolerance, relative to the curvature.
        nash: Stationary, and no player's own curvature is negative: a local Nash equilibrium.
        strict: Nash, with every own curvature positive.
        attracting: Simultaneous descent with small steps converges to it: every eigenvalue of J
            has a positive real part.
        eigenvalues: Eigenvalues of J.
        curvatures: Smallest eigenvalue of each player's diagonal block of J.
    """

    stationary: bool
    nash: bool
    strict: bool
    attracting: bool
    eigenvalues: Complex[Tensor, " P"]
    curvatures: tuple[float, ...]


def local_nash(game: Game, players: Sequence[Tensor], tolerance: float = 1e-6) -> LocalNash:
    """Whether a point is a local Nash equilibrium, and whether descent converges to it.

    Args:
        game: The costs.
        players: Parameters of each player.
        tolerance: For gradients, divided by the largest entry of the player's rows of J (about the
            distance to the stationary point); for curvatures, relative to those entries. The unit
            of a cost does not matter.

    References: `mescheder2017` section 3; `balduzzi2018`.
    """
    players = tuple(players)
    J = jacobian(game, players)
    stationary, curvatures, bounds, start = True, [], [], 0
    for p, slope in zip(players, game.field(players), strict=True):
        rows = slice(start, start + p.numel())
        block = J[rows, rows]
        bounds.append(tolerance * float(J[rows].abs().max()))
        stationary &= bool(slope.abs().max() <= bounds[-1])
        curvatures.append(float(torch.linalg.eigvalsh((block + block.T) / 2).min()))
        start += p.numel()
    values = torch.linalg.eigvals(J)
    least = list(zip(curvatures, bounds, strict=True))
    return LocalNash(
        stationary=stationary,
        nash=stationary and all(c >= -b for c, b in least),
        strict=stationary and all(c > b for c, b in least),
        attracting=stationary and bool((values.real > max(bounds)).all()),
        eigenvalues=values,
        curvatures=tuple(curvatures),
    )
