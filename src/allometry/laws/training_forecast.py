r"""Forecast the final loss of a training in progress from its curve so far.

The model is a power law in training progress, fitted to the recent part of the curve:
$\log L = a + s\,\log(x/x_{now}) - B\,h$. Without a schedule, x is the step and $h = 0$. With a
schedule, x is the sum of the learning rates so far and h the decrease of the rate from its peak,
as in laws for annealed trainings. No irreducible loss is fitted: a quarter of a curve does not
identify it. Constants correct the average error of such extrapolations; they and the quantiles of
the intervals come from public training logs (`bench/watch.py`).

Letters: n logged points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.laws.forecast_constants import KNOWN, LEVELS, UNKNOWN, Constants

MOST_POINTS = 400
"""Largest number of points of a curve; more are averaged in intervals of equal length."""

SMALL = 1e-5
"""Slopes and noise below this are equal to it in the scale of the error."""

GRID = 1024
"""Points at which a schedule is integrated."""

NAMES = ("constant", "linear", "cosine", "wsd")
"""Schedules by name."""

Schedule = str | Callable[[float], float] | Sequence[float] | ndarray | None


@final
@dataclass(frozen=True)
class Trend:
    """The recent part of a curve in training progress.

    Args:
        level: Log loss now, smoothed.
        slope: Slope of the log loss over about the last third of the progress.
        recent: Slope over about the last eighth.
        backtest: Slope error of the same extrapolation from half and from three quarters.
        noise: Standard deviation of the log loss around its trend.
        slope_se: Standard error of `slope`.
        remaining: Log of the final progress over the progress now.
        gain: Decrease of the log loss that the rest of the schedule's decay gives.
        points: Number of points.
    """

    level: float
    slope: float
    recent: float
    backtest: float
    noise: float
    slope_se: float
    remaining: float
    gain: float
    points: int

    @property
    def regular(self) -> bool:
        """Whether the trend is clear against the noise."""
        return abs(self.slope) > 4 * self.slope_se + 1e-3


def forecast(
    steps: Any, losses: Any, total_steps: float, schedule: Schedule = None, level: float = 0.95
) -> Estimate:
    """The final loss of a training in progress, with its interval.

    The interval includes the noise of one logged value. It was calibrated on public training logs
    from a quarter of the training on; before that it is an extrapolation.

    Args:
        steps: Steps of the logged losses, or tokens, or any other measure of progress.
        losses: Losses at these steps, above zero, of one kind: validation or training.
        total_steps: The last step, in the same unit.
        schedule: The learning rate: `"constant"`, `"linear"`, `"cosine"`, `"wsd"` (linear decay
            over the last fifth; `"wsd:0.4"` for another part), each with an optional end such as
            `"cosine:0.1"` for `linear` and `cosine`; a function of the step; or rates at equally
            spaced steps from 0 to `total_steps`. Default: not known.
        level: Nominal coverage, 0.95 or 0.99.

    Example:
        >>> import numpy as np
        >>> step = np.arange(100, 5001, 100)
        >>> f = forecast(step, 2 + 30 * step**-0.5, total_steps=20_000)
        >>> f.covers(2 + 30 * 20_000**-0.5)
        True

    Raises:
        InputError: Fewer than two points after step 0, or a loss that is not above zero.
    """
    require(level in LEVELS, "forecast.level", f"be one of {list(LEVELS)}", level)
    at, loss = points(steps, losses, total_steps)
    if at[-1] >= total_steps:
        return Estimate(float(loss[-1]), exact=True, n=len(at), method="training has ended")
    trend = trend_of(at, loss, float(total_steps), schedule)
    constants = UNKNOWN if schedule is None else KNOWN
    value, scale = predicted(trend, constants)
    low, high = constants.quantiles[trend.regular][level]
    return Estimate(
        float(np.exp(value)),
        lo=float(np.exp(value + low * scale)),
        hi=float(np.exp(value + high * scale)),
        level=level,
        n=len(at),
        method="power law in " + ("steps" if schedule is None else "the sum of learning rates"),
    )


def points(
    steps: Any, losses: Any, total_steps: float
) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    """Checked points with rising steps above zero; a repeated step has its last loss."""
    at, loss = np.asarray(steps, float).ravel(), np.asarray(losses, float).ravel()
    same = f"be as many as the steps, {len(at)}"
    require(len(at) == len(loss), "forecast.losses", same, len(loss))
    require(bool(np.isfinite(at).all()), "forecast.steps", "be finite", steps)
    bad = loss[~(np.isfinite(loss) & (loss > 0))]
    fix = "A training whose loss is not finite has diverged."
    require(len(bad) == 0, "forecast.losses", "be finite and above 0", bad[:1].tolist(), fix)
    order = np.argsort(at, kind="stable")
    at, loss = at[order], loss[order]
    keep = np.append(np.diff(at) > 0, True)[: len(at)] & (at > 0)
    at, loss = at[keep], loss[keep]
    require(len(at) >= 2, "forecast.steps", "have at least 2 different ones above 0", len(at))
    finite = bool(np.isfinite(total_steps) and total_steps >= at[-1])
    last = f"be finite and at least the last step, {at[-1]:g}"
    require(finite, "forecast.total_steps", last, total_steps)
    return _thinned(at, loss)


def _thinned(
    at: Float[ndarray, " n"], loss: Float[ndarray, " n"]
) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    if len(at) <= MOST_POINTS:
        return at, loss
    # The last interval ends at the last point, so that the curve keeps its end.
    width = (at[-1] - at[0]) / MOST_POINTS
    group = np.ceil((at - at[0]) / width).astype(int)
    _, first, count = np.unique(group, return_index=True, return_counts=True)
    mean = np.exp(np.add.reduceat(np.log(loss), first) / count)
    return np.add.reduceat(at, first) / count, mean


def trend_of(
    at: Float[ndarray, " n"], loss: Float[ndarray, " n"], total: float, schedule: Schedule
) -> Trend:
    """The trend of a curve at its last point; see `Trend`."""
    y = np.log(loss)
    if schedule is None:
        u, remaining, fall, last = np.log(at / at[-1]), np.log(total / at[-1]), 0.0 * at, 0.0
    else:
        u, remaining, fall, last = _progress(at, total, schedule)
    B = _decay_gain(u, y, fall) if np.ptp(fall) + abs(last - fall[-1]) > 0 else 0.0
    y = y + B * fall
    slope, level, se, rest = _slope(u, y, 4.0)
    recent, level8, _, _ = _slope(u, y, 8.0)
    noise = np.hypot(_local_noise(at, y), rest) if len(y) > 2 else 0.05 * abs(slope)
    backtests = [_backtest(u, y, level8, share) for share in (0.5, 0.75)]
    return Trend(
        level=float(2 * level8 - level - B * fall[-1]),
        slope=slope,
        recent=recent,
        backtest=float(np.sqrt(np.mean(np.square(backtests)))),
        noise=float(noise),
        slope_se=se,
        remaining=float(remaining),
        gain=float(B * (last - fall[-1])),
        points=len(y),
    )


def predicted(trend: Trend, constants: Constants) -> tuple[float, float]:
    """The expected final log loss, and the scale of its error."""
    r = trend.remaining
    a, b, c, d = constants.slope
    drop = (trend.slope * (a + b * r) + trend.recent * (c + d * r)) * r
    size = (abs(trend.slope) + abs(trend.recent)) / 2
    error = np.hypot(trend.backtest / np.sqrt(2), 0.1 * size)
    factor, progress, past, random = constants.scale
    logs = np.log(np.array([size, error, trend.noise]) + SMALL)
    weights = np.array([1 - past - random, past, random])
    model = np.exp(factor + progress * np.log(r) + weights @ logs)
    scale = np.sqrt(model**2 + (constants.decay * trend.gain) ** 2 + trend.noise**2)
    return float(trend.level + drop - trend.gain), float(max(scale, 1e-7))


def _slope(
    u: Float[ndarray, " n"], y: Float[ndarray, " n"], power: float
) -> tuple[float, float, float, float]:
    """Weighted line at u = 0 with weights exp(power u): slope, level, its error, residual."""
    w = np.exp(power * u)
    w = w / w.sum()
    um, ym = w @ u, w @ y
    spread = w @ (u - um) ** 2 + 1e-9
    slope = float(w @ ((u - um) * (y - ym)) / spread)
    rest = y - ym - slope * (u - um)
    sd = float(np.sqrt(w @ rest**2 * len(y) / max(len(y) - 2, 1)))
    se = sd * float(np.sqrt(w**2 @ (u - um) ** 2) / spread)
    return slope, float(ym - slope * um), se, sd


def _local_noise(at: Float[ndarray, " n"], y: Float[ndarray, " n"]) -> float:
    """Noise from the distance of the last points to the line between their neighbours."""
    share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    distance = y[1:-1] - (y[:-2] * (1 - share) + y[2:] * share)
    return float(np.median(np.abs(distance[-12:])) / (0.6745 * np.sqrt(1.5)))


def _backtest(
    u: Float[ndarray, " n"], y: Float[ndarray, " n"], level: float, share: float
) -> float:
    """Error of extrapolating from a share of the progress to now, per unit of log progress."""
    before = u <= np.log(share) + 1e-9
    if before.sum() < 2:
        return 0.0
    start = u[before][-1]
    slope, at, _, _ = _slope(u[before] - start, y[before], 4.0)
    return float((level - at + slope * start) / -start)


def _decay_gain(
    u: Float[ndarray, " n"], y: Float[ndarray, " n"], fall: Float[ndarray, " n"]
) -> float:
    """Decrease of the log loss by a decay of the rate to zero: data and prior, by least squares.

    The prior is that of `KNOWN`; before the decay starts, it is the answer.
    """
    mean, sd = KNOWN.prior
    w = np.exp(4 * u)
    w = w / w.sum() * len(w)
    X = np.stack([np.ones_like(u), u, -fall], 1)
    line = _slope(u, y, 4.0)[3]
    noise = max(line, 4e-3)
    precision = X.T @ (w[:, None] * X) / noise**2
    precision[2, 2] += 1 / sd**2
    right = X.T @ (w * y) / noise**2
    right[2] += mean / sd**2
    return float(np.clip(np.linalg.lstsq(precision, right, rcond=None)[0][2], 0.0, 0.5))


def _progress(
    at: Float[ndarray, " n"], total: float, schedule: Schedule
) -> tuple[Float[ndarray, " n"], float, Float[ndarray, " n"], float]:
    """Log progress by the sum of rates, what remains of it, and the rate's decrease from its peak.

    The loss responds to a decrease of the rate with a delay; the decrease is averaged over the
    last part of the progress.
    """
    grid = np.linspace(0.0, total, GRID + 1)
    rate = rates(schedule, grid, total)
    peak = float(rate.max())
    relative = rate / peak
    middle = (relative[1:] + relative[:-1]) / 2
    spent = np.append(0.0, np.cumsum(middle)) / GRID
    spent = np.maximum(spent, 1e-9)
    after_peak = np.arange(GRID + 1) >= int(np.argmax(relative))
    fall = _delayed(np.where(after_peak, 1 - relative, 0.0), np.sqrt(middle) / GRID)
    now = np.interp(at, grid, spent)
    remaining = float(np.log(spent[-1] / now[-1]))
    return np.log(now / now[-1]), remaining, np.interp(at, grid, fall), float(fall[-1])


def _delayed(
    fall: Float[ndarray, " n"], progress: Float[ndarray, " steps"]
) -> Float[ndarray, " n"]:
    """The decrease that has taken effect: an exponential lag, slower at low rates."""
    keep = np.exp(-progress / KNOWN.lag)
    out = np.empty_like(fall)
    out[0] = fall[0]
    for i, share in enumerate(keep):
        out[i + 1] = share * out[i] + (1 - share) * fall[i + 1]
    return out


def rates(schedule: Schedule, grid: Float[ndarray, " n"], total: float) -> Float[ndarray, " n"]:
    """The learning rate at the steps `grid` up to `total`, in any unit.

    Raises:
        InputError: An unknown name, or rates that are not finite, negative or all zero.
    """
    if isinstance(schedule, str):
        return _named(schedule, grid / total)
    try:
        if callable(schedule):
            rate = np.array([float(schedule(float(step))) for step in grid])
        else:
            given = np.asarray(schedule, float).ravel()
            require(len(given) >= 2, "schedule", "have at least 2 rates", len(given))
            rate = np.interp(grid / total, np.linspace(0.0, 1.0, len(given)), given)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"schedule must give one number per step; got {error}.") from error
    good = bool(np.isfinite(rate).all() and (rate >= 0).all() and rate.max() > 0)
    require(good, "schedule", "give finite rates, none below 0, not all 0", "others")
    return rate


def _named(schedule: str, x: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    """A schedule by name at the shares `x` of the training."""
    name, colon, text = schedule.partition(":")
    known = f"be one of {', '.join(NAMES)}, or a function, or rates"
    require(name in NAMES, "schedule", known, schedule)
    try:
        number = float(text) if colon else 0.2 if name == "wsd" else 0.0
    except ValueError:
        number = np.nan
    valid = 0 < number <= 1 if name == "wsd" else 0 <= number < 1
    require(bool(valid), "schedule", "have a number from 0 to 1 after the colon", schedule)
    if name == "constant":
        return np.ones_like(x)
    if name == "wsd":
        return np.minimum(1.0, (1 - x) / number)
    shape = 1 - x if name == "linear" else (1 + np.cos(np.pi * x)) / 2
    return number + (1 - number) * shape
