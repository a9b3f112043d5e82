"""Forecasts inside other trainers: callbacks for Hugging Face's `Trainer` and for Lightning."""

from typing import Any, final

from allometry._core.errors import require_extra
from allometry.laws.live_watch import Watcher
from allometry.laws.training_forecast import Schedule


def hugging_face_callback(
    beat: float | None = None,
    *,
    loss: str = "eval_loss",
    schedule: Schedule = None,
    report: Any = print,
) -> Any:
    """A callback of Hugging Face's `Trainer` that forecasts, warns, and stops a hopeless training.

    Its attribute `state` is the last `TrainingState`.

    Args:
        beat: The final loss to beat; without one, nothing is stopped.
        loss: Which logged number to watch.
        schedule: Learning-rate schedule, as for `laws.forecast`.
        report: Receives alarms.
    """
    transformers = require_extra("transformers", "hf")

    @final
    class ForecastCallback(transformers.TrainerCallback):
        """Watches the logged loss."""

        state = None
        watcher: Watcher | None = None

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """Update the forecast."""
            if not logs or loss not in logs or state.global_step < 1:
                return
            if self.watcher is None:
                self.watcher = Watcher(state.max_steps, schedule, beat=beat, report=report)
            self.state = self.watcher.update(state.global_step, logs[loss])
            if self.state.stop:
                report(self.state.reason)
                control.should_training_stop = True

    return ForecastCallback()


def lightning_callback(
    beat: float | None = None,
    *,
    loss: str = "val_loss",
    schedule: Schedule = None,
    report: Any = print,
) -> Any:
    """A callback of Lightning that forecasts, warns, and stops a hopeless training.

    Its attribute `forecast_state` is the last `TrainingState`.

    Args:
        beat: The final loss to beat; without one, nothing is stopped.
        loss: Which metric to watch after each validation.
        schedule: Learning-rate schedule, as for `laws.forecast`.
        report: Receives alarms.
    """
    lightning = require_extra("pytorch_lightning", "lightning")

    @final
    class ForecastCallback(lightning.Callback):
        """Watches a logged metric."""

        forecast_state = None
        watcher: Watcher | None = None

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """Update the forecast."""
            value = trainer.callback_metrics.get(loss)
            if value is None or trainer.global_step < 1:
                return
            if self.watcher is None:
                total = float(trainer.estimated_stepping_batches)
                self.watcher = Watcher(total, schedule, beat=beat, report=report)
            self.forecast_state = self.watcher.update(trainer.global_step, float(value))
            if self.forecast_state.stop:
                report(self.forecast_state.reason)
                trainer.should_stop = True

    return ForecastCallback()
