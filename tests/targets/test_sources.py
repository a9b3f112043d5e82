"""Text of several sources: codes, and lines of unknown symbols."""

import pytest
import torch

from allometry._core.errors import InputError
from allometry.targets import Sources, vocabulary_from_dict
from allometry.targets.vocabulary import BPE, Characters, Marked

TEXTS = {
    "plays": "to be or not to be\n" * 60,
    "sums": "1 + 1 = 2\n" * 60,
}


def made(**changes):
    return Sources.from_strings(TEXTS, **changes)


def test_every_window_begins_with_the_code_of_its_source():
    target = made()
    rows = target.batch(3, size=64, context=12, seed=1)
    codes = [target.vocabulary.code(name) for name in ("plays", "sums")]
    assert set(rows[:, 0].tolist()) == set(codes)
    for row in rows:
        written = target.vocabulary.base.decode(row[1:])
        assert (row[0] == codes[1]) == any(c in written for c in "12+=")
    assert torch.equal(rows, target.batch(3, size=64, context=12, seed=1))


def test_without_codes_windows_are_plain_text():
    target = made(codes=False)
    rows = target.batch(0, size=8, context=12, seed=0)
    whole = "".join(TEXTS.values())
    assert all(target.vocabulary.decode(row) in whole for row in rows)


@pytest.mark.parametrize("codes", [True, False])
def test_blocks_cover_every_source_and_cross_none(codes):
    target = made(codes=codes)
    inputs, targets, mask = target.blocks("train", 10)
    wanted = torch.cat([part[1:] for part in target._parts["train"]])
    assert torch.equal(targets[mask], wanted)
    inside = inputs[:, 1:][mask[:, 1:]]
    if codes:
        assert (inside < target.vocabulary.base.size).all()
        assert (inputs[:, 0] >= target.vocabulary.base.size).all()


def test_labelled_windows_have_their_source():
    target = made(codes=False)
    windows, sources = target.labelled("train", 10)
    for row, source in zip(windows, sources, strict=True):
        assert target.vocabulary.decode(row) in list(TEXTS.values())[source]


def test_lines_of_unknown_symbols_are_left_out():
    texts = {"latin": "abcabcabc\n" * 80, "mixed": "abc\nжжж\naжc\n" * 30}
    kept = Sources.from_strings(texts, size=5, most_unknown=0.3)
    assert kept.dropped == {"latin": 0, "mixed": 30}
    everything = Sources.from_strings(texts, size=5)
    assert everything.dropped == {"latin": 0, "mixed": 0}
    assert sum(kept.unknown.values()) < sum(everything.unknown.values())
    assert all(
        v == 0 for v in Sources.from_strings(texts, size=5, most_unknown=0).unknown.values()
    )
    with pytest.raises(InputError, match="keep at least one line"):
        Sources.from_strings({"a": "abc\n" * 90, "b": "ж\n" * 20}, size=4, most_unknown=0)


def test_codes_are_read_only_at_the_beginning():
    v = Marked(Characters("<>abcode"), ["code"])
    assert v.encode("<code>a").tolist()[0] == v.code("code")
    assert v.code("code") not in v.encode("a<code>").tolist()
    assert v.decode(v.encode("<code>a<code>b")) == "<code>a<code>b"
    assert vocabulary_from_dict(v.to_dict()).encode("<code>ab").tolist() == [
        *v.encode("<code>ab").tolist()
    ]
    assert v.token_bytes()[v.code("code")] == b""


def test_pairs_of_bytes_have_codes_too():
    target = made(vocabulary="bpe", size=300)
    assert isinstance(target.vocabulary.base, BPE)
    row = target.batch(0, size=1, context=6, seed=0)[0]
    assert target.vocabulary.decode(row).startswith("<")


def test_files_make_the_same_target(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text)
    target = Sources(tmp_path / "plays.txt", tmp_path / "sums.txt")
    assert target.fingerprint == made().fingerprint == target.spec().fingerprint
    assert target.describe()["sources"]["plays"] == len(target._parts["train"][0])


def test_embedded_sources_are_in_every_python():
    target = Sources.embedded()
    assert target.names[-1] == "decimal"
    assert target.spec().fingerprint == target.fingerprint
    windows, sources = target.labelled("validation", 64)
    assert len(windows) == len(sources) > 600


def test_one_source_is_no_sources():
    with pytest.raises(InputError, match="at least 2 texts"):
        Sources.from_strings({"a": "abc" * 50})
    with pytest.raises(InputError, match="characters or bpe"):
        made(vocabulary="bytes")
    with pytest.raises(InputError, match="be below the shortest"):
        made().batch(0, size=1, context=10_000, seed=0)
