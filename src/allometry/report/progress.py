"""The progress of a running study as a table, without fitting anything."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from allometry.report import formatting as fmt


def rungs(records: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row per family, shape and number of tokens, in order of size.

    Args:
        records: The last record of each run in the journal, by key.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records.values():
        place = (record["family"], record["N"], record["shape"], record["D"])
        groups.setdefault(place, []).append(record)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("family", "shape"):
        table.add_column(head)
    for head in ("N", "D", "done", "failed", "loss", "seconds per run"):
        table.add_column(head, justify="right")
    for (family, N, shape, D), found in sorted(groups.items()):
        done = [record for record in found if record.get("status", "done") == "done"]
        losses = [record["loss"] for record in done]
        seconds = [record["seconds"] for record in done if record.get("seconds") is not None]
        table.add_row(
            family,
            shape,
            fmt.count(N),
            fmt.count(D),
            str(len(done)),
            str(len(found) - len(done)),
            _range(losses),
            f"{sum(seconds) / len(seconds):.1f}" if seconds else "",
        )
    return table


def _range(losses: list[float]) -> str:
    """The mean, and the range of several."""
    if not losses:
        return ""
    mean = f"{sum(losses) / len(losses):.3f}"
    return f"{mean} ({min(losses):.3f} to {max(losses):.3f})" if len(losses) > 1 else mean
