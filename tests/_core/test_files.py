import errno
from pathlib import Path

import pytest

from allometry._core.errors import StorageError
from allometry._core.files import atomic_write, make_folder, storage_errors


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as file:
        file.write("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_write(path) as file:
        file.write(b"not text")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full of Linux")
def test_a_full_disk_is_one_plain_sentence():
    with (
        pytest.raises(StorageError, match=r"Can't write x: the disk is full\."),
        storage_errors("write", "x"),
        Path("/dev/full").open("w") as file,
    ):
        file.write("y")


def test_a_full_disk_while_replacing_leaves_nothing(tmp_path):
    with pytest.raises(StorageError, match="the disk is full"), atomic_write(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_new_files_have_ordinary_permissions(tmp_path):
    with atomic_write(tmp_path / "a") as file:
        file.write("x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_folder_under_a_file_is_refused_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file, not a folder"):
        make_folder(tmp_path / "file" / "below")
