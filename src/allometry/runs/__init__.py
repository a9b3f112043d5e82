"""Run records: journals, study folders, and importers of other tools' logs. Needs no torch."""

from typing import TYPE_CHECKING

from allometry._core.lazy_names import lazy_names

if TYPE_CHECKING:
    from allometry.runs.folder import Runs
    from allometry.runs.importers import BadRow, Imported, load
    from allometry.runs.journal import Journal

__all__ = ["BadRow", "Imported", "Journal", "Runs", "load"]

_HOMES = {
    ".folder": ("Runs",),
    ".importers": ("BadRow", "Imported", "load"),
    ".journal": ("Journal",),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
