"""Run records: journals, study folders, and importers of other tools' logs. Needs no torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allometry.runs.folder import Runs
    from allometry.runs.importers import BadRow, Imported, load
    from allometry.runs.journal import Journal

__all__ = ["BadRow", "Imported", "Journal", "Runs", "load"]

_HOME = {"Runs": "folder", "Journal": "journal"}
"""Module of each name; the others are in `importers`."""


def __getattr__(name: str) -> Any:
    # Modules are imported on first use: reading a CSV does not need the journal.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'importers')}"), name)
