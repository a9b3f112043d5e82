"""How results show themselves in a notebook: tables as HTML, charts by Altair.

Laws, plans and runs are below `report` in the layers, and `report` draws them. `chart` therefore
names its module by text and imports it on use, as the registry does for files.
"""

import html
import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from allometry._core.errors import require_extra
from allometry._core.estimate import Estimate
from allometry._core.user_files import replace_controls

DRAWN_BY = "allometry.report.notebook_charts"
"""The module that draws what has a `plot` method."""


def escaped(value: object) -> str:
    """Text for HTML: markup escaped, control characters replaced."""
    return html.escape(replace_controls(str(value)))


def html_table(
    title: object,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    notes: Iterable[object] = (),
) -> str:
    """A table with a title and notes below it; all text is escaped.

    Example:
        >>> html_table("A < B", ["x"], [[1]])
        '<div><strong>A &lt; B</strong><table><tr><th>x</th></tr><tr><td>1</td></tr></table></div>'
    """
    top = "".join(f"<th>{escaped(head)}</th>" for head in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    head = f"<tr>{top}</tr>" if heads else ""
    below = "".join(f"<li>{escaped(note)}</li>" for note in notes)
    below = f"<ul>{below}</ul>" if below else ""
    return f"<div><strong>{escaped(title)}</strong><table>{head}{body}</table>{below}</div>"


def interval(estimate: Estimate | None, digits: int = 4) -> tuple[str, str]:
    """An estimate's value and its interval, as two cells."""
    if estimate is None:
        return "not identified", ""
    value = f"{estimate.value:.{digits}g}"
    if estimate.exact:
        return value, "exact"
    if estimate.lo is None or estimate.hi is None:
        return value, ""
    return value, f"{estimate.lo:.{digits}g} to {estimate.hi:.{digits}g}"


def chart(thing: object, kind: str | None = None) -> Any:
    """An Altair chart of a law, a plan or runs.

    Args:
        thing: What to draw.
        kind: Which of its charts; the first by default.

    Raises:
        MissingExtraError: Altair is not installed.
    """
    altair = require_extra("altair", "plot")
    spec = importlib.import_module(DRAWN_BY).specification(thing, kind)
    return altair.Chart.from_dict(spec)
