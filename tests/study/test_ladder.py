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


def test_studies_without_end_are_refused_at_once():
    import math

    from allometry.study import Study, recipes
    from allometry.targets import Text

    text = Text.from_string("so it goes " * 50)
    for wrong in ({"tokens": math.inf}, {"tokens": math.nan}, {"seeds": 10**7}, {"tokens": 1e300}):
        with pytest.raises(InputError, match="study"):
            Study(text, [recipes.ngram], [1000], **wrong)
    with pytest.raises(InputError, match="at most 1000"):
        ladder(1e3, 1e9, 10**9)
