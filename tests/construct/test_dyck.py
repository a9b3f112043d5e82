import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.construct import dyck
from allometry.construct.dyck import samples
from allometry.construct.softmax_sharpness import breaking_length, least_scale
from allometry.targets import Dyck

FORMS = ("layered", "compact")


@pytest.fixture(scope="module", params=FORMS)
def small(request):
    return dyck(2, 3, 8, form=request.param)


def test_right_on_every_string_of_two_types_to_length_8(small):
    language = Dyck(2, 3)
    for n in range(9):
        count = 0
        for tried, wrong, margin, example in small._exhaust(n):
            assert wrong == 0, example
            # Weights and values are small whole numbers and powers of two: outputs are 0 and 1.
            assert margin > 0.5 - 1e-9
            count += tried
        assert count == 4**n
    # The comparison sees both answers.
    assert language.count(8) > 0


@pytest.mark.parametrize(("k", "D"), [(2, 3), (8, 10), (128, 10)])
@pytest.mark.parametrize("form", FORMS)
def test_right_on_random_and_adversarial_strings(k, D, form):
    made = dyck(k, D, 512, form=form)
    batches = samples(made.language, 512, np.random.default_rng(0), batch=5)
    longest = accepted = 0
    for words, lengths in itertools.islice(batches, 12):
        _, wrong, margin, example = made.compare(words, lengths)
        assert wrong == 0, example
        assert margin > 0.499
        longest = max(longest, int(lengths.max()))
        accepted += int(made.many(words, lengths).sum())
    assert longest > 100
    assert 0 < accepted < 60


def test_sizes_are_the_papers(small):
    depth = {"layered": 4, "compact": 3}[small.form]
    assert small.verify(0.1).layers == small.model.depth == depth
    # Memory O(log k): twice the bits of a type and a constant.
    for k in (2, 8, 128):
        wide = dyck(k, 3, 8, form=small.form).model.width
        constant = {"layered": 8, "compact": 11}[small.form]
        assert wide == 2 * max(1, (k - 1).bit_length()) + constant


def test_certificate_says_what_was_tried(small):
    proof = small.verify(0.5)
    assert proof.holds
    assert proof.exhaustive >= 2
    assert proof.parameters == sum(w.numel() for w in small.model.parameters())
    assert "every input" in str(proof)
    assert proof.to_dict()["wrong"] == 0


def test_a_corrupted_network_is_detected():
    made = dyck(2, 3, 8)
    made.model.blocks[1].attention.key.zero_()
    proof = made.verify(2.0)
    assert not proof.holds
    assert proof.example is not None
    assert made(proof.example) != Dyck(2, 3).accepts(proof.example)


@given(st.lists(st.integers(0, 3), max_size=8))
def test_prefixes_partners_and_where(word):
    language = Dyck(2, 3)
    for form in FORMS:
        made = MADE[form]
        assert made.prefixes(word) == [language.accepts(word[: t + 1]) for t in range(len(word))]
        assert (made.where(word) is None) == language.accepts(word)
        if language.accepts(word):
            assert made.partners(word) == language.partners(word)
    wrong = language.error(word)
    if wrong is not None:
        assert MADE["compact"].where(word) == wrong


MADE = {form: dyck(2, 3, 8, form=form) for form in FORMS}


def test_attention_shows_the_partner():
    maps = MADE["layered"].attention("([])")
    # Slots: start, ( [ ] ), end. In layer 1 the inner pair see each other, in layer 2 the outer.
    assert maps[0][0, 3].argmax() == 2
    assert maps[0][1, 2].argmax() == 3
    assert maps[1][0, 4].argmax() == 1
    assert maps[1][1, 1].argmax() == 4
    for layer in MADE["compact"].attention("([])"):
        torch.testing.assert_close(layer.sum(-1), torch.ones(1, 5))


@pytest.mark.parametrize(("k", "D", "p"), [(2, 3, 0.5), (8, 10, 0.3), (128, 10, 0.7), (1, 1, 0.5)])
def test_generator_has_the_exact_distribution(k, D, p):
    made = dyck(k, D, 512, mode="generate", p=p)
    assert made.model.depth == 2
    rng = np.random.default_rng(0)
    words = [made.language.sample(rng)[:512] for _ in range(5)]
    words += made.language.uniform(1, 512, rng).tolist()
    for word in words:
        exact = np.array(list(made.language._distributions(word)))
        np.testing.assert_allclose(made.distributions(word), exact, atol=1e-6)


def test_generator_writes_words():
    made = dyck(3, 4, 300, mode="generate")
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert Dyck(3, 4).accepts(made.sample(rng))


def test_softness_is_found_by_search():
    made = MADE["layered"]
    scale = least_scale(made, np.random.default_rng(0), inputs=60, digits=0.2)
    words, lengths = next(samples(made.language, 8, np.random.default_rng(1), batch=200))
    assert made.softened(1.5 * scale).compare(words, lengths)[1] == 0
    # A scale too small for 64 symbols still does for a few, and the search says for how many.
    long = dyck(2, 3, 64)
    enough = least_scale(long, np.random.default_rng(0), inputs=40, digits=0.2)
    assert enough > scale
    breaks = breaking_length(long, enough / 2, np.random.default_rng(0), inputs=40)
    assert breaks is not None
    assert 2 < breaks <= 64
    assert breaking_length(long, 4 * enough, np.random.default_rng(0), inputs=20) is None


def test_what_can_not_be_built_is_refused():
    with pytest.raises(InputError, match=r"dyck\.D must be from 1 to 1,048,576; got 0"):
        dyck(2, 0, 8)
    with pytest.raises(InputError, match=r"dyck\.form must be layered or compact"):
        dyck(2, 3, 8, form="deep")
    with pytest.raises(InputError, match="word must have at most 8 symbols; got 10"):
        MADE["layered"]("()" * 5)
    with pytest.raises(InputError, match="leave scores exact in float64"):
        dyck(2, 10**5, 10**6, form="compact")


@pytest.mark.slow
@pytest.mark.parametrize(("k", "D"), [(2, 3), (8, 10), (128, 10)])
def test_right_on_many_strings(k, D):
    # A twentieth of bench/dyck.py, which tries a million.
    made = dyck(k, D, 512, form="compact")
    batches = samples(made.language, 512, np.random.default_rng(3), batch=256)
    for words, lengths in itertools.islice(batches, 200):
        assert made.compare(words, lengths)[1] == 0
