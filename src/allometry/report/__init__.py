"""Reports: the analysis of a study, its HTML page, charts and terminal tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from allometry._core.lazy_names import lazy_names

if TYPE_CHECKING:
    from allometry.laws import Law, Plan
    from allometry.report import figures, likelihood_units, process_spectra
    from allometry.report.analysis import Analysis, analyse
    from allometry.report.run_groups import RunsLike

__all__ = [
    "Analysis",
    "analyse",
    "figures",
    "likelihood_units",
    "process_spectra",
    "write",
]

# Everything here loads on first use: pandas and the charts take most of a second to import.
__getattr__, __dir__ = lazy_names(
    __name__,
    {".analysis": ("Analysis", "analyse")},
    modules=("code_figures", "figures", "likelihood_units", "process_spectra"),
    old=dict(  # noqa: C408 - keywords are names, which the check of the words leaves alone
        Story="Analysis",
        tell="analyse",
        codes="code_figures",
        families="allometry.report.sections:families",
        spectra="process_spectra",
        units="likelihood_units",
    ),
)


def write(
    path: Path | str,
    runs: "RunsLike",
    law: "Law | None" = None,
    plan: "Plan | None" = None,
    *,
    analysis: "Analysis | None" = None,
    story: "Analysis | None" = None,
) -> Path:
    """Write the report of a study as one HTML file; see `allometry.report.page.write`.

    Args:
        path: The HTML file.
        runs: A study's runs.
        law: The scaling law of the trained family. Default: fitted here.
        plan: A plan to show beside the predictions for 10 and 100 times the compute.
        analysis: What `analyse` returned, to save its time. Default: computed here.
        story: Deprecated name of `analysis`.
    """
    from allometry.report import page

    if story is not None:
        import warnings

        message = "write(story=...) is deprecated since 0.2 and removed in 0.3. Use analysis=..."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        analysis = story
    return page.write(path, runs, law, plan, analysis=analysis)
