"""Storage that fails: whatever happens at whichever operation, no acknowledged run is lost.

Every operation is struck by some fault here, and every fault strikes some of each kind of
operation; `bench/faults.py` strikes all operations of a longer study with all of them.
"""

import pytest

from allometry._core import files
from allometry.runs import journal
from tests.support.faults import Fault
from tests.support.ordeal import afresh, halfway, operations, strike

RUNS = 2
FAULTS = list(Fault)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_no_acknowledged_run_is_lost_or_repeated(tmp_path, fault):
    root = tmp_path / "disk"
    number = len(operations(root, RUNS, afresh))
    for at in range(FAULTS.index(fault), number, len(FAULTS)):
        verdict = strike(root, RUNS, fault, at, afresh)
        assert verdict.fine, (at, verdict)
        if fault in (Fault.FULL, Fault.BROKEN):
            # The last word of all, that the lock is free, needs no disk.
            assert verdict.ended == "refused" or at == number - 1, (at, verdict)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_nor_is_one_of_a_study_that_was_struck_before(tmp_path, fault):
    root = tmp_path / "disk"
    begin = halfway(RUNS, at=85)
    number = len(operations(root, RUNS, begin))
    for at in range(FAULTS.index(fault), number, 2 * len(FAULTS)):
        verdict = strike(root, RUNS, fault, at, begin)
        assert verdict.fine, (at, verdict)


def found_out(root, fault):
    """What the first strike brings to light that does any harm; backwards, as later ones do."""
    number = len(operations(root, RUNS, afresh))
    struck = (strike(root, RUNS, fault, at, afresh) for at in range(number - 1, 0, -1))
    return next((verdict for verdict in struck if not verdict.fine), None)


def test_a_study_that_does_not_sync_its_folders_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "sync_folder", lambda path: None)
    assert found_out(tmp_path / "disk", Fault.LOST).lost


def test_a_study_that_names_files_before_their_bytes_are_safe_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "sync", lambda file: file.flush())
    assert found_out(tmp_path / "disk", Fault.REORDERED).wrong


def test_a_study_that_gives_up_when_interrupted_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(
        files, "retry_interrupted", lambda call, *given, **options: call(*given, **options)
    )
    assert found_out(tmp_path / "disk", Fault.INTERRUPTED).wrong


def test_a_study_that_acknowledges_before_its_line_is_safe_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(
        journal,
        "_append",
        lambda file, line: journal._write(file, line, journal._complete_length(file)),
    )
    assert found_out(tmp_path / "disk", Fault.LOST).lost
