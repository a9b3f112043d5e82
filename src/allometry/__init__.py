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

if TYPE_CHECKING:
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

__version__ = "0.1.0"

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
    "laws",
    "measure",
    "models",
    "register",
    "report",
    "runs",
    "study",
    "targets",
    "train",
]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"allometry.{name}")
    raise AttributeError(f"module 'allometry' has no attribute {name!r}")


def __dir__() -> list[Any]:
    return sorted(__all__)
