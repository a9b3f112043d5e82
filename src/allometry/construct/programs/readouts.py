"""Outputs of a program: forms of the residual stream, and the values that they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from allometry._core.errors import InputError
from allometry.construct.named_weights import ONE
from allometry.construct.programs.expressions import SequenceOperator
from allometry.construct.programs.interpreter import plain
from allometry.construct.programs.linear_forms import Form
from allometry.construct.programs.lowering import Lowering

NEVER = -4.0
"""Logit of a token that the program never outputs; the right token's is at least 0."""

SHARP = 64.0
"""Factor on the logits of next tokens: sampling takes another token with probability e^-64."""


@final
@dataclass(frozen=True)
class Readout:
    """One output of a program.

    Attributes:
        name: Its name.
        expr: Its expression.
        values: The possible values.
        numeric: Whether the network outputs the number itself, instead of a logit for each value.
        rows: The output forms.
        first: Index of the first of them in the network's output.
        unit: Difference of the best two logits in the ideal case.
    """

    name: str
    expr: SequenceOperator
    values: Sequence[Any]
    numeric: bool
    rows: list[Form]
    first: int
    unit: float = 1.0

    def of(self, out: Tensor) -> Tensor:
        """The part of the network's output that belongs to this one."""
        return out[..., self.first : self.first + len(self.rows)]

    def decisions(self, out: Tensor) -> Tensor:
        """The index in `values` that the outputs stand for."""
        own = self.of(out)
        if not self.numeric:
            return own.argmax(-1)
        numbers = torch.tensor([float(v) for v in self.values], dtype=out.dtype)
        return (own - numbers).abs().argmin(-1)

    def read(self, out: Tensor) -> tuple[list[list[Any]], Tensor]:
        """Output values, and their margins from another value: 1/2 is the ideal."""
        shown = [plain(v) for v in self.values]
        if len(shown) < 2:
            return [shown * out.shape[1] for _ in out], torch.full(out.shape[:2], 0.5)
        own = self.of(out)
        if self.numeric:
            numbers = torch.tensor([float(v) for v in self.values], dtype=out.dtype)
            best = (own - numbers).abs().topk(2, dim=-1, largest=False)
            gap = (numbers[best.indices[..., 0]] - numbers[best.indices[..., 1]]).abs()
            margin = 0.5 - best.values[..., 0] / gap
        else:
            best = own.topk(2, dim=-1)
            # If the code is off its integer by e, the two best logits differ by 1 - 2e.
            margin = (best.values[..., 0] - best.values[..., 1]) / (2 * self.unit)
        return [[shown[i] for i in row] for row in best.indices[..., 0].tolist()], margin


def readout(name: str, expr: SequenceOperator, lowering: Lowering, first: int) -> Readout:
    """The output of an expression: a number, or logits of its values."""
    values = lowering.domains.listed(expr)
    if expr.numeric:
        form, _ = lowering.feature(expr, float)
        return Readout(name, expr, values, True, [form], first)
    return Readout(name, expr, values, False, _logits(expr, values, lowering), first)


def next_token(expr: SequenceOperator, words: Sequence[Any], lowering: Lowering) -> Readout:
    """The output of an expression as logits of tokens; `words` may have more than it outputs."""
    values = lowering.domains.listed(expr)
    strange = [v for v in values if v not in words]
    if strange:
        raise InputError(
            f"a generating program ({expr.origin}) must output tokens of its alphabet; it may "
            f"output {', '.join(map(repr, strange[:3]))}. Map other values to a token."
        )
    logits = dict(zip(values, _logits(expr, values, lowering), strict=True))
    never: Form = {ONE: NEVER}
    rows = [{k: SHARP * x for k, x in logits.get(w, never).items()} for w in words]
    return Readout("next token", expr, words, False, rows, 0, SHARP)


def _logits(expr: SequenceOperator, values: Sequence[Any], lowering: Lowering) -> list[Form]:
    code, _ = lowering.code(expr)
    # 2 v c - v^2 is largest for the v nearest to c.
    return [
        {
            **{k: 2.0 * v * x for k, x in code.items()},
            ONE: 2.0 * v * code.get(ONE, 0.0) - v * v,
        }
        for v in range(len(values))
    ]
