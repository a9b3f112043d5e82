"""Fitted laws as files: `law.save("law.json")` and `laws.load("law.json")`.

The file is JSON, never a pickle: `format`, `version` (of this schema), `allometry` (the version
that wrote it), `sha256` (of the content), `about` (facts on the runs) and `law` (see
`allometry.laws.tagged_json`). A loaded law predicts and plans with the same digits. Every later
version reads the files of this one.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allometry._core.errors import InputError
from allometry._core.files import atomic_write
from allometry._core.user_files import open_regular, parse_json, read_bytes, shorten
from allometry._core.version import __version__
from allometry.laws.law import Law

if TYPE_CHECKING:
    from allometry.laws.multivariate.law import VariableLaw

FORMAT = "allometry law"
VERSION = 1
"""Version of the schema. It rises when files of the new version can't be read by old code."""

MOST = 1 << 28
"""Largest file of a law in bytes; 100,000 draws of three forms take a tenth of it."""


def save(
    law: "Law | VariableLaw", path: Path | str, about: Mapping[str, str] | None = None
) -> Path:
    """Write a law to a JSON file and return its path; the file appears only when complete.

    Args:
        law: The law.
        path: The file to write; an existing one is replaced.
        about: Facts on the runs that the law itself does not hold, such as the unit of the loss.
    """
    # Here and below: asking whether a file is a law should not load all that a law may be.
    from allometry.laws.tagged_json import encode

    content = {"about": dict(about or {}), "law": encode(law)}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "allometry": __version__,
        "sha256": _digest(VERSION, content),
    }
    data = head | content
    with atomic_write(path) as file:
        file.write(json.dumps(data, allow_nan=False) + "\n")
    return Path(path)


def load(path: Path | str) -> Any:
    """The law that `law.save(path)` wrote: a `Law`, or a `VariableLaw`.

    Raises:
        InputError: The file is not a saved law, was changed or is incomplete.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from allometry import laws
        >>> N = np.logspace(3, 6, 7)
        >>> law = laws.fit({"N": N, "loss": 1.5 + 40 / N**0.5}, form="floor", bootstrap=50)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = laws.load(law.save(Path(folder) / "law.json"))
        >>> again.predict(N=1e8) == law.predict(N=1e8)
        True
    """
    return load_with_facts(path)[0]


def load_with_facts(path: Path | str) -> tuple[Any, dict[str, str]]:
    """The law in a file, and the facts on its runs that `save` was given."""
    from allometry.laws.tagged_json import decode

    data = _parsed(path)
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(
            f"{path} must state the version of its schema; got {shorten(version, 40)!r}. Save the "
            "law again."
        )
    if version > VERSION:
        raise InputError(
            f"{path} must have schema version {VERSION} or lower; got {version}. A newer version "
            "of allometry wrote it: upgrade allometry."
        )
    content = {"about": data.get("about"), "law": data.get("law")}
    if data.get("sha256") != _digest(version, content):
        raise InputError(
            f"{path} must be unchanged since it was saved; its checksum does not match. It was "
            "edited or damaged: save the law again."
        )
    try:
        law = decode(data["law"])
    except InputError as error:
        raise InputError(f"{path} must be a saved law. {error}") from None
    about = content["about"]
    if not isinstance(about, dict) or not all(isinstance(v, str) for v in about.values()):
        raise InputError(f"{path} must have a text for each fact; got {shorten(about, 40)}.")
    return _checked(law, path), about


def is_saved_law(path: Path | str) -> bool:
    """Whether a file begins as a saved law does."""
    if Path(path).suffix.lower() != ".json" or not Path(path).is_file():
        return False
    with open_regular(path) as file:
        begin = file.read(200)
    return f'"{FORMAT}"'.encode() in begin


def _parsed(path: Path | str) -> dict[str, Any]:
    text = read_bytes(path, MOST)
    try:
        data = parse_json(text, str(path), unique=True)
    except InputError as error:
        if FORMAT.encode() not in text[:200]:
            raise
        raise InputError(
            f"{str(error).rstrip('.')}. The file is incomplete or damaged: save the law again."
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(
            f"{path} must be a law that law.save wrote; got other JSON. Fit runs with laws.fit."
        )
    return data


def _digest(version: int, content: Any) -> str:
    """Checksum of the content, whatever its white space and the order of its keys."""
    text = json.dumps([version, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(law: Any, path: Path | str) -> "Law | VariableLaw":
    """The law, after it has been evaluated at a run: the checksum does not vouch for its author.

    A file that was written by hand may have arrays of the wrong shape.
    """
    from allometry.laws.multivariate.law import VariableLaw

    try:
        with np.errstate(all="ignore"):
            if isinstance(law, Law):
                law.log_band({name: x[:1] for name, x in law.table.logs.items()})
                return law
            if isinstance(law, VariableLaw):
                at: dict[str, Any] = dict(zip(law.table.names, law.table.X[:, 0], strict=True))
                at |= law.first_labels()
                law.band(**at)
                return law
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError) as error:
        raise InputError(
            f"{path} must be a saved law whose parts fit together; got {shorten(error)}."
        ) from None
    raise InputError(f"{path} must be a saved law; got a part of one.")
