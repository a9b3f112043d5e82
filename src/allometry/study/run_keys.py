"""Which key a run has in a folder: folders of earlier versions know some by another."""

from collections.abc import Sequence
from pathlib import Path

from allometry._core.spec import Spec
from allometry.runs import study_file as said

PLACES = ("paths", "path")
"""What targets call the places of their files, in their specs as in their descriptions."""


def known(specs: Sequence[Spec], folder: Path) -> list[Spec]:
    """`specs`, each under the key that the folder knows it by.

    A key tells a file by its content. Earlier versions took the file's path into it, so that one
    text by two paths was two studies; what such a folder holds keeps its keys and is not repeated,
    by whatever path the same content is named now.
    """
    if not said.there(folder):
        return list(specs)
    about = said.read(folder)
    former, runs = about.get("former", {}), set(about.get("runs", ()))
    target = about.get("target", {})
    places = {name: target[name] for name in PLACES if _place(target.get(name))}
    found = []
    for spec in specs:
        key = former.get(spec.identity)
        if key is None and spec.identity not in runs:
            then = (spec.legacy_key(places), spec.legacy_key())
            key = next((old for old in then if old in runs), None)
        found.append(spec if key is None else spec.with_key(key))
    return found


def _place(value: object) -> bool:
    """Whether it is a path or several; anyone may have written the file it is from."""
    listed = isinstance(value, list) and all(isinstance(part, str) for part in value)
    return isinstance(value, str) or listed


def renamed(specs: Sequence[Spec]) -> dict[str, str]:
    """Keys by content of those that a folder knows by another, with that one."""
    return {spec.identity: spec.key for spec in specs if spec.key != spec.identity}
