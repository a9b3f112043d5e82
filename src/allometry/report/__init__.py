"""Reports: what the runs tell, as a story, a page, charts and terminal tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allometry.laws import Law, Plan
    from allometry.report.analysis import Analysis, tell
    from allometry.report.run_groups import RunsLike

__all__ = ["Analysis", "tell", "write"]


def __getattr__(name: str) -> Any:
    # Stories import pandas, and whoever only needs words for numbers should not wait for it.
    if name in ("Analysis", "tell"):
        from allometry.report import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def write(
    path: Path | str,
    runs: "RunsLike",
    law: "Law | None" = None,
    plan: "Plan | None" = None,
    *,
    story: "Analysis | None" = None,
) -> Path:
    """Write the report of a study as one HTML file; see `allometry.report.page.write`."""
    # Altair takes half a second to import, and the command line reads stories without it.
    from allometry.report.page import write

    return write(path, runs, law, plan, story=story)
