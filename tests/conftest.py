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
