import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError, Spec
from allometry._core.errors import StorageError
from allometry.targets import Text, vocabulary_from_dict
from allometry.targets.vocabulary import Bytes, Characters

KINDS = ("characters", "bytes", "words", "bpe")


@pytest.fixture(scope="module")
def embedded():
    return Text.embedded()


def test_embedded_is_prose_cut_in_order(embedded):
    parts = [embedded.train, embedded.validation, embedded.test]
    assert [round(len(p) / sum(map(len, parts)), 3) for p in parts] == [0.9, 0.05, 0.05]
    assert embedded.D_unique == len(embedded.train) > 300_000
    assert embedded.vocabulary.decode(embedded.train[:22]) == 'The "assert" statement'
    assert embedded.unit == "nats per character"


def test_embedded_has_no_paragraph_of_the_test_split_in_the_training_split():
    text = Text.embedded()
    train = text.vocabulary.decode(text.train)
    test = text.vocabulary.decode(text.test).split("\n\n")[1:-1]
    assert not [p for p in test if len(p) > 60 and "\n\n" + p + "\n\n" in train]
    whole = Text.embedded(repeats=True)
    train = whole.vocabulary.decode(whole.train)
    test = whole.vocabulary.decode(whole.test).split("\n\n")[1:-1]
    assert [p for p in test if len(p) > 60 and "\n\n" + p + "\n\n" in train]


@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_makes_the_same_target_again(kind):
    text = Text.embedded(vocabulary=kind)
    spec = Spec.from_dict(json.loads(json.dumps(text.spec.to_dict())), trusted=True)
    again = spec()
    assert spec.key == text.spec.key
    assert again.fingerprint == text.fingerprint
    assert torch.equal(again.train, text.train)
    json.dumps(text.describe())


def test_files_by_spec_and_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("abcdefghij" * 10)
    text = Text(path)
    assert text.spec().fingerprint == text.fingerprint
    spec = text.spec
    path.write_text("abcdefghik" * 10)
    assert Text(path).spec.key != spec.key
    with pytest.raises(InputError, match="The text changed"):
        spec()


def test_the_vocabulary_knows_the_training_part_alone():
    text = Text.from_string("ab" * 90 + "aZaZaZaZaZ" + "abZYabZYab")
    assert text.vocabulary.symbols == ["a", "b", "\ufffd"]
    assert text.unknown == {"train": 0, "validation": 5, "test": 4}
    assert text.validation.tolist() == [0, 2] * 5
    assert text.vocabulary.decode(text.validation[:4]) == "a\ufffda\ufffd"


def test_a_smaller_vocabulary_keeps_the_most_frequent():
    text = Text.from_string("aaabbc" * 50, size=3)
    assert text.vocabulary.symbols == ["a", "b", "\ufffd"]
    assert text.unknown["train"] == 45


@given(st.text(min_size=40), st.text())
def test_decoding_inverts_encoding_and_never_fails(corpus, other):
    corpus = corpus.encode("utf-8", "replace").decode()
    known = Characters(corpus)
    assert known.decode(known.encode(corpus)) == corpus
    assert len(known.decode(known.encode(other))) == len(other)
    clean = other.encode("utf-8", "replace").decode()
    assert Bytes().decode(Bytes().encode(other)) == clean


@given(st.lists(st.integers(-10, 2000)))
def test_any_ids_decode_in_every_vocabulary(bpe, ids):
    for vocabulary in (Characters("abc"), Bytes(), bpe.vocabulary):
        assert isinstance(vocabulary.decode(ids), str)


@given(st.text())
def test_bpe_spells_what_it_never_saw(bpe, other):
    clean = other.encode("utf-8", "replace").decode()
    assert bpe.vocabulary.decode(bpe.vocabulary.encode(other)) == clean


@pytest.fixture(scope="module")
def bpe():
    return Text.embedded(vocabulary="bpe", size=512)


