import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.study.ladder import ladder


@given(lo=st.integers(100, 10**6), decades=st.floats(0.5, 6), rungs=st.integers(2, 20))
def test_rungs_are_even_in_the_logarithm(lo, decades, rungs):
    sizes = ladder(lo, lo * 10**decades, rungs)
    steps = np.diff(np.log(sizes))
    assert steps == pytest.approx(np.full(rungs - 1, decades * np.log(10) / (rungs - 1)), abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 10, 3), "ladder.smallest must be at least 1; got 0"),
        ((100, 10, 3), "ladder.largest must be at least 100; got 10"),
        ((1, 10, 0), "ladder.rungs must be at least 1; got 0"),
        ((1, 3, 9), "leave 9 different sizes"),
        ((1, float("inf"), 3), "be finite"),
    ],
)
def test_bad_ladders_are_refused_in_words(arguments, words):
    with pytest.raises(InputError, match=words):
        ladder(*arguments)
