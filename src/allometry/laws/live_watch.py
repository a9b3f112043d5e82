"""Watch a training from inside its loop, and prune trials of Optuna by forecasts."""

from collections.abc import Callable
from typing import Any, final

from allometry._core.errors import require, require_extra
from allometry.laws.monitoring import TrainingState, watch
from allometry.laws.training_forecast import Schedule


@final
class Watcher:
    """Collects the losses of a training and says, after each, what `watch` says.

    Args:
        total_steps: Of the whole training.
        schedule: Learning-rate schedule, as for `forecast`.
        beat: The final loss to beat; without one, no stop is advised.
        report: Receives every alarm, once.

    Example:
        >>> from allometry import laws
        >>> watcher = laws.Watcher(1000, beat=1.0)
        >>> for step in range(100, 501, 100):
        ...     state = watcher.update(step, 2 + 30 / step)
        >>> state.stop
        True
    """

    def __init__(
        self,
        total_steps: float,
        schedule: Schedule = None,
        *,
        beat: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        require(total_steps > 0, "Watcher.total_steps", "be above 0", total_steps)
        self.total_steps, self.schedule = total_steps, schedule
        self.beat, self.report = beat, report
        self.steps: list[float] = []
        self.losses: list[float] = []
        self._alarmed = False

    def update(self, step: float, loss: float) -> TrainingState:
        """The state after one more loss."""
        self.steps.append(float(step))
        self.losses.append(float(loss))
        state = watch(self.steps, self.losses, self.total_steps, self.schedule, beat=self.beat)
        if state.alarm is not None and self.report is not None and not self._alarmed:
            self.report(state.alarm)
        self._alarmed = state.alarm is not None
        return state


def optuna_pruner(total_steps: float, schedule: Schedule = None) -> Any:
    """A pruner of Optuna that ends a trial whose forecast excludes the best value so far.

    Report losses by `trial.report(loss, step)`. A trial is pruned if the 99 % interval of its
    final loss lies above the best value of the finished trials. Only for minimisation.

    Args:
        total_steps: Steps of a whole trial.
        schedule: Learning-rate schedule, as for `forecast`.
    """
    optuna = require_extra("optuna", "optuna")
    require(total_steps > 0, "optuna_pruner.total_steps", "be above 0", total_steps)

    @final
    class ForecastPruner(optuna.pruners.BasePruner):
        """Prunes by `watch`."""

        def prune(self, study: Any, trial: Any) -> bool:
            """Whether the trial can't become the best."""
            minimised = study.direction == optuna.study.StudyDirection.MINIMIZE
            require(minimised, "optuna_pruner", "be used to minimise a loss", study.direction)
            finished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
            values = dict(sorted(trial.intermediate_values.items()))
            if not finished or not values:
                return False
            best = min(float(t.value) for t in finished)
            steps, losses = list(values), list(values.values())
            return watch(steps, losses, total_steps, schedule, beat=best).stop

    return ForecastPruner()
