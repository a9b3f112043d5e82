"""Names of a package that load on first use (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from allometry._core.deprecation import moved


def lazy_names(
    package: str,
    homes: Mapping[str, Iterable[str]],
    *,
    modules: Iterable[str] = (),
    old: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names load on first use.

    `__dir__` lists the package's `__all__`.

    Args:
        package: Its `__name__`.
        homes: Public names by the module that defines them. A module that starts with a dot is
            inside the package.
        modules: Modules of the package that are public themselves.
        old: Deprecated names; see `moved`.

    Example:
        >>> __getattr__, __dir__ = lazy_names("allometry.runs", {".journal": ["Journal"]})
        >>> __getattr__("Journal").__name__
        'Journal'
    """
    home = {name: module for module, names in homes.items() for name in names}
    inside, deprecated = frozenset(modules), moved(package, old or {}, stacklevel=3)

    def resolve(name: str) -> Any:
        if name in inside:
            return importlib.import_module(f"{package}.{name}")
        if name not in home:
            return deprecated(name)
        value = getattr(importlib.import_module(home[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def public() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return resolve, public
