"""How big a model does this job need, and what will it reach?

Subpackages load on first use (PEP 562), so `import allometry` costs neither torch nor pandas.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allometry._core.cite import cite
from allometry._core.errors import AllometryError, InputError, UnidentifiedError
from allometry._core.estimate import Estimate
from allometry._core.registry import register
from allometry._core.spec import Spec
from allometry._core.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from allometry import (
        construct,
        course,
        decode,
        laws,
        measure,
        models,
        report,
        runs,
        study,
        targets,
        train,
    )
    from allometry.laws import Law, Plan, VariableLaw

_SUBPACKAGES = (
    "construct",
    "course",
    "decode",
    "laws",
    "measure",
    "models",
    "report",
    "runs",
    "study",
    "targets",
    "train",
)

__all__ = [
    "AllometryError",
    "Estimate",
    "InputError",
    "Spec",
    "UnidentifiedError",
    "__version__",
    "cite",
    "construct",
    "course",
    "decode",
    "fit",
    "laws",
    "measure",
    "models",
    "plan",
    "register",
    "report",
    "runs",
    "study",
    "targets",
    "train",
]


_READING = (
    *("N", "D", "C", "loss", "family", "where", "n_from", "d_from", "config", "sql", "rows"),
    *("unit", "keep"),
)
"""Keyword arguments of `runs.load`."""


def fit(runs: "Path | str | Any", form: Any = "auto", **options: Any) -> "Law | VariableLaw | Any":
    """Fit a scaling law to runs in a file, folder, data frame or mapping of columns.

    Args:
        runs: A path that `runs.load` reads (CSV, JSON lines, logs, a study's folder), a law that
            `law.save` wrote, or columns.
        form: As for `laws.fit`.
        **options: As for `runs.load` (`N="params"`, `where=["family=gpt"]`) and for `laws.fit`
            (`bootstrap=4000`, `seed=1`).

    Returns:
        The law. What the importer left out or assumed stands first in `law.warnings`.

    Example:
        >>> import allometry as al
        >>> N = [1e6, 1e7, 1e8, 1e9]
        >>> law = al.fit({"N": N, "loss": [4.6, 3.4, 2.8, 2.5]}, bootstrap=100)
        >>> law.n
        4
    """
    return _fitted(runs, form, options)


def _fitted(runs: Any, form: Any, options: dict[str, Any], command: str = "") -> Any:
    """The law of `fit`; a `command` refuses runs that a plan can't use."""
    from dataclasses import replace

    from allometry import laws
    from allometry._core.errors import require

    reading = {name: options.pop(name) for name in _READING if name in options}
    if not isinstance(runs, str) and not hasattr(runs, "__fspath__"):
        require(not reading, "fit", "be given a path with these options", sorted(reading))
        return laws.fit(runs, form, **options)
    from allometry.laws.law_files import is_saved_law

    if is_saved_law(runs):
        given = [*reading, *options] + ([] if form == "auto" else ["form"])
        require(not given, "fit", "be given a saved law alone, which is already fitted", given)
        return laws.load(runs)
    from allometry.runs import load

    wanted = options.get("variables")
    if wanted is not None:
        names = list(wanted.values() if hasattr(wanted, "values") else wanted)
        kept = [*reading.get("keep", ()), *names, options.get("response", "loss")]
        reading["keep"] = list(dict.fromkeys(kept))
    imported = load(runs, **reading)
    if command:
        imported.require_several_runs(command)
    law = laws.fit(imported.columns, form, **options)
    return replace(law, warnings=[*imported.words()[1:], *law.warnings])


def plan(
    runs: "Path | str | Any",
    compute: float,
    *,
    N: float | None = None,
    D: float | None = None,
    unique: float | None = None,
    inference_tokens: float = 0.0,
    **options: Any,
) -> "Plan":
    """Plan a compute budget by the runs in a file, folder, data frame or mapping of columns.

    Args:
        runs: As for `fit`, or a law.
        compute: The budget in FLOPs.
        N: Fix the size.
        D: Fix the data.
        unique: Amount of unique data; beyond it data are repeated and lose value.
        inference_tokens: Tokens to generate, paid from the same budget.
        **options: As for `fit`. To name the columns of N or D, pass `al.fit(path, N="...")`.

    Example:
        >>> import allometry as al
        >>> N = [1e6, 1e7, 1e8, 1e9]
        >>> runs = {"N": N, "D": [20 * n for n in N], "loss": [4.6, 3.4, 2.8, 2.5]}
        >>> round(al.plan(runs, compute=1e21, bootstrap=100).N.value / 1e9, 1)
        2.9
    """
    from allometry import laws

    form = options.pop("form", "auto")
    law = runs if isinstance(runs, laws.Law) else _fitted(runs, form, options, "plan")
    return law.plan(compute, N=N, D=D, unique=unique, inference_tokens=inference_tokens)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"allometry.{name}")
    raise AttributeError(f"module 'allometry' has no attribute {name!r}")


def __dir__() -> list[Any]:
    return sorted(__all__)
