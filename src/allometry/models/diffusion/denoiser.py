r"""Diffusion models: a network that separates data and noise at every angle of a Gaussian path.

Shapes: n points, c size of the context, "*event" shape of a point.
"""

import math
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.diffusion.schedules import EDM, Schedule
from allometry.models.flows.ode_solver import State
from allometry.models.flows.ode_trace import (
    Directions,
    carry,
    exact_directions,
    random_directions,
    solve,
)
from allometry.models.flows.transform import Context, Event, LogDet, Transform

Angles = Float[Tensor, " n"]

PREDICTIONS = ("angle", "noise", "data", "velocity")
"""What a network may predict; see `Diffusion`."""

OFFSET = 1e-3
"""Noise-to-data ratio below which levels are nearly linear in the angle."""

LONGEST = 1.5
"""Longest step of the solver in noise levels: the velocity is nearly 0 at both ends."""

EXACT = 16
"""Largest dimension for which the trace of a likelihood is exact by default."""


@final
class Diffusion(Transform):
    r"""A network that separates data and noise: $y_\phi = \cos\phi\,x_0 + \sin\phi\,\epsilon$.

    The network F sees $y_\phi$, which has unit variance if the data have, and a quarter of the
    noise level $\ell \approx \log \tan \phi$ (see `noise_level`). Its output is one of

    - `"angle"`: $\cos\phi\,\epsilon - \sin\phi\,x_0 = dy / d\phi$. This is the preconditioning
      of EDM: $D = c_{skip} x + c_{out} F(c_{in} x)$ with $\sigma = \tan\phi$, data of unit
      variance and the opposite sign of F. Also known as v-prediction;
    - `"noise"`: $\epsilon$, as in DDPM;
    - `"data"`: $x_0$;
    - `"velocity"`: $\epsilon - x_0$, as in flow matching.

    The probability-flow equation $dy / d\phi = \cos\phi\,\hat\epsilon - \sin\phi\,\hat x_0$ has
    the same distributions at every angle as the noising process. So a diffusion model is a
    continuous flow, and this class is a flow's last transform: `forward` goes from data to noise
    with the log-determinant, and `inverse` draws samples.

    Differs from the papers: data of other than unit variance are standardised by an earlier
    transform (`ActNorm`, `Marginal`), and the density is that of $y$ at the smallest angle, so it
    is normalised.

    Args:
        network: `network(y, c, context)`, with c of shape (n,).
        schedule: Angles of training, and of samplers.
        prediction: What the network predicts.
        tolerance: Of the adaptive solver of likelihoods and samples, per unit of the noise level.
        steps: Equal steps of the solver instead of adaptive ones.
        probes: Random directions that estimate the trace of a likelihood. 0 for the exact trace;
            default: exact up to 16 dimensions, else 4.

    Example:
        >>> import torch
        >>> from allometry.models import diffusion, flows
        >>> model = diffusion.points(2, width=16)
        >>> model.log_prob(torch.zeros(3, 2)).shape, model.sample(5).shape
        (torch.Size([3]), torch.Size([5, 2]))

    References: `song2021score` Eq. (13) and section 4.3; `karras2022` Eq. (7); `salimans2022`
        Appendix D; `lipman2023`; `ho2022guidance`.
    """

    def __init__(
        self,
        network: nn.Module,
        schedule: Schedule | None = None,
        prediction: str = "angle",
        tolerance: float = 1e-3,
        steps: int | None = None,
        probes: int | None = None,
    ) -> None:
        super().__init__()
        known = f"be one of {', '.join(PREDICTIONS)}"
        require(prediction in PREDICTIONS, "Diffusion.prediction", known, prediction)
        require(tolerance > 0, "Diffusion.tolerance", "be positive", tolerance)
        require(steps is None or steps >= 1, "Diffusion.steps", "be at least 1", steps)
        require(probes is None or probes >= 0, "Diffusion.probes", "be at least 0", probes)
        self.network = network
        self.schedule = EDM() if schedule is None else schedule
        self.prediction, self.tolerance, self.steps = prediction, tolerance, steps
        self.probes = probes
        self.low, self.high = self.schedule.ends()
        singular = prediction == "noise" and self.high > math.pi / 2 - 1e-6
        fix = "Predict velocity, or end the schedule before pure noise."
        require(not singular, "Diffusion.prediction", "not be noise at pure noise", "noise", fix)

    def predict(
        self, y: Event, angle: Angles, context: Context = None, guidance: float = 1.0
    ) -> tuple[Event, Event]:
        """The expected data and noise of y.

        Args:
            y: Points on the path.
            angle: Their angles.
            context: Values to condition on.
            guidance: Factor of the context's effect on the prediction; 1 samples the conditional
                distribution, more gives samples that are more typical of the context.
        """
        sine, cosine = (_wide(part, y) for part in (torch.sin(angle), torch.cos(angle)))
        out = self._output(y, angle, context, guidance)
        if self.prediction == "angle":
            return cosine * y - sine * out, sine * y + cosine * out
        if self.prediction == "noise":
            return (y - sine * out) / cosine, out
        if self.prediction == "velocity":
            data = (y - sine * out) / (sine + cosine)
            return data, data + out
        return out, (y - cosine * out) / sine

    def _output(self, y: Event, angle: Angles, context: Context, guidance: float) -> Event:
        level = noise_level(angle) / 4
        out = self.network(y, level, context)
        if guidance == 1.0 or context is None:
            return out
        free = self.network(y, level, None)
        return free + guidance * (out - free)

    def score(self, y: Event, angle: Angles, context: Context = None) -> Event:
        r"""$\nabla \log p_\phi(y) = -\hat\epsilon / \sin\phi$."""
        return -self.predict(y, angle, context)[1] / _wide(torch.sin(angle), y)

    def turn(
        self, y: Event, angle: Angles, context: Context = None, guidance: float = 1.0
    ) -> Event:
        r"""The velocity $dy / d\phi$ of the probability-flow equation."""
        if self.prediction == "angle":
            return self._output(y, angle, context, guidance)
        data, noise = self.predict(y, angle, context, guidance)
        return _wide(torch.cos(angle), y) * noise - _wide(torch.sin(angle), y) * data

    def target(self, data: Event, noise: Event, angle: Angles) -> Event:
        """What the network should predict for a pair of data and noise."""
        if self.prediction == "angle":
            cosine, sine = _wide(torch.cos(angle), data), _wide(torch.sin(angle), data)
            return cosine * noise - sine * data
        return {"noise": noise, "data": data, "velocity": noise - data}[self.prediction]

    def loss(
        self,
        data: Event,
        u: Angles,
        noise: Event,
        context: Context = None,
        *,
        stable: bool = False,
    ) -> Angles:
        r"""Squared error of each row's prediction, a mean over its entries.

        Args:
            data: $x_0$.
            u: Uniform numbers in (0, 1), which choose the angles.
            noise: $\epsilon$: standard normal, or coupled with the data (see `optimal_pairs`).
            context: Values to condition on.
            stable: Use the targets of `stable_pairs`; without context and with independent noise.
        """
        fix = "Rows with different contexts have different distributions."
        alone = not stable or context is None
        require(alone, "Diffusion.loss.context", "be left out if stable", "a context", fix)
        angle = self.schedule.angle(self.schedule.training_time(u))
        sine, cosine = torch.sin(angle), torch.cos(angle)
        s, c = _wide(sine, data), _wide(cosine, data)
        out = self.network(c * data + s * noise, _level(sine, cosine) / 4, context)
        if stable:
            data, noise = stable_pairs(data, noise, sine, cosine)
        wanted = c * noise - s * data if self.prediction == "angle" else None
        wanted = self.target(data, noise, angle) if wanted is None else wanted
        return (out - wanted).square().flatten(1).mean(1)

    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """From data to noise along the probability flow."""

        def field(level: float, y: Event, directions: Directions) -> tuple[Event, Directions]:
            def velocity(y: Tensor) -> Tensor:
                return self._climb(level, y, context)

            if len(directions) == 1:
                # Backward mode is faster for one direction, and e^T J e = (J^T e)^T e.
                made: Any = torch.func.vjp(velocity, y)
                speed, back = made
                return speed, back(directions[0])[0][None]

            def tangent(direction: Tensor) -> Any:
                return torch.func.jvp(velocity, (y,), (direction,))

            shared: Any = (None, 0)  # the velocity does not depend on the direction
            return torch.func.vmap(tangent, out_dims=shared)(directions)

        how = {"tolerance": self.tolerance, "steps": self.steps, "longest": LONGEST}
        return carry(field, x, *self._levels(), self._directions(x), **how)

    def _levels(self) -> tuple[float, float]:
        ends = torch.tensor([self.low, self.high], dtype=torch.float64, device="cpu")
        low, high = noise_level(ends).tolist()
        return low, high

    def _climb(self, level: float, y: Event, context: Context, guidance: float = 1.0) -> Event:
        """The velocity per unit of the noise level, in which solutions are smooth at both ends."""
        angle, rate = _angle_at(level)
        return rate * self.turn(y, y.new_full((len(y),), angle), context, guidance)

    def _directions(self, x: Event) -> Directions:
        probes = self.probes
        if probes is None:
            probes = 0 if x[0].numel() <= EXACT else 4
        # The same directions at every call and on every device: a likelihood is a function of
        # its arguments.
        rng = torch.Generator().manual_seed(0)
        return random_directions(x, probes, rng) if probes else exact_directions(x)

    def inverse(self, z: Event, context: Context = None, guidance: float = 1.0) -> Event:
        """From noise to data along the probability flow."""

        def slope(level: float, state: State) -> State:
            return (self._climb(level, state[0], context, guidance),)

        low, high = self._levels()
        return solve(slope, (z,), high, low, self.tolerance, self.steps, LONGEST)[0]


