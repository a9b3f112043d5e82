import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry._core.errors import StorageError
from allometry.runs import frame as frames
from allometry.runs.journal import Journal

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.from_regex(r"[0-9A-Za-z_-]{1,4}", fullmatch=True),
            "status": st.sampled_from(["done", "failed", "diverged"]),
            "word": st.text(max_size=4),
            "loss": st.floats(0, 9, allow_subnormal=False),
        }
    ),
    min_size=1,
    max_size=5,
)


def test_what_is_appended_is_read_back(tmp_path):
    journal = Journal(tmp_path / "j")
    assert journal.read() == []
    written = [{"key": "a", "status": "done", "word": "über\n"}, {"key": "b", "status": "failed"}]
    for record in written:
        journal.append(record)
    assert journal.read() == written


@given(written=records, cut=st.integers(0, 400), then=records)
def test_cut_at_any_byte_only_the_torn_line_is_lost(tmp_path_factory, written, cut, then):
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    journal = Journal(path)
    for record in written:
        journal.append(record)
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    whole = data.count(b"\n")
    assert journal.read() == written[:whole]
    for record in then:
        journal.append(record)
    assert journal.read() == written[:whole] + then


def test_damage_further_up_is_reported_and_nothing_dropped(tmp_path):
    path = tmp_path / "j"
    good = b'{"key": "a", "status": "done"}\n'
    path.write_bytes(good + b'{"key": oops\n' + good)
    with pytest.raises(StorageError, match=r"line 2 is damaged"):
        Journal(path).read()


def test_the_last_word_on_a_run_counts(tmp_path):
    journal = Journal(tmp_path / "j")
    for key, status in [("a", "failed"), ("b", "done"), ("a", "done")]:
        journal.append({"key": key, "status": status})
    assert [(k, r["status"]) for k, r in journal.latest().items()] == [
        ("a", "done"),
        ("b", "done"),
    ]


def test_a_long_line_is_found_across_chunks(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append({"key": "a", "status": "done", "x": "y" * 200_000})
    with (tmp_path / "j").open("ab") as file:
        file.write(b"torn" * 50_000)
    journal.append({"key": "b", "status": "done"})
    assert [r["key"] for r in journal.read()] == ["a", "b"]
    assert len((tmp_path / "j").read_bytes().splitlines()) == 2


def test_not_a_number_never_enters(tmp_path):
    with pytest.raises(TypeError, match="its loss is nan"):
        Journal(tmp_path / "j").append({"key": "a", "status": "done", "loss": float("nan")})
    assert Journal(tmp_path / "j").read() == []


numbers = st.one_of(st.none(), st.integers(0, 9), st.floats(0, 9, allow_subnormal=False))
text = st.one_of(st.none(), st.text(max_size=3))
anything = st.one_of(numbers, text, st.booleans())
lines = st.lists(
    st.builds(
        lambda key, status, rest: {"key": key, "status": status} | rest,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["done", "failed", "diverged"]),
        st.fixed_dictionaries(
            {},
            optional={
                "N": numbers,
                "loss": numbers,
                "error": text,
                "sample": text,
                "lr": anything,
            },
        ),
    ),
    max_size=12,
)


@given(written=lines, size=st.integers(1, 400))
def test_a_frame_in_batches_is_the_frame_of_all_records_at_once(tmp_path_factory, written, size):
    journal = Journal(tmp_path_factory.mktemp("j") / "journal.jsonl")
    for record in written:
        journal.append(record)
    latest = list(journal.latest().values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MANY", 3)
        made = frames.frame(journal.batches(size), ["key", "loss"])
    assert made["key"].tolist() == [record["key"] for record in latest]
    for name in set(made.columns) - {"key"}:
        expected = pd.Series([record.get(name, math.nan) for record in latest], dtype=object)
        for got, wanted in zip(made[name].tolist(), expected.tolist(), strict=True):
            if wanted is None or wanted != wanted:
                assert pd.isna(got)
            else:
                assert got == wanted
    assert not set(made.columns) & {"sample", "measures"}


DONE = b'{"key": "a", "status": "done", "N": 10, "loss": 1.5}\n'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[]", "not an object"),
        (b"7", "not an object"),
        (b"null", "not an object"),
        (b'"key"', "not an object"),
        (b'{"status": "done"}', "key does not name a run"),
        (b'{"key": 3, "status": "done"}', "key does not name a run"),
        (b'{"key": "../a", "status": "done"}', "key does not name a run"),
        (b'{"key": "a*", "status": "done"}', "key does not name a run"),
        (b'{"key": "a"}', "no status"),
        (b'{"key": "a", "status": "great"}', "status is none of done"),
        (b'{"key": "a", "status": ["done"]}', "status is of the wrong type"),
        (b'{"key": "a", "status": "done", "N": "many"}', "N is of the wrong type"),
        (b'{"key": "a", "status": "done", "seed": {}}', "seed is of the wrong type"),
        (b'{"key": "a", "status": "done", "family": 3}', "family is of the wrong type"),
        (b'{"key": "a", "status": "done", "versions": []}', "versions is of the wrong type"),
        (b'{"key": "a", "status": "done", "loss": NaN}', "not JSON"),
        (b'{"key": "a", "status": "done", "loss": 1e999}', "not JSON"),
        (b'{"key": "a", "status": "done", "family": "\xff"}', "not JSON"),
        (b'{"key": "a", "status": "done", "family": "\\ud800"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_a_line_that_is_no_run_is_named_with_its_number(tmp_path, line, why):
    path = tmp_path / "j"
    path.write_bytes(DONE + DONE + line + b"\n" + DONE)
    with pytest.raises(StorageError, match=f"line 3 is damaged .*{why}"):
        Journal(path).read()
    path.write_bytes(DONE + line)  # a last line without its end is torn, whatever it holds
    assert len(Journal(path).read()) == 1


def test_a_line_without_end_is_refused_and_not_kept_in_memory(tmp_path):
    path = tmp_path / "j"
    with path.open("wb") as file:
        file.write(DONE)
        file.truncate(1 << 33)
    with pytest.raises(StorageError, match=r"line 2 is damaged .*longer than"):
        Journal(path).read()


@pytest.mark.parametrize("record", [{"key": "a"}, {"key": "a", "status": "done", "N": "many"}])
def test_nothing_is_written_that_could_not_be_read_back(tmp_path, record):
    with pytest.raises(TypeError, match="can't be written"):
        Journal(tmp_path / "j").append(record)
    assert not (tmp_path / "j").exists()
