import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry._core.errors import StorageError
from allometry.study import frame as frames
from allometry.study.journal import Journal

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.from_regex(r"[0-9A-Za-z_-]{1,4}", fullmatch=True),
            "word": st.text(max_size=4),
            "loss": st.floats(0, 9),
        }
    ),
    min_size=1,
    max_size=5,
)


def test_what_is_appended_is_read_back(tmp_path):
    journal = Journal(tmp_path / "j")
    assert journal.read() == []
    journal.append({"key": "a", "word": "über\n"})
    journal.append({"key": "b"})
    assert journal.read() == [{"key": "a", "word": "über\n"}, {"key": "b"}]


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
    path.write_bytes(b'{"key": "a"}\n{"key": oops\n{"key": "c"}\n')
    with pytest.raises(StorageError, match="line 2 is damaged"):
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
    journal.append({"key": "a", "x": "y" * 200_000})
    with (tmp_path / "j").open("ab") as file:
        file.write(b"torn" * 50_000)
    journal.append({"key": "b"})
    assert [r["key"] for r in journal.read()] == ["a", "b"]
    assert len((tmp_path / "j").read_bytes().splitlines()) == 2


def test_not_a_number_never_enters(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        Journal(tmp_path / "j").append({"key": "a", "loss": float("nan")})
    assert Journal(tmp_path / "j").read() == []


numbers = st.one_of(st.none(), st.integers(-9, 9), st.floats(-9, 9))
text = st.one_of(st.none(), st.text(max_size=3))
anything = st.one_of(numbers, text, st.booleans())
lines = st.lists(
    st.builds(
        lambda key, rest: {"key": key} | rest,
        st.sampled_from("abcdefgh"),
        st.fixed_dictionaries(
            {},
            optional={
                "N": numbers,
                "loss": numbers,
                "status": st.sampled_from(["done", "failed", "diverged"]),
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
