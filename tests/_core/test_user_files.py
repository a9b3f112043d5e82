"""Files that are handed in: pipes, devices, bytes that are no text, arrays that claim too much."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from allometry._core import arrays, user_files
from allometry._core.errors import InputError, StorageError
from allometry.measure import sample_inputs
from allometry.targets import Grammar, Images, Text, TuringMachine

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "read",
    [
        user_files.read_text,
        arrays.read_npy,
        arrays.read_npz,
        Text,
        Grammar.from_file,
        TuringMachine.from_file,
        lambda path: sample_inputs.load(path.rename(path.with_suffix(".csv"))),
        lambda path: sample_inputs.load(path.rename(path.with_suffix(".npz"))),
        lambda path: sample_inputs.load(path.rename(path.with_suffix(".safetensors"))),
    ],
)
def test_no_reader_waits_at_a_pipe(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="regular file; got a named pipe"):
        read(tmp_path / "pipe")


def test_devices_and_endless_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="got a device"):
        user_files.read_bytes("/dev/zero")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="must have at most"):
        user_files.read_bytes(tmp_path / "sparse")
    with pytest.raises(StorageError, match="it is a folder"):
        user_files.read_bytes(tmp_path)


def test_text_must_be_utf8(tmp_path):
    (tmp_path / "x").write_bytes(b"S -> 'a\xff'")
    for read in (Grammar.from_file, TuringMachine.from_file):
        with pytest.raises(InputError, match="UTF-8; got the byte 0xff at 7"):
            read(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deep"),
        ("{", "line 1"),
        ("1" * 5000 + "e", "JSON"),
        (b"\xff", "JSON"),
        ('{"a": 1, "a": 2}', "'a' twice"),
    ],
)
def test_json_of_all_kinds_is_a_value_or_a_sentence(text, words):
    with pytest.raises(InputError, match=words):
        user_files.parse_json(text, "it", unique=True)
    assert user_files.parse_json("1" * 400, "it") == float("inf")


def test_walks_are_bounded_and_skip_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop").symlink_to(tmp_path)
    for i in range(5):
        (tmp_path / f"{i}.png").touch()
    assert len(list(user_files.files_below(tmp_path, lambda name: name.endswith(".png")))) == 5
    with pytest.raises(InputError, match="fewer than 3 files"):
        list(user_files.files_below(tmp_path, lambda _: True, most=3))


def header(shape, descr="<f8"):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


BAD_ARRAYS = {
    "empty": b"",
    "torn header": header((3,))[:30],
    "torn data": header((4, 3)) + X.tobytes()[:50],
    "claims a petabyte": header((10**15,)) + bytes(64),
    "claims more than there are numbers": header((10**30, 10**30)),
    "negative": header((-1, -8)) + bytes(64),
    "odd type": header((2,), "<x9") + bytes(64),
    "deep": b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000,
    "unknown version": b"\x93NUMPY\x09\x00" + bytes(200),
    "shape of words": header(("a",)) + bytes(64),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_damaged_arrays_are_a_sentence(tmp_path, case, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(BAD_ARRAYS[case])
    if kind == "npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", BAD_ARRAYS[case])
    with pytest.raises(InputError, match="must be a whole array file"):
        sample_inputs.load(path)
    if kind == "npy":
        with pytest.raises(InputError, match="must be a whole array file"):
            Images.array(str(path))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1], dtype="timedelta64[s]"),
        np.array([1j]),
        np.zeros(2, dtype=[("a", "f8")]),
        np.array([{}, []], dtype=object),
        np.array([b"x"]),
    ],
)
def test_arrays_of_anything_but_numbers_are_refused_and_not_unpickled(tmp_path, array):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=array)
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        with pytest.raises(InputError, match="must hold plain numbers"):
            sample_inputs.load(path)


@pytest.mark.parametrize("dtype", [">f8", ">i4", "<f2", "u2", "u4", "u8", "longdouble", "?", "i1"])
def test_numbers_of_every_kind_and_byte_order_are_read(tmp_path, dtype):
    np.save(tmp_path / "a.npy", X.astype(dtype))
    np.savez_compressed(tmp_path / "a.npz", x=X.astype(dtype))
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        assert torch.equal(
            sample_inputs.tensor(sample_inputs.load(path), "x").double(),
            torch.from_numpy(X.astype(dtype).astype(np.float64)),
        )


def test_an_archive_that_unpacks_to_all_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "largest_size", lambda: 1 << 20)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(1 << 18))
    with pytest.raises(InputError, match="quarter of this machine's memory"):
        sample_inputs.load(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16],
)
def test_short_floats_are_read(tmp_path, dtype):
    save_file({"x": torch.arange(8).to(dtype)}, tmp_path / "a.safetensors")
    assert sample_inputs.load(tmp_path / "a.safetensors").tolist() == list(range(8))


def damaged(**changes):
    """A safetensors file whose header says something wrong."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (1 << 60).to_bytes(8, "little") + b"{}",
        damaged(shape=[10**18]),
        damaged(shape=[-1]),
        damaged(dtype="F99"),
        damaged(dtype="C64"),
        damaged(data_offsets=[0, 1 << 40]),
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
        (2).to_bytes(8, "little") + b"\xff\xff",
    ],
)
def test_damaged_safetensors_are_a_sentence(tmp_path, data):
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"must be a safetensors file|plain numbers"):
        sample_inputs.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("a,b\n", "no rows"),
        ("x\n3,142\n2,987\n", "must say what its commas mean"),
        ("x,y\n1,2,3\n4,5,6\n", "as many cells as names"),
        ("1;2\n3;x\n", "plain numbers"),
        ("1,2\n3\n", "plain numbers"),
    ],
)
def test_tables_that_measures_refuse(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        sample_inputs.load(tmp_path / "a.csv")


def test_a_table_of_decimal_commas_for_measures(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1,5;2,25\n3;4,5\n")
    assert sample_inputs.load(tmp_path / "a.csv").tolist() == [[1.5, 2.25], [3, 4.5]]


def png(size):
    from PIL import Image

    data = io.BytesIO()
    Image.new("1", size).save(data, "png")
    return data.getvalue()


def test_images_that_unpack_to_too_much_or_to_nothing_are_a_sentence(tmp_path):
    (tmp_path / "a.png").write_bytes(png((20_000, 10_000)))
    with pytest.raises(InputError, match="at most 64,000,000 pixels"):
        Images.folder(str(tmp_path))
    whole = png((64, 64))
    for data in (whole[:40], whole[:-20], whole[:50] + b"\0" * 40, b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        (tmp_path / "a.png").write_bytes(data)
        with pytest.raises((InputError, StorageError)):
            Images.folder(str(tmp_path))


def test_images_of_no_pixels_or_of_endless_values_are_refused(tmp_path):
    for pixels in (np.zeros((3, 0, 4)), np.full((3, 2, 2), 2**40)):
        np.save(tmp_path / "a.npy", pixels)
        with pytest.raises(InputError, match=r"Images\.pixels must"):
            Images.array(str(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    "text",
    [
        '{"rules": {"a": {"0": ["1", "R", "a"]}}, "start": ["a"]}',
        '{"rules": {"a": {"0": ["1", "R", "a"]}}, "blank": {}}',
        '{"rules": {"a": {"0": ["1", "R", "a"]}, "a": {}}}',
        '{"rules":' * 1000,
        "{" + '"rules":[' * 200_000,
        "a 0 1 R\n",
        "1RB²RB_1LA1RZ",
        "",
    ],
)
def test_machines_that_are_none_are_a_sentence(text):
    with pytest.raises(InputError):
        TuringMachine.parse(text)


def test_a_long_line_of_a_grammar_takes_no_longer_than_its_length():
    assert len(Grammar("S -> " + "'a' " * 50_000).rules[0].right) == 50_000
