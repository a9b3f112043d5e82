"""Shared by all tests; float64 is set at import, for module-level tensors escape fixtures."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

hypothesis.settings.register_profile(
    "allometry", deadline=None, max_examples=30, derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("allometry")

ROOT = Path(__file__).parent.parent

LONGEST = (
    *("study/test_study", "cli/test_cli", "report/test_headlines", "report/test_analysis"),
    *("cli/test_all_families", "course/test_lessons", "study/test_ray_cluster"),
    *("study/test_packing", "train/test_packed_loop", "train/test_packed_stack"),
    *("report/test_page", "report/test_browser", "study/test_child_processes"),
    *("models/test_packed_mlp", "models/test_diffusion", "report/test_journals"),
    *("study/test_density_studies", "study/test_deterministic", "study/test_time_budget"),
    *("security/test_code_from_files", "measure/test_interval_coverage", "laws/test_golden"),
    *("study/test_torchrun", "laws/test_fit", "laws/test_decisions"),
)
"""Files that take longest, which start first, so that parallel workers end together."""


def pytest_collection_modifyitems(items):
    first = {ROOT / "tests" / f"{name}.py": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


def pytest_runtest_teardown():
    """A run that trains in the test's own process sets float32, which is not for the next test."""
    torch.set_default_dtype(torch.float64)


class RealData:
    """Public data sets: those whose licence allows it in `tests/data`, the others beside us."""

    def __truediv__(self, name):
        for folder in (ROOT / "tests" / "data", ROOT.parent / "shared" / "data"):
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"{name} is not in tests/data, and ../shared/data is not beside this checkout")


@pytest.fixture(scope="session")
def shared_data():
    """Folders of public data by name: `shared_data / "gadre_overtraining/runs_104.csv"`."""
    return RealData()
