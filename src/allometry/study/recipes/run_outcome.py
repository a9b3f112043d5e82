"""What every run writes into the journal, trained or not."""

from typing import Any

from allometry._core.estimate import Estimate
from allometry.study.request import Outcome
from allometry.train.budget import Budget
from allometry.train.loop import Trained


def outcome(
    columns: dict[str, Any],
    budget: Budget,
    trained: Trained,
    *,
    loss: Estimate,
    test: Estimate,
    D_unique: float | None,
    scale: float = 1.0,
    sample: str = "",
    measures: dict[str, Estimate] | None = None,
    **more: float | str | None,
) -> Outcome:
    """The outcome of a training.

    Args:
        columns: Family, target, shape, rung and seed.
        budget: N, D, C.
        trained: Whose curve and seconds are kept.
        loss: On validation.
        test: On test.
        D_unique: Distinct data there are; `None` where they are made as they are needed.
        scale: What the curve's losses are multiplied by to be in the loss's unit.
        sample: What the model makes, in words.
        measures: Further estimates by name.
        more: Further columns.
    """
    per_token = budget.C / budget.D
    return Outcome(
        columns=columns
        | {
            "N": budget.N,
            "N_embedding": budget.N_embedding,
            "D": budget.D,
            "D_unique": D_unique,
            "C": budget.C,
            "C_6ND": budget.C_6ND,
            "loss": loss.value,
            "loss_se": loss.se,
            "test_loss": test.value,
            "test_loss_se": test.se,
            "seconds": trained.seconds,
            "dtype": trained.precision,
        }
        | more,
        curve={
            "step": [float(s) for s in trained.curve.step],
            "tokens": [float(t) for t in trained.curve.tokens],
            "flops": [t * per_token for t in trained.curve.tokens],
            "loss": [scale * value for value in trained.curve.loss],
        },
        sample=sample,
        measures=measures or {},
    )


def untrained(budget: Budget, loss: Estimate, test: Estimate, seconds: float) -> dict[str, Any]:
    """Columns of what is counted, built or fitted by a formula: no compute is counted.

    Args:
        budget: N and D.
        loss: On validation.
        test: On test.
        seconds: It took.
    """
    return {
        "N": budget.N,
        "N_embedding": 0,
        "D": budget.D,
        "D_unique": budget.D,
        "C": None,
        "C_6ND": None,
        "loss": loss.value,
        "loss_se": loss.se,
        "test_loss": test.value,
        "test_loss_se": test.se,
        "seconds": seconds,
    }
