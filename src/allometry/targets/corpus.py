"""Read text files, and the English prose in Python's library."""

import re
from pathlib import Path

from allometry._core.errors import InputError, require
from allometry._core.user_files import read_bytes


def read(path: Path, vocabulary: str) -> str | bytes:
    """The text of a file; its bytes for the bytes vocabulary."""
    data = read_bytes(path)
    require(len(data) > 0, "Text.paths", "name files with text in them", str(path), "It is empty.")
    if vocabulary == "bytes":
        return data
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(
            f"{path} must be UTF-8; it begins like UTF-16. Save it as UTF-8, or use "
            'vocabulary="bytes".'
        )
    nul = data.find(0)
    if nul >= 0:
        raise InputError(
            f'{path} must be text; byte {nul} is NUL, as in a binary file. Use vocabulary="bytes".'
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be UTF-8; byte {error.start} (0x{data[error.start]:02x}) is not. "
            'Save it as UTF-8, or use vocabulary="bytes".'
        ) from None
    require(len(text) > 0, "Text.paths", "name files with text in them", str(path), "It is empty.")
    return text.replace("\r\n", "\n") if "\r" in text else text


def topics(repeats: bool) -> str:
    """The topics of `help()`, in alphabetical order; see `Text.embedded`."""
    from pydoc_data.topics import topics as by_name

    texts = [by_name[name] for name in sorted(by_name)]
    if repeats:
        return "\n".join(texts)
    seen: set[str] = set()
    kept: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", "\n\n".join(t.strip("\n") for t in texts)):
        words = " ".join(paragraph.split())
        if words and words not in seen:
            seen.add(words)
            kept.append(paragraph.strip("\n"))
    return "\n\n".join(kept) + "\n"
