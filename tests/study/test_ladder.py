import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry._core.spec import Spec
from allometry.study import Study, recipes
from allometry.study.recipes.transformer_runs import TransformerRun
from allometry.study.size_ladder import ladder
from allometry.targets import Points, Text
from allometry.targets.points import TwoMoons


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
    text = Text.from_string("so it goes " * 50)
    for wrong in ({"tokens": math.inf}, {"tokens": math.nan}, {"seeds": 10**7}, {"tokens": 1e300}):
        with pytest.raises(InputError, match="study"):
            Study(text, [recipes.ngram], [1000], **wrong)
    with pytest.raises(InputError, match="at most 1000"):
        ladder(1e3, 1e9, 10**9)


LADDERS = {
    "transformer": (recipes.transformer, lambda: Text.embedded()),
    "lstm": (recipes.lstm, lambda: Text.embedded()),
    "mlp": (recipes.mlp, lambda: Text.embedded()),
    "gan": (recipes.gan, lambda: Points(TwoMoons())),
    "flow": (recipes.spline_coupling, lambda: Points(TwoMoons())),
    "quantiser": (recipes.quantiser, lambda: Points(TwoMoons())),
}


@pytest.mark.parametrize("name", LADDERS)
def test_no_ladder_holds_one_shape_twice(name):
    """Two rungs of width 48 and depth 2 were fitted as independent runs."""
    recipe, target = LADDERS[name]
    sizes = ladder(1e3, 7.48e4, rungs=8)
    # Finer than any family's shapes: most sizes share one with others.
    fine = [1000 * 1.04**i for i in range(12)]
    for asked in (sizes, fine):
        study = Study(target(), [recipe], asked, seeds=1, tokens=[2e5])
        rows = [spec.arguments for spec in study.specs()]
        shapes = {tuple(row.get(k) for k in ("width", "depth", "layers", "K")) for row in rows}
        assert len(shapes) == len(rows)
        assert [row["rung"] for row in rows] == list(range(len(rows)))
        said = study.notes()
        assert bool(said) == (len(rows) < len(asked))
        if said:
            assert f"The {len(asked)} sizes asked for lead to {len(rows)} different" in said[0]


def test_runs_that_differ_by_their_rung_alone_are_one():
    def twice(target, ladder, *, tokens, seeds):
        once = recipes.transformer(target, ladder, tokens=tokens, seeds=seeds)
        return [
            Spec(TransformerRun, **(spec.arguments | {"rung": spec.arguments["rung"] + k}))
            for k in (0, 1)
            for spec in once
        ]

    study = Study(Text.embedded(), [twice], [1e3, 1e4], seeds=2, tokens=[1e4])
    assert len(study.specs()) == 4


def test_families_that_climb_no_ladder_say_nothing():
    study = Study(Text.embedded(), [recipes.ngram], ladder(1e3, 1e5, rungs=12), seeds=1)
    assert study.notes() == []
