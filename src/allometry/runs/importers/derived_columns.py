"""Quantities that a log implies: tokens from batch and length, sizes from expressions or names."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from allometry._core.delimited import Sheet
from allometry._core.number_parsing import number, numbers
from allometry.runs.importers.names import plain
from allometry.runs.importers.run_log import RUN, steps_of

FROM_NAME = "params (from name)"
"""Column of sizes that were read from the names of runs."""

_PER_STEP = ("tokensperstep", "tokensperiter", "tokensperbatch", "tokensperiteration",
             "globalbatchsizetokens", "batchsizetokens", "traintokensperstep",
             "totalbatchsizeintokens")  # fmt: skip
_GLOBAL = ("globalbatchsize", "globaltrainbatchsize", "totalbatchsize", "totaltrainbatchsize",
           "trainingglobalbatchsize", "effectivebatchsize")  # fmt: skip
_BATCH = ("perdevicetrainbatchsize", "trainbatchsize", "trainingbatchsize", "batchsize",
          "microbatchsize", "devicebatchsize", "localbatchsize", "traininglocalbatchsize",
          "datamodulebatchsize", "databatchsize")  # fmt: skip
_ACCUMULATION = ("gradientaccumulationsteps", "gradaccumsteps", "accumulategradbatches",
                 "gradaccum")  # fmt: skip
_DEVICES = ("worldsize", "numdevices", "ngpus", "numgpus", "ngpu", "dataparallelsize")
_LENGTH = ("sequencelength", "seqlen", "seqlength", "maxseqlen", "maxseqlength", "blocksize",
           "contextlength", "contextsize", "context", "contextwindow", "trainingseqlen",
           "maxlength")  # fmt: skip

_NAME = re.compile(r"(?<![a-zA-Z0-9.])(\d+(?:[._]\d+)?)([KkMmBb])(?![a-zA-Z0-9])")


def tokens_seen(sheet: Sheet) -> tuple[Sheet, str] | None:
    """A column of tokens seen: steps x tokens per step, or x batch x sequence length.

    Returns:
        The sheet with the new column, and the column's name; `None` if the log does not say.
    """
    step = steps_of(list(sheet.cells))
    if step is None or plain(step)[0] == "epoch":
        return None
    parts = _factors(sheet)
    if parts is None:
        return None
    with np.errstate(over="ignore"):
        value = numbers(sheet.cells[step])
        for part in parts:
            value = value * numbers(sheet.cells[part])
    if not np.isfinite(value).any():
        return None
    name = " x ".join([step, *parts])
    return replace(sheet, cells={**sheet.cells, name: value.tolist()}), name


def _factors(sheet: Sheet) -> list[str] | None:
    """Columns whose product is the number of tokens in a step."""
    ends: dict[str, str] = {}
    for column in reversed(list(sheet.cells)):
        for depth in (3, 2, 1):  # a whole or a shorter name wins over a nested one
            short = plain(".".join(re.split(r"[./]", column)[-depth:]))[0]
            ends[short] = column
    for column in sheet.cells:
        ends[plain(column)[0]] = column
    ends = {short: c for short, c in ends.items() if _positive(sheet.cells[c])}

    def first(known: Sequence[str]) -> list[str]:
        return next(([ends[name]] for name in known if name in ends), [])

    whole, length = first(_PER_STEP), first(_LENGTH)
    if whole:
        return whole
    if not length:
        return None
    if batch := first(_GLOBAL):
        return batch + length
    if batch := first(_BATCH):
        return batch + first(_ACCUMULATION) + first(_DEVICES) + length
    return None


def _positive(values: Sequence[Any]) -> bool:
    some = [number(v) for v in values[:200] if v is not None and str(v).strip() != ""]
    return bool(some) and all(v > 0 for v in some)


def size_in_name(name: str) -> float:
    """A size such as 190M or 1.3B in the name of a run; NaN if it has none."""
    match = _NAME.search(name[:300])
    return math.nan if match is None else number(match[1].replace("_", ".") + match[2].upper())


def sizes_from_names(sheet: Sheet, column: str = RUN) -> Sheet | None:
    """A column of sizes in the names of runs; `None` if some have none."""
    sizes = [size_in_name(str(name)) for name in sheet.cells.get(column, ())]
    if not sizes or any(map(math.isnan, sizes)):
        return None
    return replace(sheet, cells={**sheet.cells, FROM_NAME: sizes})


def shape_example(names: Sequence[str]) -> str:
    """An expression of depth and width for `--n-from`, if the columns have both; else empty."""
    short = {plain(re.split(r"[./]", name)[-1])[0]: name for name in names}
    depths = ("nlayer", "nlayers", "numlayers", "numhiddenlayers", "depth", "layers")
    widths = ("nembd", "dmodel", "hiddensize", "width", "dim", "modeldim")
    depth = next((short[d] for d in depths if d in short), None)
    width = next((short[w] for w in widths if w in short), None)
    return f"12*{depth}*{width}^2" if depth and width else ""
