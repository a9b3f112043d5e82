"""Draw the error of predicted losses by group of families, by 0.9 and today.

`python bench/calibrate.py --json FILE`, then `python docs/make_extrapolation.py FILE`: the picture
becomes docs/figures/extrapolation_error.svg.
"""

import sys
from pathlib import Path

import pandas as pd

from allometry.report import theme

FIGURES = Path(__file__).parent / "figures"
NAMES = {"(a) before": "`auto` of 0.9", "calibrated, left out": "today, group left out"}


def chart(frame: pd.DataFrame) -> dict:
    """Signed error per decade of compute beyond the runs, the median of each group's cuts."""
    grids = frame[(frame.kind == "grid") & frame.method.isin(NAMES)]
    error = (100 * grids.signed / grids.decades).groupby([grids.group, grids.method]).median()
    rows = [
        {"group": str(group), "method": NAMES[str(method)], "error": float(value)}
        for (group, method), value in error.items()
    ]
    first = sorted(
        (r for r in rows if r["method"] == NAMES["(a) before"]), key=lambda r: r["error"]
    )
    order = [row["group"] for row in first]
    shared = {"y": {"field": "group", "type": "nominal", "sort": order, "title": None}}
    axis = {
        "field": "error",
        "type": "quantitative",
        "title": "predicted too high, % per decade of compute",
    }
    colour = {"field": "method", "type": "nominal", "title": None, "sort": list(NAMES.values()),
              "legend": {"orient": "top"}}  # fmt: skip
    return {
        "data": {"values": rows},
        "width": 420,
        "height": {"step": 20},
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [3, 3]}, "encoding": {"x": {"datum": 0}}},
            {"mark": {"type": "line", "opacity": 0.4},
             "encoding": shared | {"x": axis, "detail": {"field": "group"}}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": shared | {"x": axis, "color": colour}},
        ],
    }  # fmt: skip


if __name__ == "__main__":
    drawn = theme.svg(chart(pd.read_json(sys.argv[1], lines=True)))
    (FIGURES / "extrapolation_error.svg").write_text(theme.on_paper(drawn), encoding="utf-8")
