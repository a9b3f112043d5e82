"""The sections of a report, in page order. Each follows the protocol `content.Section`.

To add a section, write a module with a `SECTION` and list it here.
"""

from allometry.report.sections import (
    densities,
    families,
    gan,
    nesting,
    planner,
    records,
    results,
    sample_quality,
    sizes,
    theory,
)

SECTIONS = (
    theory.SECTION,
    results.FAMILIES,
    results.COMPUTE,
    planner.SECTION,
    nesting.SECTION,
    sizes.SECTION,
    families.SECTION,
    results.LAWS,
    results.UNITS,
    results.CURVES,
    gan.SECTION,
    sample_quality.SECTION,
    densities.SECTION,
    records.RUNS,
    records.SAMPLES,
    records.FAILED,
    records.PARAMETERS,
    records.PROVENANCE,
    records.CITATION,
)
"""Every section in page order."""
