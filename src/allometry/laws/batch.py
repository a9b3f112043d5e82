"""Fit many tables with many forms, on all cores."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Unpack

from allometry._core.errors import InputError, require
from allometry._core.process import available_cores
from allometry.laws.fitting import FitOptions, fit
from allometry.laws.forms import Form
from allometry.laws.law import Law

Fitted = dict[str, Law | InputError]
"""The law of each form, or the error of its fit."""

FormLike = str | Form | Callable[..., Any]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def fit_many(
    tables: Sequence[Mapping[str, Any] | Any],
    forms: Sequence[FormLike] = ("auto",),
    *,
    x: str | None = None,
    workers: int | None = None,
    **options: Unpack[FitOptions],
) -> list[Fitted]:
    """Fit every table with every form, one process per core.

    The laws equal those of separate calls of `fit`. If a form can't be fitted to a table (too few
    points, for example), the result holds the error in place of the law.

    A script must call it under `if __name__ == "__main__":`, because it starts processes.

    Args:
        tables: Runs or curves, each as for `fit`.
        forms: Forms' names, forms or formulas, as for `fit`.
        x: The variable of one-variable forms, as for `fit`.
        workers: Number of processes. Default: one per core; 1 runs in this process.
        **options: As for `fit`.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> D = np.logspace(3, 6, 7)
        >>> curves = [{"D": D, "loss": 1.5 + 40 / D**a} for a in (0.3, 0.5)]
        >>> found = laws.fit_many(curves, ["floor"], workers=1, bootstrap=0)
        >>> [round(law["floor"].params["alpha"].value, 3) for law in found]
        [0.3, 0.5]
    """
    require(len(forms) > 0, "fit_many.forms", "name at least one form", list(forms))
    require(workers is None or workers >= 1, "fit_many.workers", "be at least 1", workers)
    names = [_name(form) for form in forms]
    require(len(set(names)) == len(names), "fit_many.forms", "differ from one another", names)
    jobs = [(table, form, x, options) for table in tables for form in forms]
    count = min(workers or available_cores(), len(jobs))
    if count <= 1:
        found = [_one(job) for job in jobs]
    else:
        with _one_thread(), ProcessPoolExecutor(count, get_context("spawn")) as pool:
            # Small chunks: a form with breaks takes twenty times as long as a power law.
            found = list(pool.map(_one, jobs, chunksize=max(1, len(jobs) // (16 * count))))
    rows = iter(found)
    return [{name: next(rows) for name in names} for _ in tables]


def _one(job: tuple[Any, FormLike, str | None, FitOptions]) -> Law | InputError:
    table, form, x, options = job
    try:
        return fit(table, form, x=x, **options)
    except InputError as error:
        return error


def _name(form: FormLike) -> str:
    if isinstance(form, str):
        return form
    return form.name if isinstance(form, Form) else getattr(form, "__name__", str(form))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside have one thread each: there is one process per core."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
