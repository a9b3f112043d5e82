"""Excel workbooks (`.xlsx`): the cells of the first sheet that has a header."""

import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zlib import error as ZlibError

from allometry._core.delimited import Cells, Sheet
from allometry._core.errors import InputError
from allometry._core.user_files import open_regular
from allometry.runs.importers.table_files import MOST_CELLS

MOST_XML = 1 << 28
"""Largest unpacked part of a workbook in bytes."""

MOST_COLUMNS = 16_384
_SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_excel(path: Path) -> Sheet:
    """Read the first worksheet with at least two rows."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as book:
                texts = _texts(book, path)
                names = sorted(
                    (n for n in book.namelist() if re.fullmatch(r"xl/worksheets/[^/]+\.xml", n)),
                    key=lambda name: (len(name), name),
                )
                for name in names[:100]:
                    rows = _rows(_parsed(book, name, path), texts, path)
                    if len(rows) >= 2:
                        return _sheet(rows, path)
        except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, NotImplementedError,
                RuntimeError, ZlibError, EOFError, ValueError) as error:  # fmt: skip
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} must be an Excel workbook; it can't be read.") from None
    raise InputError(f"{path} must hold a sheet with a header and rows; got none.")


def _parsed(book: zipfile.ZipFile, name: str, path: Path) -> ElementTree.Element:
    with book.open(name) as part:
        data = part.read(MOST_XML + 1)
    if len(data) > MOST_XML:
        raise InputError(f"{path} must unpack to at most 256 MiB; got more.")
    if b"<!DOCTYPE" in data[:4096] or b"<!ENTITY" in data:
        raise InputError(f"{path} must be a plain workbook; it declares entities.")
    return ElementTree.fromstring(data)


def _texts(book: zipfile.ZipFile, path: Path) -> list[str]:
    name = "xl/sharedStrings.xml"
    if name not in book.namelist():
        return []
    root = _parsed(book, name, path)
    return ["".join(t.text or "" for t in item.iter(f"{_SPACE}t")) for item in root]


def _rows(root: ElementTree.Element, texts: list[str], path: Path) -> list[tuple[int, list[Any]]]:
    """Line number and cells of each row that is not empty."""
    rows: list[tuple[int, list[Any]]] = []
    for line, row in enumerate(root.iter(f"{_SPACE}row"), 1):
        cells: list[Any] = []
        for cell in row.iter(f"{_SPACE}c"):
            place = _column(cell.get("r", ""), len(cells))
            cells += [None] * (place - len(cells))
            cells.append(_value(cell, texts))
        if any(v is not None and v != "" for v in cells):
            number = row.get("r", "")
            rows.append((int(number) if number.isdecimal() else line, cells))
        if len(rows) * max(len(cells), 1) > MOST_CELLS:
            raise InputError(f"{path} must have at most {MOST_CELLS:,} cells; got more.")
    return rows


def _column(place: str, default: int) -> int:
    letters = re.match(r"[A-Z]{1,3}(?=\d)", place)
    if letters is None:
        return default
    index = 0
    for letter in letters[0]:
        index = 26 * index + ord(letter) - 64
    return min(index - 1, MOST_COLUMNS)


def _value(cell: ElementTree.Element, texts: list[str]) -> Any:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(t.text or "" for t in cell.iter(f"{_SPACE}t"))
    value = cell.find(f"{_SPACE}v")
    if value is None or value.text is None:
        return None
    if kind == "s":
        index = int(value.text)
        return texts[index] if 0 <= index < len(texts) else None
    # Numbers are written with points, whatever the language of the workbook.
    return float(value.text) if kind == "n" else value.text


def _sheet(rows: list[tuple[int, list[Any]]], path: Path) -> Sheet:
    header = [str(name).strip() if name is not None else "" for name in rows[0][1]]
    cells: Cells = {}
    for i, name in enumerate(header):
        if name:
            cells.setdefault(name, [row[i] if i < len(row) else None for _, row in rows[1:]])
    if not cells:
        raise InputError(f"{path} must have a header line that names its columns; got none.")
    twice = frozenset(name for name in header if name and header.count(name) > 1)
    return Sheet(cells, [line for line, _ in rows[1:]], "Excel", twice=twice)