def stable_pairs(data: Event, noise: Event, sine: Angles, cosine: Angles) -> tuple[Event, Event]:
    r"""Means of $x_0$ and $\epsilon$ given each row's y, if the batch were all data.

    The pair that made y is one draw of what may have made it. The mean over the rows of the batch,
    $\hat x_0 = \sum_j w_j x_j$ with $w_j \propto \exp(-\|y - \cos\phi\,x_j\|^2 / 2 \sin^2\phi)$,
    has less variance as a target, and little bias that falls with the size of the batch. In few
    dimensions many rows have weight; in many dimensions only the pair itself.

    Example:
        >>> import torch
        >>> from allometry.models import diffusion
        >>> x, noise, angle = torch.randn(64, 2), torch.randn(64, 2), torch.full((64,), 0.7)
        >>> data, mean = diffusion.stable_pairs(x, noise, torch.sin(angle), torch.cos(angle))
        >>> data.shape
        torch.Size([64, 2])

    References: `xu2023stable`.
    """
    s, c = _wide(sine, data).clamp(min=1e-3), _wide(cosine, data)
    rows = data.flatten(1)
    # From y to each row at the same angle, in units of the noise.
    apart = noise.flatten(1)[:, None] + (c / s).flatten(1)[:, None] * (rows[:, None] - rows)
    mean = (torch.softmax(-0.5 * apart.square().sum(-1), 1) @ rows).view(data.shape)
    return mean, noise + c / s * (data - mean)


def noise_level(angle: Angles) -> Angles:
    r"""The logarithm of $\tan\phi$, made finite for angles from 0 to $\pi / 2$.

    $\ell = \log ((\sin\phi + \delta \cos\phi) / (\cos\phi + \delta \sin\phi))$ with
    $\delta = 0.001$.
    """
    return _level(torch.sin(angle), torch.cos(angle))


def _level(sine: Angles, cosine: Angles) -> Angles:
    return torch.log((sine + OFFSET * cosine) / (cosine + OFFSET * sine))


def _angle_at(level: float) -> tuple[float, float]:
    """The angle of a noise level, and its derivative."""
    ratio = math.exp(level)
    sine, cosine = ratio - OFFSET, 1 - OFFSET * ratio
    return math.atan2(sine, cosine), ratio * (1 - OFFSET**2) / (sine**2 + cosine**2)


def _wide(values: Angles, like: Tensor) -> Tensor:
    """One value per row, shaped to multiply rows of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))
