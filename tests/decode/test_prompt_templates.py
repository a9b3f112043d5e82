"""Templates, and the comparison of them, on scores whose truth is known."""

import random

import pytest
from scipy.stats import binomtest

from allometry import decode
from allometry._core.errors import InputError
from allometry.decode import prompt_templates

ITEMS = [decode.Item(str(i), ("right", "wrong", "worse")) for i in range(200)]


def biased(share):
    """A score under which the right answer wins on `share` of the prompts."""

    def score(prompt, answer):
        lucky = random.Random(prompt).random() < share
        return {"right": 0.0, "wrong": -1.0 if lucky else 1.0, "worse": -9.0}[answer]

    return score


def test_accuracy_has_the_interval_of_wilson():
    (found,) = decode.compare({"a": decode.direct("t")}, ITEMS, biased(0.7))
    k = round(found.accuracy.value * 200)
    expected = binomtest(k, 200).proportion_ci(method="wilson")
    assert found.accuracy.interval == pytest.approx((expected.low, expected.high))
    assert found.gain is None
    assert found.margin.value == pytest.approx((k - (200 - k)) / 200)


def test_gains_are_paired():
    """The better template wins on every item where the other does, and on more."""

    def score(prompt, answer):
        better = prompt.startswith("good")
        question = int(prompt.split("\n")[1].rstrip(":"))
        right = question % 4 == 0 or (better and question % 4 == 1)
        return {"right": 1.0 if right else -1.0}.get(answer, 0.0)

    plain, good = decode.compare(
        {"plain": decode.direct("t"), "good": decode.direct("good")}, ITEMS, score
    )
    assert plain.accuracy.value == 0.25
    assert good.gain.value == 0.25
    assert 0.18 < good.gain.lo < 0.25 < good.gain.hi < 0.32
    same = decode.compare({"a": decode.direct("t"), "b": decode.direct("t")}, ITEMS, score)[1]
    assert same.gain.interval == (0.0, 0.0)


def test_gains_cover_the_truth():
    """95 % intervals of the difference of 0.6 and 0.5 over 120 drawn tasks: within 5 se."""
    hits, tries = 0, 120
    for seed in range(tries):
        items = [decode.Item(f"{seed}-{i}", ("right", "wrong", "worse")) for i in range(100)]

        def score(prompt, answer):
            return biased(0.6 if prompt.startswith("b") else 0.5)(prompt, answer)

        _, b = decode.compare({"a": decode.direct("a"), "b": decode.direct("b")}, items, score)
        hits += b.gain.covers(0.1)
    assert abs(hits / tries - 0.95) < 5 * (0.95 * 0.05 / tries) ** 0.5


def test_templates_compose():
    fill = decode.opened(
        decode.serialised(decode.demonstration([("2+2", "4")]), steps=" Step 1:"), opening=" so "
    )
    assert fill("1+2") == "2+2: 4\n1+2:  Step 1: so "


def test_too_little_to_compare_is_refused():
    with pytest.raises(InputError, match="hold at least two"):
        decode.compare({"a": decode.direct("t")}, ITEMS[:1], biased(0.5))
    with pytest.raises(InputError, match="offer two answers or more"):
        decode.compare({"a": decode.direct("t")}, [decode.Item("q", ("x",))] * 2, biased(0.5))
    with pytest.raises(InputError, match="hold at least one"):
        prompt_templates.demonstration([])
