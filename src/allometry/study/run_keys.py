"""The key of a run in a folder: folders of earlier versions have other keys for some runs."""

from collections.abc import Sequence
from pathlib import Path

from allometry._core.spec import Spec
from allometry.runs import study_file

LOCATIONS = ("paths", "path")
"""Names of the arguments of targets that locate their files, also in their descriptions."""


def with_folder_keys(specs: Sequence[Spec], folder: Path) -> list[Spec]:
    """`specs`, each with the key that the folder has for it.

    A key identifies a file by its content. In earlier versions it contained the file's path, so
    that one text at two paths was two studies. Folders of these versions keep their keys, and
    their runs are not repeated, whatever path the same content has now.
    """
    if not study_file.exists(folder):
        return list(specs)
    about = study_file.read(folder)
    former, runs = about.get("former", {}), set(about.get("runs", ()))
    target = about.get("target", {})
    locations = {name: target[name] for name in LOCATIONS if _is_location(target.get(name))}
    renamed = []
    for spec in specs:
        key = former.get(spec.identity)
        if key is None and spec.identity not in runs:
            candidates = (spec.legacy_key(locations), spec.legacy_key())
            key = next((old for old in candidates if old in runs), None)
        renamed.append(spec if key is None else spec.with_key(key))
    return renamed


def _is_location(value: object) -> bool:
    """Whether it is a path or a list of paths; the file it comes from may be edited by hand."""
    listed = isinstance(value, list) and all(isinstance(part, str) for part in value)
    return isinstance(value, str) or listed


def former_keys(specs: Sequence[Spec]) -> dict[str, str]:
    """For specs that have another key in the folder: that key, by the key of the content."""
    return {spec.identity: spec.key for spec in specs if spec.key != spec.identity}
