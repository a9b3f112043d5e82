"""What runs leave in a folder once they have ended, or when their process was killed."""

from collections.abc import Container, Iterable
from pathlib import Path

from allometry._core.files import (
    path_exists,
    path_inside,
    remove,
    remove_partial_files,
    storage_errors,
)
from allometry.runs.schedule_file import read_schedule
from allometry.study.tasks import Bundle

FOLDERS = ("curves", "weights", "checkpoints", "samples", "pictures")
"""Of a study's runs."""


def clear(folder: Path, bundle: Bundle, left: Container[str]) -> None:
    """Delete the checkpoints of a bundle whose last run has ended."""
    if all(task.key not in left for task in bundle.tasks):
        # Its own, and those of runs that went on by themselves or were begun again.
        _delete(folder, {bundle.name, *(task.key for task in bundle.tasks)})


def tidy(folder: Path, settled: Iterable[str]) -> None:
    """Delete what a killed process was about to: half files, and checkpoints of ended runs.

    Args:
        folder: The study's, locked: nobody else writes there.
        settled: Keys of the runs that are not carried out again.
    """
    # A report may be written meanwhile, which no lock forbids: only our own files, by name.
    remove_partial_files(folder, "study.json", "schedule.json")
    for part in FOLDERS:
        if path_exists(place := path_inside(folder, part)):
            remove_partial_files(place)
    ended = set(settled)
    whole = (name for name, b in read_schedule(folder).items() if ended >= set(b["keys"]))
    _delete(folder, {*ended, *whole})


def _delete(folder: Path, names: Container[str]) -> None:
    """Every checkpoint file that begins with one of these names."""
    place = path_inside(folder, "checkpoints")
    if not path_exists(place):
        return
    with storage_errors("delete files in", place):
        for path in place.iterdir():
            if path.name.split(".")[0] in names:
                remove(path)
