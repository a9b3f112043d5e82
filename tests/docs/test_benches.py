"""Benches that lack something end in one sentence."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
OWN = {"every_bench", "fuzz", "malformed", "scalebench", "variables"}
"""Programs that check for themselves, or need nothing."""


def programs():
    return [f for f in sorted(BENCH.glob("*.py")) if '__name__ == "__main__"' in f.read_text()]


@pytest.fixture
def needs():
    spec = importlib.util.spec_from_file_location("bench_needs", BENCH / "needs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_bench_is_run_by_needs():
    assert len(programs()) > 50
    others = {f.stem for f in programs() if "needs.run(" not in f.read_text()}
    assert others <= OWN


def test_missing_data_and_packages_are_named(needs, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench"])
    with pytest.raises(SystemExit, match=r"reads public data in .*absent"):
        needs.run(lambda: None, tmp_path / "data")

    def package():
        import no_such_package  # noqa: F401

    with pytest.raises(SystemExit, match="needs no_such_package"):
        needs.run(package)
    with pytest.raises(SystemExit, match=r"reads public data in .*absent"):
        needs.run(lambda: (tmp_path / "data" / "runs.csv").read_text())


def test_other_errors_are_raised(needs, tmp_path):
    with pytest.raises(FileNotFoundError):
        needs.run(lambda: (tmp_path / "other" / "runs.csv").read_text())

    def own():
        import allometry.no_such_module  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        needs.run(own)
