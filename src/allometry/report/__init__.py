"""Reports: what the runs tell, as a story, a page, charts and terminal tables."""

from pathlib import Path

from allometry.laws import Law, Plan
from allometry.report.runs import RunsLike
from allometry.report.story import Story, tell

__all__ = ["Story", "tell", "write"]


def write(
    path: Path | str,
    runs: RunsLike,
    law: Law | None = None,
    plan: Plan | None = None,
    *,
    story: Story | None = None,
) -> Path:
    """Write the report of a study as one HTML file; see `allometry.report.page.write`."""
    # Altair takes half a second to import, and the command line reads stories without it.
    from allometry.report.page import write

    return write(path, runs, law, plan, story=story)
