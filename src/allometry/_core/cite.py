"""BibTeX for what you used."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from allometry._core.errors import InputError

_KEY = re.compile(r"`([a-z]+[0-9]{4}[a-z]*)`")


@cache
def bibliography() -> dict[str, str]:
    """Every entry of `references.bib` by its key."""
    text = files("allometry._core").joinpath("references.bib").read_text(encoding="utf-8")
    entries = re.split(r"(?m)^(?=@)", text)
    return {
        match.group(1): entry.strip()
        for entry in entries
        if (match := re.match(r"@\w+\{([^,\s]+),", entry))
    }


def keys(obj: Any) -> list[str]:
    """The bib keys named under `References:` in the docstring of `obj` (or of its class)."""
    for doc in (getattr(obj, "__doc__", None), type(obj).__doc__):
        # The docstring of a builtin's type is a descriptor, not a string.
        if isinstance(doc, str) and "References:" in doc:
            return list(dict.fromkeys(_KEY.findall(doc.partition("References:")[2])))
    return []


def cite(*objects: Any) -> str:
    """BibTeX entries for the models, measures, laws or functions given; for the package if none.

    Example:
        >>> import allometry as al
        >>> print(al.cite().splitlines()[0])
        @software{allometry,
    """
    if not objects:
        return bibliography()["allometry"]
    wanted: list[str] = []
    for obj in objects:
        found = [obj] if isinstance(obj, str) and obj in bibliography() else keys(obj)
        if not found:
            name = getattr(obj, "__qualname__", repr(obj))
            raise InputError(f"cite must be given something with references; got {name}.")
        wanted += found
    return "\n\n".join(bibliography()[key] for key in dict.fromkeys(wanted))
