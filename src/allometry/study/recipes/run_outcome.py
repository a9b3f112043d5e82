"""The journal columns that every run has, with or without gradient training."""

from typing import Any

from allometry._core.estimate import Estimate
from allometry.study.request import Outcome, Request
from allometry.train.budget import Budget
from allometry.train.loop import Trained


def journal_columns(
    budget: Budget,
    loss: Estimate | None,
    test: Estimate | None = None,
    *,
    D_unique: float | None,
    seconds: float,
    counted: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Cost, losses and seconds of a run.

    Args:
        budget: N, D and C.
        loss: On validation data; `None` if the run has none.
        test: On test data, if measured.
        D_unique: Distinct training data; `None` if they are generated without end.
        seconds: Runtime.
        counted: Whether compute is counted; jobs without gradient training have none.
        **more: Further columns.
    """
    columns: dict[str, Any] = {
        "N": budget.N,
        "N_embedding": budget.N_embedding,
        "D": budget.D,
        "D_unique": D_unique,
        "C": budget.C if counted else None,
        "C_6ND": budget.C_6ND if counted else None,
        "loss": None if loss is None else loss.value,
        "loss_se": None if loss is None else loss.se,
    }
    if test is not None:
        columns |= {"test_loss": test.value, "test_loss_se": test.se}
    return columns | {"seconds": seconds} | more


def outcome(
    run: Request,
    trained: Trained,
    test: Estimate,
    *,
    D_unique: float | None,
    loss: Estimate | None = None,
    scale: float = 1.0,
    sample: str = "",
    measures: dict[str, Estimate] | None = None,
    **more: Any,
) -> Outcome:
    """The outcome of a training.

    Args:
        run: The request.
        trained: Its curve, seconds and precision.
        test: Loss on test data.
        D_unique: Distinct training data; `None` if they are generated without end.
        loss: On validation data; the training's own by default.
        scale: Factor from the unit of the curve to the unit of the loss.
        sample: Generated text.
        measures: Further estimates by name.
        **more: Further columns.
    """
    budget = run.budget()
    per_token = budget.C / budget.D
    columns = journal_columns(
        budget,
        trained.loss if loss is None else loss,
        test,
        D_unique=D_unique,
        seconds=trained.seconds,
        dtype=trained.precision,
    )
    return Outcome(
        columns=run.columns | columns | more,
        curve={
            "step": [float(s) for s in trained.curve.step],
            "tokens": [float(t) for t in trained.curve.tokens],
            "flops": [t * per_token for t in trained.curve.tokens],
            "loss": [scale * value for value in trained.curve.loss],
        },
        sample=sample,
        measures=measures or {},
    )
