"""From one sequence to another."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry._core.errors import InputError
from allometry.targets import Transduction
from allometry.targets.transduction import KINDS


@given(st.lists(st.integers(0, 15), min_size=1, max_size=12))
def test_rules_are_what_they_say(source):
    assert Transduction("reversal").solve(source) == list(reversed(source))
    assert Transduction("sorting").solve(source) == sorted(source)


@pytest.mark.parametrize(
    ("latin", "cyrillic"),
    [("moskva", "москва"), ("borshch", "борщ"), ("chekhov", "чехов"), ("shuya", "шуя")],
)
def test_words_are_transliterated(latin, cyrillic):
    assert Transduction("transliteration").answer(latin) == cyrillic


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_sources_and_their_answers(kind):
    job = Transduction(kind)
    source, answer = job.batch(5, size=50, seed=2)
    assert source.shape == (50, job.length)
    assert answer.shape == (50, job.length + 2)
    assert (answer[:, 0] == job.start).all()
    assert (answer[:, -1] == job.end).all()
    for s, a in zip(source.tolist(), answer[:, 1:].tolist(), strict=True):
        assert job.solve([i for i in s if i != job.end]) == [i for i in a if i != job.end]
    again = job.spec().batch(5, size=50, seed=2)
    assert torch.equal(source, again[0])
    assert not torch.equal(source, job.batch(-5, size=50, seed=2)[0])


def test_transliterated_answers_are_of_many_lengths():
    job = Transduction("transliteration")
    source, answer = job.batch(0, size=200, seed=0)
    shorter = (source != job.end).sum(1) - ((answer != job.end).sum(1) - 1)
    assert {0, 1, 2} <= set(shorter.tolist())


def test_unknown_kinds_are_refused():
    with pytest.raises(InputError, match="reversal, sorting, transliteration"):
        Transduction("rhyme")
    with pytest.raises(InputError, match="of the letters"):
        Transduction("transliteration").answer("quiz")
