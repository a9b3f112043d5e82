"""One content, one study: a file is known by what is in it, by whatever path it is named."""

import inspect
import json
import os

import numpy as np
import pytest
from PIL import Image

from allometry import InputError, Spec, targets
from allometry.study import Study, local
from allometry.study.run_keys import with_folder_keys
from allometry.targets import Images, NumericTable, Sources, Text
from tests.study.fakes import OnTarget

WORDS = "she sells sea shells by the sea shore. " * 60


def write(folder):
    """A file, or a folder of them, of every kind that a target is read from."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    (folder / "t.txt").write_text(WORDS)
    (folder / "u.txt").write_text(WORDS[::-1])
    rows = "\n".join(f"{a:.3f};{b:.3f}" for a, b in rng.normal(size=(40, 2)))
    (folder / "t.csv").write_text("a;b\n" + rows + "\n")
    np.save(folder / "t.npy", rng.integers(0, 4, size=(40, 4, 4)))
    (folder / "images").mkdir(exist_ok=True)
    for i in range(20):
        pixels = rng.integers(0, 255, size=(4, 4), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")


TARGETS = {
    "text": ("t.txt", lambda path: Text(path)),
    "several texts": ("t.txt", lambda path: Text(path, path)),
    "sources": ("t.txt", lambda path: Sources(path, str(path).replace("t.txt", "u.txt"))),
    "table": ("t.csv", lambda path: NumericTable(str(path))),
    "array": ("t.npy", lambda path: Images.array(str(path))),
    "images": ("images", lambda path: Images.folder(str(path), size=4, grey=True)),
}
"""Every target that is read from files, by a function of the file's path."""


def spellings(folder, name):
    """Other names for the same file."""
    (folder / "inner").mkdir(exist_ok=True)
    (folder / "linked").symlink_to(folder)
    return [
        folder / name,
        folder / "inner" / ".." / name,
        folder / "linked" / name,
        os.path.relpath(folder / name),
    ]


@pytest.mark.parametrize("kind", TARGETS)
def test_every_path_of_a_content_is_one_request(tmp_path, kind):
    name, make = TARGETS[kind]
    write(tmp_path)
    keys = {Spec(OnTarget, target=make(path).spec).key for path in spellings(tmp_path, name)}
    assert len(keys) == 1
    write(tmp_path / "copy")
    assert Spec(OnTarget, target=make(tmp_path / "copy" / name).spec).key in keys


@pytest.mark.parametrize("kind", TARGETS)
def test_another_content_or_option_is_another_request(tmp_path, kind):
    name, make = TARGETS[kind]
    write(tmp_path)
    before = make(tmp_path / name)
    place = tmp_path / name
    if place.is_dir():
        (place / "0.png").unlink()
    elif place.suffix == ".npy":
        np.save(place, 3 - np.load(place))
    elif place.suffix == ".csv":
        place.write_text(place.read_text() + "1.5;1.5\n")
    else:
        place.write_text(WORDS + "one more line. " * 9)
    assert make(place).spec.key != before.spec.key
    # A worker that finds the file changed says so.
    with pytest.raises(InputError, match=r"fingerprint must be .*changed"):
        before.spec()


def test_every_target_that_is_read_from_files_is_known_by_its_content():
    found = set()
    for cls in vars(targets).values():
        if not (inspect.isclass(cls) and hasattr(cls, "spec")):
            continue
        for make in [cls, *(getattr(cls, n) for n in vars(cls) if n[0] != "_")]:
            if not (callable(make) and not inspect.ismethoddescriptor(make)):
                continue
            kinds = {p.name: p.kind for p in inspect.signature(make).parameters.values()}
            named = {"path", "paths"} & {n for n, k in kinds.items() if k != k.VAR_POSITIONAL}
            if named:
                assert make._file_arguments[0] == tuple(named), make
                assert "fingerprint" in kinds
                found.add(make)
    assert found == {
        Text.from_paths,
        Sources.from_paths,
        NumericTable,
        Images.array,
        Images.folder,
    }


