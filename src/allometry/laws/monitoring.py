"""Watch a training: forecast, alarm when the curve leaves its band, and when stopping is safe."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.laws.training_forecast import Schedule, forecast

BAND_SHARE = 0.9
"""The band at the last point is a forecast from the points up to this share of the progress."""

RISE_SHARE = 0.6
"""A loss above where it was at this share is compared with a forecast from there too.

The band has followed a jump that is older than it.
"""

ALARM_LEVEL = 0.99
"""Nominal coverage of the band."""

STOP_LEVEL = 0.99
"""Nominal coverage of the interval that decides on stopping."""

MIN_POINTS = 4
"""Points before which there is no alarm and no stop."""


@final
@dataclass(frozen=True)
class TrainingState:
    """What is known about a training in progress.

    Args:
        step: Of the last logged loss.
        total_steps: Of the whole training.
        loss: The last one.
        final: Forecast of the final loss; `None` before two points are logged.
        band: Interval for the last loss, forecast from the earlier part of the curve.
        alarm: Why the curve is suspicious, as a sentence; `None` otherwise.
        stop: Whether the forecast excludes the loss to beat.
        reason: A sentence on `stop`.
    """

    step: float
    total_steps: float
    loss: float
    final: Estimate | None = None
    band: Estimate | None = None
    alarm: str | None = None
    stop: bool = False
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The state as plain values; a loss that is not finite is `None`."""
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": self.loss if np.isfinite(self.loss) else None,
            "final": None if self.final is None else self.final.to_dict(),
            "band": None if self.band is None else self.band.to_dict(),
            "alarm": self.alarm,
            "stop": self.stop,
            "reason": self.reason,
        }


def watch(
    steps: Any,
    losses: Any,
    total_steps: float,
    schedule: Schedule = None,
    *,
    beat: float | None = None,
) -> TrainingState:
    """The state of a training: forecast, alarm, and whether it can still beat a loss.

    Stopping is safe if the 99 % interval of the final loss lies above `beat`. The level is above
    95 % because a training is looked at many times.

    Args:
        steps: As for `forecast`.
        losses: As for `forecast`, but a loss that is not finite gives an alarm.
        total_steps: As for `forecast`.
        schedule: As for `forecast`.
        beat: The final loss to beat, such as that of the best training so far.
    """
    at, loss = np.asarray(steps, float).ravel(), np.asarray(losses, float).ravel()
    require(len(at) > 0, "watch.steps", "have at least one step", 0)
    require(len(at) == len(loss), "watch.losses", f"be as many as the steps, {len(at)}", len(loss))
    now = int(np.argmax(at))
    last, value = float(at[now]), float(loss[now])
    if not np.isfinite(loss).all():
        first = at[~np.isfinite(loss)].min()
        text = f"The loss is not finite since step {first:g}: the training has diverged."
        return TrainingState(last, total_steps, value, None, None, text, True, text)
    if len(np.unique(at[at > 0])) < 2:
        return TrainingState(last, total_steps, value, reason="A forecast needs two steps.")
    final = forecast(at, loss, total_steps, schedule)
    band, alarm = _band(at, loss, value, last, total_steps, schedule)
    stop, reason = _stop(at, loss, total_steps, schedule, beat)
    return TrainingState(last, total_steps, value, final, band, alarm, stop, reason)


def _band(
    at: Any, loss: Any, value: float, last: float, total: float, schedule: Schedule
) -> tuple[Estimate | None, str | None]:
    """The band at the last step, and an alarm if the loss is outside of one."""
    known = None if schedule is None else until(schedule, last, total)
    bands = []
    for share in (BAND_SHARE, RISE_SHARE):
        earlier = (at <= share * last) & (at > 0)
        if len(np.unique(at[earlier])) < MIN_POINTS:
            continue
        if share == BAND_SHARE or value > loss[earlier][np.argmax(at[earlier])]:
            bands.append(forecast(at[earlier], loss[earlier], last, known, level=ALARM_LEVEL))
    outside = next((band for band in bands if not band.covers(value)), None)
    if outside is None:
        return (bands[0] if bands else None), None
    low, high = outside.interval
    side, more = "above", "Look for divergence or bad data"
    if value < low:
        side, more = "below", "Look for a change of data or metric"
    return outside, (
        f"The loss {value:.4g} at step {last:g} is {side} its band, {low:.4g} to {high:.4g}. "
        f"{more}."
    )


def _stop(
    at: Any, loss: Any, total: float, schedule: Schedule, beat: float | None
) -> tuple[bool, str]:
    if beat is None:
        return False, ""
    if len(np.unique(at[at > 0])) < MIN_POINTS:
        return False, f"A decision needs {MIN_POINTS} steps."
    low, high = forecast(at, loss, total, schedule, level=STOP_LEVEL).interval
    if low > beat:
        return True, (
            f"Stopping is safe: the final loss will be above {low:.4g} (99 % interval), and "
            f"{beat:.4g} is to beat."
        )
    end = "will be reached" if high < beat else "is within reach"
    return False, f"Continue: {beat:.4g} {end} ({low:.4g} to {high:.4g}, 99 % interval)."


def until(schedule: Schedule, last: float, total: float) -> Schedule:
    """The schedule of a training of `total` steps, seen as one that ends at `last`."""
    from allometry.laws.training_forecast import rates

    return rates(schedule, np.linspace(0.0, last, 1025), total)
