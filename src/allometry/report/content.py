"""The content of a page: sections, each a list of text, charts and tables in reading order.

Every section in `allometry.report.sections` follows one protocol, `Section`. The page draws the
charts and fills the template; it knows no section by name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from allometry.report.cells import Table
from allometry.report.planner_data import Planner
from allometry.report.png_images import Picture
from allometry.report.run_groups import RunsLike
from allometry.report.theme import Spec

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis


@final
@dataclass(frozen=True)
class Prose:
    """A paragraph. `style` is its CSS class: `lead`, or `aside` for a remark."""

    text: str
    style: str = "lead"


@final
@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


@final
@dataclass(frozen=True)
class Chart:
    """A chart: its file name, a function from the width in pixels to the chart, its caption.

    The function returns `None` if there is nothing to draw.
    """

    name: str
    draw: Callable[[int], Spec | None]
    caption: str


@final
@dataclass(frozen=True)
class ChartRow:
    """Small charts side by side."""

    charts: tuple[Chart, ...]


@final
@dataclass(frozen=True)
class Folded:
    """Sentences that the reader can unfold."""

    title: str
    sentences: tuple[str, ...]


@final
@dataclass(frozen=True)
class Sample:
    """A generated text, a title with its model, and a line on shape and loss."""

    title: str
    under: str
    text: str


@final
@dataclass(frozen=True)
class Samples:
    """Generated texts side by side."""

    samples: tuple[Sample, ...]


@final
@dataclass(frozen=True)
class LawTable:
    """The parameters of a scaling law, its equation and its warnings."""

    title: str
    equation: str
    table: Table
    warnings: tuple[str, ...]


@final
@dataclass(frozen=True)
class Definitions:
    """Names with their values."""

    rows: tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True)
class Code:
    """Preformatted text."""

    text: str


Block = (
    Prose
    | Heading
    | Chart
    | ChartRow
    | Table
    | Folded
    | Picture
    | Samples
    | LawTable
    | Definitions
    | Code
    | Planner
)
"""What a section can contain."""


@final
@dataclass(frozen=True)
class Part:
    """One `<section>` of the page: its id, its title and its blocks.

    The page leaves out a part without blocks, or with nothing but charts that draw nothing.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]


@final
@dataclass(frozen=True)
class Section:
    """The protocol of the sections of a report.

    Args:
        applies: Whether a study has this section. It must be cheap and must not import torch.
        parts: The section's content; usually one part.
    """

    applies: Callable[[RunsLike, "Analysis"], bool]
    parts: Callable[[RunsLike, "Analysis"], Iterable[Part]]