def test_bpe_gives_characters_per_token(bpe, embedded):
    assert bpe.vocabulary.size == 512
    assert bpe.unit == "nats per token"
    characters = len(embedded.validation)
    assert bpe.characters_per_token("validation") == characters / len(bpe.validation) > 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_vocabularies_survive_json(kind):
    text = Text.embedded(vocabulary=kind, size=300 if kind == "bpe" else None)
    again = vocabulary_from_dict(json.loads(json.dumps(text.vocabulary.to_dict())))
    ids = again.encode("def naïve(x):\n    return x")
    assert ids.tolist() == text.vocabulary.encode("def naïve(x):\n    return x").tolist()
    assert again.symbols == text.vocabulary.symbols


def test_a_batch_is_a_pure_function_of_seed_and_step():
    one, two = Text.embedded(), Text.embedded()
    later = one.batch(7, size=4, context=16, seed=3)
    for step in range(7):
        two.batch(step, size=4, context=16, seed=3)
    assert torch.equal(later, two.batch(7, size=4, context=16, seed=3))
    assert not torch.equal(later, two.batch(7, size=4, context=16, seed=4))
    assert later.shape == (4, 17)
    assert later.dtype == torch.int64


@given(n=st.integers(30, 200), context=st.integers(1, 12), size=st.integers(1, 7))
def test_an_epoch_has_every_window_once_and_no_target_twice(n, context, size):
    # Symbols that encode their position show where a window was cut.
    text = Text.from_string("".join(chr(0x4E00 + i) for i in range(n)), splits=(1.0, 0.0, 0.0))
    windows = text.windows(context)
    steps = -(-2 * windows // size)
    rows = torch.cat([text.batch(s, size=size, context=context, seed=1) for s in range(steps)])
    for epoch in (rows[:windows], rows[windows : 2 * windows]):
        targets = epoch[:, 1:].reshape(-1)
        assert len(targets.unique()) == len(targets) == windows * context
        assert (epoch.diff(dim=1) == 1).all()
    assert windows * context > n - 1 - 2 * context
    assert text.epochs(steps, size=size, context=context) == steps * size / windows


@given(
    n=st.integers(2, 90),
    context=st.integers(1, 40),
    overlap=st.integers(0, 39),
)
def test_blocks_predict_every_token_but_the_first_exactly_once(n, context, overlap):
    overlap = min(overlap, context - 1)
    text = Text.from_string("".join(chr(0x4E00 + i) for i in range(n)), splits=(1.0, 0.0, 0.0))
    inputs, targets, mask = text.blocks("train", context, overlap)
    assert torch.equal(targets[mask], torch.arange(1, n))
    assert torch.equal(inputs[mask], torch.arange(n - 1))
    assert mask.any(1).all()


def test_bom_and_windows_line_ends(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffé\r\nb\n".encode() * 20)
    text = Text(tmp_path / "a.txt", splits=(1.0, 0.0, 0.0))
    # Only the first mark is a mark; the others are characters of the text.
    assert text.vocabulary.decode(text.train) == ("é\nb\n\ufeff" * 20)[:-1]
    raw = Text(tmp_path / "a.txt", vocabulary="bytes", splits=(1.0, 0.0, 0.0))
    assert bytes(raw.train.tolist()) == "\ufeffé\r\nb\n".encode() * 20


def test_several_files_are_each_cut(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name * 100)
    text = Text(tmp_path / "a", tmp_path / "b", splits=(0.8, 0.1, 0.1))
    assert text.vocabulary.decode(text.validation) == "a" * 10 + "b" * 10


REFUSED = [
    (b"", {}, InputError, "It is empty"),
    (b"\xef\xbb\xbf", {}, InputError, "It is empty"),
    (b"abc\0def", {}, InputError, 'byte 3 is NUL.*vocabulary="bytes"'),
    (b"abcde\xff\xfe", {}, InputError, r'byte 5 \(0xff\) is not.*vocabulary="bytes"'),
    ("hé".encode("utf-16"), {}, InputError, "begins like UTF-16"),
    (b"abc" * 9, {"splits": (0.5, 0.5)}, InputError, "Text.splits must be three shares"),
    (b"abc" * 9, {"splits": (0.5, 0.6, 0.1)}, InputError, "sum to 1"),
    (b"abc" * 9, {"vocabulary": "lines"}, InputError, "bytes, words or bpe; got 'lines'"),
    (b"abcdefghij", {}, InputError, "got 10 characters, of which 0 for validation"),
    (b"abc" * 99, {"vocabulary": "bpe", "size": 9}, InputError, "size must be between 256"),
]


@pytest.mark.parametrize(("data", "options", "error", "message"), REFUSED)
def test_bad_files_are_refused_in_one_line(tmp_path, data, options, error, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        Text(path, **options)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        Text(tmp_path / "none.txt")
    with pytest.raises(StorageError, match="it is a folder"):
        Text(tmp_path)
    with pytest.raises(InputError, match="at least one file"):
        Text()


def test_a_context_longer_than_the_text_names_both_numbers():
    text = Text.from_string("ab" * 20)
    with pytest.raises(InputError, match="got 36 tokens for a context of 64"):
        text.batch(0, size=1, context=64, seed=0)
    with pytest.raises(InputError, match="train, validation or test"):
        text.blocks("dev", 8)
    with pytest.raises(InputError, match="at least 2 tokens in its test split; got 0"):
        Text.from_string("ab" * 20, splits=(0.9, 0.1, 0.0)).blocks("test", 8)


def test_binary_data_is_a_target_in_bytes(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, 4000).astype(np.uint8).tobytes()
    (tmp_path / "x.bin").write_bytes(data)
    text = Text(tmp_path / "x.bin", vocabulary="bytes")
    assert text.vocabulary.size == 256
    assert text.unit == "nats per byte"
    assert sum(text.unknown.values()) == 0


# The spaces between words depend on their neighbours, so words have no bytes of their own.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "words"])
def test_the_bytes_of_the_tokens_spell_the_text(kind):
    text = Text.embedded(vocabulary=kind)
    pieces = text.vocabulary.token_bytes()
    spelt = b"".join(pieces[i] for i in text.test.tolist())
    assert spelt.decode(errors="replace") == text.vocabulary.decode(text.test)
    if kind == "bpe":
        from tokenizers.pre_tokenizers import ByteLevel

        assert set("".join(text.vocabulary.symbols)) == set(ByteLevel.alphabet())


def test_words_end_sentences_and_the_rare_are_unknown():
    text = "Now is the time. Is the time now? It's 3.5 (e.g. half). Now, time is the thing\n\nEnd"
    made = Text.from_string(text, vocabulary="words", splits=(1, 0, 0))
    v = made.vocabulary
    assert made.unit == "nats per word"
    assert v.decode(v.encode("Now is the time. Is the time")) == "Now is the time.\n� the time"
    assert (made.train == v.boundary).sum() == 4  # not after "e.g.", "3.5" or the last word
    assert made.unknown["train"] == int((made.train == v.unknown).sum()) > 0
    small = Text.from_string(text, vocabulary="words", size=4, splits=(1, 0, 0)).vocabulary
    assert small.symbols == [".", "the", "</s>", "�"]
    with pytest.raises(InputError, match="at least 3 for words"):
        Text.from_string(text, vocabulary="words", size=2)
    with pytest.raises(InputError, match="list of words"):
        vocabulary_from_dict({"kind": "words", "words": "abc"})


def test_sentences_of_prose(embedded):
    made = Text.embedded(vocabulary="words")
    sentences = made.vocabulary.decode(made.train).split("\n")
    lengths = [len(s.split()) for s in sentences]
    assert 5 < sum(lengths) / len(lengths) < 40
    assert made.unknown["train"] / len(made.train) < 0.06
    assert 3 < made.characters_per_token("train") < 7
