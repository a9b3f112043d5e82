"""Types and shapes of the package are checked in every call under test."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from allometry import measure
from allometry.laws.component import Component
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