def test_options_count(tmp_path):
    write(tmp_path)
    assert Text(tmp_path / "t.txt").spec.key != Text(tmp_path / "t.txt", size=5).spec.key
    table = str(tmp_path / "t.csv")
    assert NumericTable(table).spec.key != NumericTable(table, columns=["a"]).spec.key
    folder = str(tmp_path / "images")
    assert Images.folder(folder, size=4).spec.key != Images.folder(folder, size=5).spec.key


def test_a_key_survives_being_written_down(tmp_path):
    write(tmp_path)
    for name, make in TARGETS.values():
        spec = Spec(OnTarget, target=make(tmp_path / name).spec)
        assert Spec.from_dict(spec.to_dict(), trusted=True).key == spec.key


def test_without_a_fingerprint_the_path_stays_in_the_key():
    assert Spec(Text.from_paths, paths=["a"]).key != Spec(Text.from_paths, paths=["b"]).key


def study(target):
    def recipe(target, ladder, *, tokens, seeds):
        return [Spec(OnTarget, target=target.spec, seed=seed) for seed in range(2)]

    return Study(target, [recipe], [1000], tokens=100)


def test_a_study_by_another_path_is_not_repeated(tmp_path):
    write(tmp_path)
    folder = tmp_path / "study"
    for path in spellings(tmp_path, "t.txt"):
        runs = study(Text(path)).run(folder, local(1, 1))
        assert len(runs.journal.read()) == 2
        assert runs.state() == {"done": 2, "failed": 0, "diverged": 0, "waiting": 0}
    (tmp_path / "t.txt").write_text(WORDS + "changed. " * 9)
    with pytest.raises(InputError, match="must be a folder of the same target"):
        study(Text(tmp_path / "t.txt")).run(folder, local(1, 1))


def as_before(folder, target):
    """A folder as earlier versions wrote it: keys with paths in them, one of two runs done."""
    folder.mkdir()
    keys = [spec.legacy_key() for spec in study(target).specs()]
    about = {"target": target.describe(), "runs": keys, "ladder": [1000.0], "tokens": [100.0]}
    (folder / "study.json").write_text(json.dumps(about | {"seeds": 2, "versions": {}}))
    record = {"key": keys[0], "status": "done", "error": None, "loss": 1.5, "sample": ""}
    (folder / "journal.jsonl").write_text(json.dumps(record) + "\n")
    return set(keys)


@pytest.mark.parametrize("kind", ["text", "table"])
def test_folders_of_earlier_versions_resume_by_any_path(tmp_path, kind):
    name, make = TARGETS[kind]
    write(tmp_path)
    folder = tmp_path / "study"
    old = as_before(folder, make(tmp_path / name))
    # By another path first: then the description says that one, and the keys must still be found.
    for path in [*spellings(tmp_path, name)[2:], tmp_path / name]:
        runs = study(make(path)).run(folder, local(1, 1))
        assert {r["key"] for r in runs.journal.read()} == old
        assert len(runs.journal.read()) == 2
        assert runs.state() == {"done": 2, "failed": 0, "diverged": 0, "waiting": 0}


def test_keys_that_earlier_versions_wrote(tmp_path):
    """Computed by the code before keys went by content, for files at a fixed place."""
    spec = Spec(Text.from_paths, paths=["/data/t.txt"], vocabulary="bytes", fingerprint="f" * 64)
    assert spec.legacy_key() == "bd135d8a987da673"
    assert spec.legacy_key({"paths": ["/elsewhere/t.txt"]}) == "dd944715fa60c53a"
    table = Spec(NumericTable, path="/data/t.csv", columns=["a"], fingerprint="f" * 64)
    assert table.legacy_key() == "aaf644e53cd4a9ec"
    run = Spec(OnTarget, target=table, seed=3)
    assert run.legacy_key() == "360bf2470f85b7f5"
    assert len({spec.legacy_key(), spec.key, table.key, run.key}) == 4


def test_hostile_former_keys_are_refused(tmp_path):
    write(tmp_path)
    folder = tmp_path / "study"
    folder.mkdir()
    asked = study(Text(tmp_path / "t.txt"))
    former = {asked.specs()[0].key: "../../outside"}
    (folder / "study.json").write_text(json.dumps({"runs": [], "former": former}))
    with pytest.raises(OSError, match="former keys are not a mapping of keys"):
        with_folder_keys(asked.specs(), folder)
