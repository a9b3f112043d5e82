"""A study struck by a fault, then gone on with: what was lost, repeated or left broken."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allometry._core.arrays import read_arrays
from allometry._core.errors import AllometryError, StorageError
from allometry.runs.folder import curve_path
from allometry.study import Runs
from allometry.train import checkpoint
from tests.support import stub
from tests.support.faults import Disk, Fault, PowerLoss, installed


@dataclass
class Verdict:
    """How it ended; all of the lists should be empty."""

    ended: str
    """`whole` where the study went on as if nothing were, `refused` in a sentence, or `off`."""
    operation: str = ""
    lost: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return not (self.lost or self.repeated or self.wrong)


def carry_out(folder: Path, runs: int, disk: Disk) -> tuple[str, set[str], str]:
    """How a study ended on `disk`, which runs it reported as done, and what it said."""
    done: set[str] = set()

    def watch(event):
        if event.kind == "done":
            done.add(event.task.key)

    stub.begun.clear()
    try:
        with installed(disk):
            stub.stub_study(runs).run(folder, stub.Here(), watch=watch)
    except PowerLoss:
        return "off", done, ""
    except StorageError as error:
        return "refused", done, str(error)
    return "whole", done, ""


def operations(root: Path, runs: int, begin: Callable[[Path], None]) -> list[str]:
    """What an undisturbed study asks of the disk, in order."""
    begin(root)
    disk = Disk(root)
    assert carry_out(root / "study", runs, disk)[0] == "whole"
    return disk.operations


def strike(root: Path, runs: int, fault: Fault, at: int, begin: Callable[[Path], None]) -> Verdict:
    """Begin a study, strike its operation number `at`, go on undisturbed and look at it.

    Args:
        root: A folder that is emptied first.
        runs: Of the study.
        fault: What happens.
        at: To which operation.
        begin: Puts what there is before into `root`.
    """
    begin(root)
    folder = root / "study"
    before = _done(folder)
    disk = Disk(root, fault, at)
    ended, acknowledged, said = carry_out(folder, runs, disk)
    verdict = Verdict(ended, disk.operations[at])
    acknowledged |= before
    if ended == "off":
        disk.fail()
    if ended == "refused" and fault in (Fault.SHORT, Fault.INTERRUPTED):
        verdict.wrong.append(f"gave up: {said}")
    try:
        verdict.lost = acknowledged - _done(folder)
        ended, _, said = carry_out(folder, runs, Disk(root))
        verdict.repeated = acknowledged & set(stub.begun)
        if ended != "whole":
            verdict.wrong.append(f"does not go on: {said}")
        verdict.wrong += _wrong(folder, runs)
    except AllometryError as error:
        verdict.wrong.append(str(error))
    return verdict


def _done(folder: Path) -> set[str]:
    if not (folder / "study.json").exists():
        return set()
    return set(Runs(folder).journal.latest())


def _wrong(folder: Path, runs: int) -> list[str]:
    """What is not as an undisturbed study leaves it."""
    found = Runs(folder)
    keys = [record["key"] for record in found.journal.read()]
    wrong = [] if len(keys) == len(set(keys)) == runs else [f"{len(keys)} lines, not {runs}"]
    if (set(found.frame()["status"])) != {"done"}:
        wrong.append("a run is not done")
    if [(r["seed"], r["loss"]) for r in sorted_records(found)] != reference(runs):
        wrong.append("numbers differ")
    for key in keys:
        read_arrays(curve_path(folder, key))
        checkpoint.read(folder / "weights" / f"{key}.safetensors")
    if list((folder / "checkpoints").iterdir()):
        wrong.append("checkpoints are left")
    if list(folder.rglob("*.part")):
        wrong.append("half a file is left")
    return wrong


def sorted_records(runs: Runs) -> list[dict]:
    return sorted(runs.journal.read(), key=lambda record: record["seed"])


_reference: dict[int, list] = {}


def reference(runs: int) -> list:
    """Seeds and losses of an undisturbed study, made once."""
    if runs not in _reference:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            carry_out(root / "study", runs, Disk(root))
            found = sorted_records(Runs(root / "study"))
            _reference[runs] = [(r["seed"], r["loss"]) for r in found]
    return _reference[runs]


def afresh(root: Path) -> None:
    """Nothing is there."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)


def halfway(runs: int, at: int) -> Callable[[Path], None]:
    """What a power failure at operation `at` left, with a torn line at the journal's end."""

    def begin(root: Path) -> None:
        afresh(root)
        disk = Disk(root, Fault.REORDERED, at)
        assert carry_out(root / "study", runs, disk)[0] == "off"
        disk.fail()
        with (root / "study" / "journal.jsonl").open("ab") as file:
            file.write(b'{"key": "torn')

    return begin
