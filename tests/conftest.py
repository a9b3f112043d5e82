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


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data that lies beside a checkout of the project."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets (../shared/data) are not beside this checkout")
    return folder
