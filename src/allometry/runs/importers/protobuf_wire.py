"""Decode protocol buffers by field number: enough to read scalars in logs.

References:
    Protocol Buffers documentation, "Encoding".
"""

from collections.abc import Iterator
from typing import Any

from allometry._core.errors import InputError


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The number and value of each field: an integer, or the bytes of the others.

    Raises:
        InputError: The data are not a message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise InputError(f"a message must have fields of known kinds; got kind {kind}.")
        if at + length > end:
            raise InputError("a message must have whole fields; got a part of one.")
        yield number, data[at : at + length]
        at += length


def whole(data: bytes) -> dict[int, list[Any]]:
    """All values of each field."""
    found: dict[int, list[Any]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def first(message: dict[int, list[Any]], number: int, kind: type) -> Any:
    """The last value of a field, if it has the given type; else `None`."""
    value = message.get(number, [None])[-1]
    return value if isinstance(value, kind) else None


def text(message: dict[int, list[Any]], number: int) -> str:
    """The last value of a text field; empty if it has none."""
    value = first(message, number, bytes)
    return "" if value is None else value.decode("utf-8", "replace")


def signed(value: int) -> int:
    """A 64-bit field as a signed integer."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise InputError("a message must have whole numbers; got a part of one.")
