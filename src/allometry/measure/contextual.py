"""Contextual mappings: whether a function identifies each token by its whole context.

Letters: s sequences, d size of a token, n tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@final
@dataclass(frozen=True)
class Contextual:
    """The result of `is_contextual_mapping`; true if both properties hold.

    Attributes:
        within: Different columns of one sequence get different codes.
        across: Sequences that are not permutations of one another share no code.
        gap: Smallest distance between two different codes.
        interval: Smallest and largest code, the lemma's $[t_l, t_r]$.
        codes: Number of different codes.
        sequences: Number of sequences checked.
    """

    within: bool
    across: bool
    gap: float
    interval: tuple[float, float]
    codes: int
    sequences: int

    def __bool__(self) -> bool:
        return self.within and self.across


def is_contextual_mapping(
    q: Callable[[Tensor], Tensor] | Float[Tensor, "s n"],
    sequences: Float[Tensor, "s d n"],
    *,
    tolerance: float = 0.0,
) -> Contextual:
    """Whether the code of each token identifies both token and sequence, checked exhaustively.

    Two properties: within a sequence, different columns have different codes (equal columns may
    share one); and no code of one sequence occurs in another, unless one is a permutation of the
    other.

    Args:
        q: A function from (s, d, n) to codes (s, n), or its codes.
        sequences: The set on which q is checked.
        tolerance: Codes at most this far apart count as equal.

    Example:
        >>> import torch, allometry as al
        >>> x = torch.tensor([[[0.0, 1.0]], [[0.0, 2.0]], [[1.0, 2.0]]])
        >>> bool(al.measure.is_contextual_mapping(lambda x: x[:, 0], x))
        False
        >>> codes = x[:, 0] + 10 * x.sum((1, 2))[:, None]
        >>> bool(al.measure.is_contextual_mapping(codes, x))
        True

    References:
        `yun2020` Definition 3.1.
    """
    codes = q if isinstance(q, Tensor) else q(sequences)
    _, column = torch.unique(sequences.mT.flatten(0, 1), dim=0, return_inverse=True)
    columns = column.reshape(codes.shape)
    _, bag = torch.unique(columns.sort(1).values, dim=0, return_inverse=True)
    values, order = codes.flatten().sort()
    new = torch.cat([torch.ones(1, dtype=torch.bool), values.diff() > tolerance])
    label = torch.empty_like(order).scatter_(0, order, new.cumsum(0) - 1)
    gaps = values.diff()[values.diff() > tolerance]
    return Contextual(
        within=_injective(label.reshape(codes.shape), columns),
        across=_one_owner(label, bag.repeat_interleave(codes.shape[1])),
        gap=float(gaps.min()) if len(gaps) else float("inf"),
        interval=(float(values[0]), float(values[-1])),
        codes=int(new.sum()),
        sequences=len(codes),
    )


def _injective(label: Int[Tensor, "s n"], columns: Int[Tensor, "s n"]) -> bool:
    same: Bool[Tensor, "s n n"] = label[:, :, None] == label[:, None, :]
    return bool((~same | (columns[:, :, None] == columns[:, None, :])).all())


def _one_owner(label: Int[Tensor, " k"], bag: Int[Tensor, " k"]) -> bool:
    first = torch.full((int(label.max()) + 1,), -1).scatter_(0, label, bag)
    return bool((first[label] == bag).all())
