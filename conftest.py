"""Runs every Python block of the README and the docs; the blocks of a page share a namespace."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A page's blocks run as a reader's would: in a folder of their own, in float32."""
    here, dtype = Path.cwd(), torch.get_default_dtype()
    os.chdir(tmp_path_factory.mktemp("page"))
    torch.set_default_dtype(torch.float32)
    yield Path.cwd()
    torch.set_default_dtype(dtype)
    os.chdir(here)


# These scripts read their command lines; tests/study runs them.
collect_ignore = ["docs/examples"]

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    excludes=["docs/course/*.md"],  # tests/course runs the lessons
    fixtures=["elsewhere"],
).pytest()
