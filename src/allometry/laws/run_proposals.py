"""The next runs: at sizes of one's own choice, or from a pool of candidates."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, cast, overload

from allometry._core.errors import InputError, require
from allometry.laws import design
from allometry.laws.law import Law
from allometry.laws.multivariate.campaigns import next_from_pool
from allometry.laws.multivariate.law import VariableLaw
from allometry.laws.multivariate.pool import PoolDesign


class TargetOptions(TypedDict, total=False):
    """The target of a law in size and data, and the number and kind of runs."""

    N: float | None
    D: float | None
    compute: float | None
    most: int
    replicas: bool


@overload
def next_runs(law: Law, budget: float, **options: Unpack[TargetOptions]) -> design.Design: ...
@overload
def next_runs(
    law: VariableLaw,
    budget: float,
    *,
    pool: Any,
    target: Any,
    cost: str | Sequence[float] | None = None,
    most: int | None = None,
    width: float = 0.0,
    seed: int = 0,
) -> PoolDesign: ...
def next_runs(
    law: Law | VariableLaw,
    budget: float,
    *,
    pool: Any = None,
    target: Any = None,
    cost: str | Sequence[float] | None = None,
    width: float = 0.0,
    seed: int = 0,
    **options: Any,
) -> design.Design | PoolDesign:
    """The runs within a budget that narrow a law's prediction at a target most.

    For a law in N, D and C see `allometry.laws.design.next_runs`. For a law in any variables the
    runs come from a pool of candidates.

    Args:
        law: The law; its runs are the observed ones.
        budget: FLOPs, or largest sum of the pool's costs.
        pool: Candidate runs with the law's variables, for a law in any variables.
        target: Rows to predict.
        cost: Column of the pool, an expression such as `6*N*D`, or numbers. Default: the law's.
        width: Stop when the expected half-width of the targets' intervals, relative to the
            response, is no larger.
        seed: Seed of the random laws.
        **options: N, D, compute and `replicas` for a law in N, D and C; `most`, the largest
            number of runs, for every law.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> N, X = (a.reshape(-1) for a in np.meshgrid(np.logspace(6, 8, 5), [1.0, 4.0, 16.0]))
        >>> runs = {"N": N, "X": X, "loss": 1.5 + 30 / N**0.2 * X**-0.1}
        >>> law = laws.fit(runs, variables=["N", "X"], cost="N*X")
        >>> pool = {"N": np.array([3e8, 3e8, 1e9]), "X": np.array([1.0, 16.0, 4.0])}
        >>> goal = {"N": np.array([4e9]), "X": np.array([16.0])}
        >>> found = laws.next_runs(law, 6e9, pool=pool, target=goal)
        >>> found.after < found.now
        True
    """
    if isinstance(law, VariableLaw):
        require(pool is not None, "next_runs.pool", "hold candidate runs for this law", pool)
        require(target is not None, "next_runs.target", "hold the rows to predict", target)
        return next_from_pool(
            law, pool, target=target, budget=budget, cost=cost, width=width, seed=seed, **options
        )
    if pool is not None or target is not None:
        raise InputError(
            "next_runs.pool must come with a law in any variables; got a law in N, D and C. "
            "Fit it with laws.fit(..., variables=[...])."
        )
    return design.next_runs(law, budget, **cast("TargetOptions", options))
