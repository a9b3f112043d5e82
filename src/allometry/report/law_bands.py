"""Lines and bands of a scaling law along the runs' own sizes and data, for the charts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from allometry.laws import Law
from allometry.report import formatting as fmt
from allometry.report.prose import plural
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    import pandas as pd

POINTS = 48
MOST_LINES = 6


def grid(configurations: Sequence[Configuration]) -> bool:
    """Whether some size was trained on more than one amount of data."""
    seen: dict[float, set[float]] = {}
    for c in configurations:
        seen.setdefault(c.N, set()).add(c.D)
    return any(len(amounts) > 1 for amounts in seen.values())


@final
@dataclass(frozen=True)
class Series:
    """Runs grouped into lines: what the lines differ in, and each line's run keys by its name."""

    title: str
    lines: dict[str, list[str]]


def series(configurations: Sequence[Configuration], x: str, token: str) -> Series:
    """The runs grouped into lines for a chart against `x`.

    One amount of data per size: one line. Several: against D one line per size; against N and C
    one line per amount of data, or per ratio of data to parameters if the sizes share that.
    """
    if not grid(configurations):
        return Series("", {"": [k for c in configurations for k in c.keys]})
    title, names = _names(configurations, x, token)
    lines: dict[tuple[float, str], list[str]] = {}
    for c, name in zip(configurations, names, strict=True):
        lines.setdefault(name, []).extend(c.keys)
    return Series(title, {name: lines[value, name] for value, name in sorted(lines)})


def _names(
    configurations: Sequence[Configuration], x: str, token: str
) -> tuple[str, list[tuple[float, str]]]:
    """What the lines differ in, and the sort key and name of each configuration's line."""
    if x == "D":
        return "Parameters", [(c.N, fmt.count(c.N)) for c in configurations]
    amounts: dict[float, list[float]] = {}
    for c in configurations:
        amounts.setdefault(c.N, []).append(c.D)
    most = max(len(set(found)) for found in amounts.values())
    data = plural(token).capitalize()
    by_data = [(c.D, fmt.count(c.D)) for c in configurations]
    ratios = [float(f"{c.D / c.N:.2g}") for c in configurations]
    by_ratio = [(r, fmt.significant(r)) for r in ratios]
    for title, names in ((f"{data} seen", by_data), (f"{data} per parameter", by_ratio)):
        if len(set(names)) <= most:
            return title, names
    # The sizes share neither, so lines go by rank: the least data of each size, the next, ...
    ranks = [sorted(set(amounts[c.N])).index(c.D) for c in configurations]
    return "Data, from least to most", [(float(r), str(r + 1)) for r in ranks]


def bands(
    law: Law,
    configurations: Sequence[Configuration],
    x: str,
    token: str,
    beyond: float = 1.6,
) -> "pd.DataFrame":
    """The law's middle and 95 % band along each line of `series`.

    Between the runs of a line, N, D and C are interpolated in logarithms; beyond its end they
    follow the linear fit through its runs.

    Returns:
        Columns line, N, D, C, lo, mid, hi.
    """
    import pandas as pd

    by_key = {key: c for c in configurations for key in c.keys}
    lines = series(configurations, x, token).lines
    names = list(lines)
    if len(names) > MOST_LINES:
        # Evenly spread with both ends: more lines than this are not distinguishable.
        names = [names[round(i)] for i in np.linspace(0, len(names) - 1, MOST_LINES)]
    paths = []
    for name in names:
        members = list({by_key[key]: None for key in lines[name]})
        path = _path(members, x, beyond)
        if path is None:
            continue
        lo, mid, hi = law.band(**{n: path[n].to_numpy() for n in "NDC"})
        paths.append(path.assign(line=name, lo=lo, mid=mid, hi=hi))
    columns = ["line", "N", "D", "C", "lo", "mid", "hi"]
    return pd.concat(paths, ignore_index=True) if paths else pd.DataFrame(columns=columns)


def _path(members: list[Configuration], x: str, beyond: float) -> "pd.DataFrame | None":
    import pandas as pd

    logs = {
        n: np.array([math.log(getattr(c, n)) if getattr(c, n) > 0 else -math.inf for c in members])
        for n in "NDC"
    }
    t = logs[x]
    if not np.isfinite(t).all() or len(np.unique(t)) < 2:
        return None
    at, where = np.unique(t, return_inverse=True)
    reach = math.log(beyond)
    points = np.unique(np.concatenate([np.linspace(at[0], at[-1] + reach, POINTS), at]))
    columns = {}
    for n, values in logs.items():
        mean = np.array([values[where == i].mean() for i in range(len(at))])
        slope = np.polyfit(at, mean, 1)[0] if np.isfinite(mean).all() else 0.0
        inside = np.interp(points, at, mean)
        columns[n] = np.exp(inside + slope * np.maximum(points - at[-1], 0.0))
    return pd.DataFrame(columns)
