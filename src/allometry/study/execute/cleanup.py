"""Remove the checkpoints of finished runs, and the files of processes that were killed."""

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
"""Subfolders with files of runs."""


def remove_checkpoints(folder: Path, bundle: Bundle, left: Container[str]) -> None:
    """Delete the checkpoints of a bundle whose last run has finished."""
    if all(task.key not in left for task in bundle.tasks):
        # Its own, and those of runs that were continued alone or repeated.
        _delete(folder, {bundle.name, *(task.key for task in bundle.tasks)})


def remove_leftovers(folder: Path, settled: Iterable[str]) -> None:
    """Delete what a killed process left: partial files, and checkpoints of finished runs.

    Args:
        folder: The study's. Its lock excludes other writers.
        settled: Keys of the runs that are not repeated.
    """
    # A report may be written at the same time, without the lock: only these files, by name.
    remove_partial_files(folder, "study.json", "schedule.json")
    for part in FOLDERS:
        if path_exists(place := path_inside(folder, part)):
            remove_partial_files(place)
    finished = set(settled)
    bundles = (name for name, b in read_schedule(folder).items() if finished >= set(b["keys"]))
    _delete(folder, {*finished, *bundles})


def _delete(folder: Path, names: Container[str]) -> None:
    """Every checkpoint file that begins with one of these names."""
    place = path_inside(folder, "checkpoints")
    if not path_exists(place):
        return
    with storage_errors("delete files in", place):
        for path in place.iterdir():
            if path.name.split(".")[0] in names:
                remove(path)
