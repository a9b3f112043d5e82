"""Pictures of densities, codes and samples, in studies of points, images or tables."""

from collections.abc import Iterator

from allometry.report.analysis import Analysis
from allometry.report.content import Part, Section
from allometry.report.run_groups import RunsLike, about


def _applies(runs: RunsLike, analysis: Analysis) -> bool:
    target = about(runs).get("target")
    kind = target.get("kind") if isinstance(target, dict) else None
    return kind in ("points", "images", "table") and "folder" in about(runs)


def _parts(runs: RunsLike, analysis: Analysis) -> Iterator[Part]:
    # These pictures need the models and so torch, which other studies do not load.
    from allometry.report.density_figures import pictures

    yield Part("pictures", "Densities and samples", tuple(pictures(runs)))


SECTION = Section(_applies, _parts)
