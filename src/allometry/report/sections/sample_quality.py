"""Sample quality: the metrics that a study measured, as a table."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from allometry.report import formatting as fmt
from allometry.report.analysis import Analysis
from allometry.report.cells import Cell, Head, Table, number
from allometry.report.content import Part, Prose, Section
from allometry.report.run_groups import RunsLike, finished, table


def measured(runs: RunsLike) -> list[str]:
    """Names of the metrics in the study's frame."""
    names = getattr(runs, "measures", None)
    return list(names()) if names is not None else []


def measures(runs: RunsLike, analysis: Analysis) -> Table | None:
    """Every metric of each shape at the most data it finished on, averaged over seeds.

    The standard error combines the spread between seeds with the measurement error, which the
    seeds share.
    """
    names = measured(runs)
    if not names:
        return None
    done = finished(table(runs))
    rows = []
    for family in [f.name for f in analysis.families]:
        own = done[done["family"] == family]
        for shape in _largest(own):
            some = own[own["shape"] == shape]
            # In an unfinished study the largest budget of one shape may be missing in another.
            some = some[some["D"] == some["D"].max()]
            rows.append(
                (
                    Cell(fmt.family(family), kind="tight"),
                    Cell(str(shape), kind="tight"),
                    number(float(some["N"].iloc[0]), fmt.count),
                    *(_cell(some, name) for name in names),
                )
            )
    if not rows:
        return None
    heads = (
        Head("Family", kind="tight"),
        Head("Shape", kind="tight"),
        Head("N", "parameters", "num"),
        *(Head(name.replace("_", " "), kind="num") for name in names),
    )
    caption = (
        "Metrics of each model's samples, at the most data it finished on; ± standard error over "
        "seeds and samples"
    )
    return Table(caption, heads, tuple(rows))


def _largest(own: pd.DataFrame, most: int = 4) -> list[str]:
    """Shapes by size, the largest `most` of them."""
    sizes = own.groupby("shape")["N"].max().sort_values()
    return [str(shape) for shape in sizes.index[-most:]]


def _cell(some: pd.DataFrame, name: str) -> Cell:
    values = pd.to_numeric(some[name], errors="coerce").dropna().to_numpy(float)
    if not len(values):
        return Cell("—", order="", kind="num")
    value = float(values.mean())
    spread = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    errors = some.get(f"{name}_se")
    own = float(np.nanmean(pd.to_numeric(errors, errors="coerce"))) if errors is not None else 0.0
    se = math.sqrt(spread + (own if math.isfinite(own) else 0.0) ** 2)
    more = f"± {fmt.significant(se, 2)}" if se > 0 else ""
    return Cell(fmt.significant(value, 3), more=more, order=value, kind="num")


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    table = measures(runs, analysis)
    if table is not None:
        lead = Prose("Each metric captures what the others miss. Features are the raw data.")
        yield Part("measures", "Sample quality", (lead, table))


SECTION = Section(lambda runs, analysis: bool(measured(runs)), _parts)
