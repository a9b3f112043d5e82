"""What a study would cost, as a table."""

from collections import Counter
from typing import Any

from rich.table import Table

from allometry.report import formatting as fmt


def grid(rows: list[dict[str, Any]]) -> Table:
    """A row per configuration: its seeds differ in nothing that costs."""
    seeds = Counter(_what(row) for row in rows)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("family", "shape"):
        table.add_column(head)
    for head in ("N", "D", "C", "runs", "time of one"):
        table.add_column(head, justify="right")
    for what, number in seeds.items():
        family, shape, N, D, C, seconds = what
        cells = (fmt.count(N), fmt.count(D), fmt.flops(C) if C else "none")
        table.add_row(family, shape, *cells, str(number), fmt.duration(seconds))
    return table


def _what(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("family", "shape", "N", "D", "C", "seconds"))
