"""Old public names: they still work for one release and warn.

Names that moved in 0.2 are removed in 0.3.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

SINCE, REMOVED = "0.2", "0.3"
"""The release that deprecates the old names, and the one that removes them."""


def moved(module: str, names: Mapping[str, str], stacklevel: int = 2) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) that resolves old names with a `DeprecationWarning`.

    Args:
        module: `__name__` of the module that had the old names.
        names: New name of each old one: an attribute of `module`, or "package.module:name" if it
            is now defined elsewhere.
        stacklevel: Of the warning; 2 if the result is itself the module's `__getattr__`.

    Example:
        >>> __getattr__ = moved("allometry.train", {"Judge": "EarlyStopping"})
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     __getattr__("Judge").__name__
        'EarlyStopping'
    """

    def resolve(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = names[name].rpartition(":")
        place = place or module
        warnings.warn(
            f"{module}.{name} is deprecated since {SINCE} and removed in {REMOVED}. "
            f"Use {place}.{new}.",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        return getattr(importlib.import_module(place), new)

    return resolve
