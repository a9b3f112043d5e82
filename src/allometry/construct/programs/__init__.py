"""A small language of sequence operators in the manner of RASP, compiled to transformers."""

from allometry.construct.programs.compiled import Program, program
from allometry.construct.programs.expressions import (
    Selector,
    SequenceOperator,
    aggregate,
    combine,
    elementwise,
    indices,
    numerical,
    select,
    selector_width,
    tokens,
)
from allometry.construct.programs.interpret import interpret

__all__ = [
    "Program",
    "Selector",
    "SequenceOperator",
    "aggregate",
    "combine",
    "elementwise",
    "indices",
    "interpret",
    "numerical",
    "program",
    "select",
    "selector_width",
    "tokens",
]
