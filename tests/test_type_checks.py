"""Types and shapes of the package are checked in every call under test."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Bool, Float, Int, Shaped
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo
from torch import Tensor

from allometry import measure
from allometry.laws.component import Component
from tests import beartype_checks
from tests.beartype_checks import checked

if TYPE_CHECKING:
    from nowhere import Unknown


def refused(call, *args, **kwargs):
    with pytest.raises(jaxtyping.TypeCheckError):
        call(*args, **kwargs)


def test_the_package_is_checked():
    refused(measure.equivariance_error, lambda x: x, torch.zeros(3))
    refused(measure.equivariance_error, lambda x: x, torch.zeros(1, 2, 3), seed="0")
    assert Component.__init__.__checked__


def test_equal_letters_are_equal_sizes_in_one_call():
    @checked
    def product(
        x: Float[Tensor, "n d"], y: Float[Tensor, " d"], k: float = 1
    ) -> Float[Tensor, " n"]:
        return k * (x @ y)

    assert product(torch.ones(2, 3), torch.ones(3)).tolist() == [3, 3]
    assert product(torch.ones(5, 4), torch.ones(4), k=2).shape == (5,)
    refused(product, torch.ones(2, 3), torch.ones(2))
    refused(product, torch.ones(2, 3), torch.ones(3), "1")
    refused(product, torch.ones(2, 3), torch.ones(3).int())


def test_results_are_checked():
    @checked
    def twice(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return torch.cat([x, x])

    @checked
    def drawn(size: int = 2) -> Float[Tensor, " {size}"]:
        return torch.ones(2)

    refused(twice, torch.ones(2))
    assert len(drawn()) == 2
    refused(drawn, 3)
    refused(checked(_text))


def _text() -> str:
    return 1


def test_every_closure_is_checked_and_keeps_what_it_encloses():
    def make(i, unit="x"):
        @checked
        def inner(a: int, *, b: str = unit) -> tuple[int, str]:
            return a + i, b

        return inner

    made = [make(i, unit) for i, unit in enumerate("pqr")]
    assert [f(1) for f in made] == [(1, "p"), (2, "q"), (3, "r")]
    for f in made:
        refused(f, "1")
        refused(f, 1, b=2)


def test_checks_of_a_closure_are_made_once():
    def make(length):
        @checked
        def cut(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> list[Any]:
            return [*x[:length], *y]

        return cut

    first = make(1)
    known = len(beartype_checks._nested)
    second = make(2)
    assert len(beartype_checks._nested) == known
    assert len(first(np.ones(3), np.ones(3))) == 4
    assert len(second(np.ones(3), np.ones(3))) == 5
    refused(second, np.ones(3), np.ones(2))


def test_classes_descriptors_and_generators_are_checked():
    @checked
    @dataclass
    class Point:
        x: Float[np.ndarray, " n"]
        y: Float[np.ndarray, " n"]

        @checked
        @classmethod
        def line(cls, n: int) -> "Any":
            return cls(np.ones(n), np.ones(n))

        @checked
        @property
        def name(self) -> str:
            return 1

    @checked
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    assert len(Point.line(3).x) == 3
    assert list(count(2)) == [0, 1]
    refused(Point, np.ones(2), np.ones(3))
    refused(Point.line, 2.5)
    refused(getattr, Point.line(2), "name")
    refused(count, "2")


def test_names_known_to_type_checkers_only_are_any():
    @checked
    def same(x: "Unknown", n: "int") -> "Unknown":
        return x

    assert same("anything", 1) == "anything"
    refused(same, 1, "1")


SHAPES = ["", "n", "n m", "n n", "2 n", "_ n", "...", "... n", "n ... m", "*s", "*s n", "n *s"]
SHAPES += ["#n", "#n m", "*#s", "*#s n", "n+1", "m n+1"]
LIBRARIES = [(np.ones, np.ndarray), (torch.ones, Tensor)]
HINTS = [
    (make, Float[array, shape], shape.count(" ") + bool(shape))
    for make, array in LIBRARIES
    for shape in SHAPES
]


@st.composite
def matched(draw):
    """A hint, and an array of as many dimensions or any other number."""
    make, hint, ndim = draw(st.sampled_from(HINTS))
    ndim = draw(st.sampled_from([ndim, ndim, 0, 1, 2, 3]))
    return hint, make(draw(st.tuples(*[st.integers(1, 2)] * ndim)))


@settings(max_examples=400)
@given(st.lists(matched(), min_size=1, max_size=5), st.booleans())
def test_one_array_is_matched_as_jaxtyping_matches_it(pairs, scope):
    def outcomes(matches):
        if scope:
            push_shape_memo({})
        try:
            found = []
            for hint, array in pairs:
                try:
                    found.append(matches(hint, array))
                except jaxtyping.AnnotationError:
                    found.append("no such size yet")
                found.append(tuple(map(dict, get_shape_memo()[:2])))
            return found
        finally:
            if scope:
                pop_shape_memo()

    assert outcomes(beartype_checks._matches) == outcomes(beartype_checks._slow_matches)


@pytest.mark.parametrize("kind", [Float, Int, Bool, Shaped])
def test_one_dtype_says_nothing_of_another(kind):
    numpy_hint, torch_hint = kind[np.ndarray, "n"], kind[Tensor, "n"]
    for _ in range(2):  # accepted dtypes are known from the second time on
        for dtype in ("float64", "float32", "int64", "bool"):
            array, tensor = np.ones(2, dtype), torch.ones(2, dtype=getattr(torch, dtype))
            for hint, value in ((numpy_hint, array), (torch_hint, tensor)):
                assert isinstance(value, hint) == beartype_checks._slow_matches(hint, value)
