"""Programs in fewer layers for a known alphabet and length: every short input, against Python."""

import itertools
from collections import Counter

import pytest

from allometry import InputError
from allometry.construct import program
from allometry.construct.programs import elementwise, library, shallow


def by_frequency(word):
    count = Counter(word)
    return sorted(word, key=lambda t: -count[t])


def rare(word):
    return [sum(word.count(t) <= 2 for t in word)] * len(word)


CASES = {
    "sort": (lambda a, n: shallow.sort(a), library.sort, sorted, 1),
    "count_rare": (
        lambda a, n: shallow.count_rare(2, a),
        lambda: library.count_rare(2),
        rare,
        1,
    ),
    "reverse": (shallow.reverse, library.reverse, lambda w: w[::-1], 1),
    "sort_by_frequency": (
        shallow.sort_by_frequency,
        library.sort_by_frequency,
        by_frequency,
        2,
    ),
}


@pytest.mark.parametrize("alphabet", [["a", "b"], [1, 2, 3, 4], [7, 2, 5]])
@pytest.mark.parametrize("name", CASES)
def test_every_input_is_right_in_fewer_layers(name, alphabet):
    make, other, truth, layers = CASES[name]
    n = 5
    made = program(make(alphabet, n), alphabet=alphabet, n=n)
    assert made.model.depth == layers
    assert made.model.depth < program(other(), alphabet=alphabet, n=n).model.depth
    for size in range(1, n + 1):
        words = [list(w) for w in itertools.product(alphabet, repeat=size)]
        assert made.many(words) == [truth(w) for w in words]
        assert made.compare(words[-40:])[1] == 0


@pytest.mark.parametrize("name", CASES)
def test_an_alphabet_with_repeated_tokens_is_refused(name):
    with pytest.raises(InputError, match=rf"{name}\.alphabet must have at least two different"):
        CASES[name][0]("aba", 4)


def test_equal_fetches_share_a_coordinate():
    # The token's number is read by four tables and fetched by every head once.
    made = program(shallow.reverse("abcd", 5), alphabet="abcd", n=5)
    fetched = [line for line in made.listing.splitlines() if ": attends to" in line]
    assert len(fetched) == 6
    assert all("writes slot" in line and "," not in line.split("writes")[1] for line in fetched)


def test_a_longer_sum_of_tables_takes_no_further_layer():
    made = program(elementwise(int, shallow.count_rare(2, "abcd")), alphabet="abcd", n=6)
    assert made.model.depth == 1
    words = [list(w) for w in itertools.product("abcd", repeat=5)]
    assert made.many(words) == [rare(w) for w in words]
