"""Read settings from simple YAML: nested mappings of scalars, as trackers write them.

Lists, anchors, tags and text blocks are skipped. Values are text; numbers are parsed where they
are used.
"""

import re
from typing import Any

from allometry._core.errors import InputError

DEEPEST = 50
"""Largest depth of nested mappings."""

_ENTRY = re.compile(
    r"""( *)(?:"([^"]*)"|'([^']*)'|([^\s#:'"\-\[\]{}&*!|>%@`][^:#]*?)) *:(?: +(.*))?"""
)


def read_settings(text: str, name: str) -> dict[str, Any]:
    r"""The scalars of a YAML file by name; nested names are joined by points.

    Args:
        text: The YAML.
        name: Its file, for error messages.

    Example:
        >>> read_settings("model:\n  width: 64\n  heads: [1, 2]\nlr: 0.1  # tuned\n", "f")
        {'model.width': '64', 'lr': '0.1'}
    """
    found: dict[str, Any] = {}
    path: list[tuple[int, str]] = []
    skip: int | None = None
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "---", "...")):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if skip is not None and indent > skip:
            continue
        skip = None
        match = _ENTRY.fullmatch(line.rstrip()[:10_000])
        if match is None:
            skip = indent if line.rstrip().endswith((":", "|", ">")) else None
            continue
        key = next(part for part in match.groups()[1:4] if part is not None).strip()
        while path and path[-1][0] >= indent:
            path.pop()
        if len(path) >= DEEPEST:
            raise InputError(f"{name} must be nested less than {DEEPEST} levels deep.")
        value = (match[5] or "").strip()
        if value == "" or value.startswith("#"):
            path.append((indent, key))
        elif value[0] in "|>":
            skip = indent
        elif (scalar := _scalar(value)) is not None:
            found[".".join([*(part for _, part in path), key])] = scalar
    return found


def _scalar(value: str) -> str | None:
    """The text of a scalar; `None` for lists, mappings, anchors and tags."""
    if value[0] in "\"'":
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else None
    if value[0] in "[{&*!":
        return None
    value = re.split(r"\s+#", value)[0].strip()
    return "" if value in ("null", "~") else value
