"""Validation of a sequence-to-sequence function, and the grid on which it is tabulated.

Letters: b batch, d size of a token, n tokens, s sequences, k codes.
"""

import math
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.measure.function_error import equivariance_error, sobol
from allometry.targets import functions

Function = Callable[[Any], Any]


def named(name: str) -> Function:
    """The function of a name: one of `targets.functions`, or `FILE.py:function`."""
    function = from_file(name)
    if function is not None:
        return function
    known = functions.EQUIVARIANT | functions.ORDERED
    require(name in known, "function", f"be FILE.py:function or one of {', '.join(known)}", name)
    return known[name]


def from_file(name: str) -> Callable[..., Any] | None:
    """The function of the name `FILE.py:function`; `None` for other names."""
    file, colon, function = name.rpartition(":")
    if not (colon and file.endswith(".py")):
        return None
    if not Path(file).is_file():
        raise InputError(f"{file} must be a Python file; got no such file.")
    found = runpy.run_path(file).get(function)
    require(callable(found), file, f"define a function {function!r}", found)
    return found


def checked(f: Function, d: int, n: int, *, equivariant: bool) -> Callable[[Tensor], Tensor]:
    """`f` as a function of float64 tensors, after checks on 64 points.

    Args:
        f: Maps (b, d, n) to (b, d, n), as tensors or as numpy arrays.
        d: Size of a token.
        n: Number of tokens.
        equivariant: Whether it must commute with permutations of the columns.

    Raises:
        InputError: It fails, changes the shape, returns NaN or infinity, is not deterministic,
            mixes inputs of a batch, or does not commute with permutations though it must.
    """
    x = sobol(64, (d, n), seed=1)
    g = _as_tensor_function(f, x)
    y = g(x)
    fix = "Return one (d, n) output for each of the b inputs."
    require(y.shape == x.shape, "f", f"give the shape it is given, {tuple(x.shape)}", y.shape, fix)
    finite = int(y.isfinite().all(2).all(1).sum())
    require(finite == len(y), "f", "give finite values everywhere", f"{64 - finite} of 64 not")
    size = max(1.0, float(y.abs().max()))
    repeated, part = g(x), g(x[40:50])
    change = float((repeated - y).abs().max())
    require(change <= 1e-9 * size, "f", "be a function of its input", f"a change of {change:.2g}")
    change = float((part - y[40:50]).abs().max())
    fix = "Outputs may not depend on the other inputs in the batch."
    require(change <= 1e-6 * size, "f", "treat each input alone", f"a change of {change:.2g}", fix)
    if equivariant:
        error = equivariance_error(g, x).value
        require(
            error <= 1e-6 * size,
            "f",
            "commute with permutations of the columns, f(XP) = f(X)P",
            f"a difference of {error:.2g}",
            "Pass positions=True for a function that depends on their order.",
        )
    return g


def _as_tensor_function(f: Function, x: Tensor) -> Callable[[Tensor], Tensor]:
    """`f` called with tensors, or with numpy arrays if it does not accept tensors."""

    def with_tensors(x: Tensor) -> Tensor:
        return torch.as_tensor(np.asarray(y) if not isinstance(y := f(x.clone()), Tensor) else y)

    def with_arrays(x: Tensor) -> Tensor:
        return torch.as_tensor(np.array(f(x.numpy().copy())))

    failures = []
    for call in (with_tensors, with_arrays):
        try:
            call(x)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
        else:
            return lambda x: call(x.double()).double()
    raise InputError(
        f"f must take an array of shape (b, d, n); got {failures[0]} with a tensor and "
        f"{failures[1]} with a numpy array."
    )


def grid_columns(d: int, cells: int) -> Float[Tensor, "m d"]:
    """Lower corners of all cells of a column, in the order of their ids."""
    digits = torch.arange(cells**d)[:, None] // cells ** torch.arange(d) % cells
    return digits / cells


def grid_sequences(d: int, n: int, cells: int, positions: bool) -> Int[Tensor, "s n"]:
    """All sequences of grid columns, as column numbers; without positions one per multiset.

    Args:
        d: Size of a token.
        n: Number of tokens.
        cells: Cells along each entry, 1/delta.
        positions: Whether the order of columns matters.
    """
    every = torch.arange(cells**d)
    if positions:
        return torch.cartesian_prod(*[every] * n).reshape(-1, n)
    return torch.combinations(every, n, with_replacement=True)


def orders(sequences: Int[Tensor, "s n"]) -> Float[Tensor, " s"]:
    """Number of orders of each multiset, n! / (m_1! m_2! ...)."""
    n = sequences.shape[1]
    ordered = sequences.sort(1).values
    run, product = torch.ones(len(sequences)), torch.ones(len(sequences))
    for j in range(1, n):
        run = torch.where(ordered[:, j] == ordered[:, j - 1], run + 1, torch.ones_like(run))
        product = product * run
    return (math.factorial(n) / product).double()


@final
@dataclass(frozen=True)
class GridTable:
    """The target value of each code of a column.

    Attributes:
        codes: Ascending, distinct.
        columns: A column with the code.
        targets: Its target value.
        clashes: Number of codes shared by sequences with different values; they get the mean.
    """

    codes: Float[Tensor, " k"]
    columns: Float[Tensor, "k d"]
    targets: Float[Tensor, "k d"]
    clashes: int


def tabulate(
    codes: Float[Tensor, "s n"],
    columns: Float[Tensor, "s d n"],
    targets: Float[Tensor, "s d n"],
    weights: Float[Tensor, " s"],
    tolerance: float = 0.0,
) -> GridTable:
    """One row per distinct code, with the weighted mean target of the columns that share it.

    The weighted mean minimises the squared error.

    Args:
        codes: Code of each column of each sequence.
        columns: The columns.
        targets: Their values.
        weights: Weights of the sequences.
        tolerance: Codes at most this far apart count as equal.
    """
    d = columns.shape[1]
    flat, order = codes.flatten().sort()
    value = targets.mT.flatten(0, 1)[order]
    weight = weights[:, None].expand_as(codes).flatten()[order]
    new = torch.cat([torch.ones(1, dtype=torch.bool), flat.diff() > tolerance])
    label, first = new.cumsum(0) - 1, new.nonzero()[:, 0]
    k = len(first)
    total = torch.zeros(k, dtype=torch.float64).index_add_(0, label, weight)
    mean = torch.zeros(k, d, dtype=torch.float64).index_add_(0, label, weight[:, None] * value)
    mean = mean / total[:, None]
    away = (value - mean[label]).abs().amax(1) > 1e-12 * max(1.0, float(value.abs().max()))
    clashes = len(label[away].unique())
    return GridTable(flat[first], columns.mT.flatten(0, 1)[order][first], mean, clashes)
