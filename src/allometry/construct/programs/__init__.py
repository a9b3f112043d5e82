"""A RASP-like language of sequence operators, compiled to transformers."""

from allometry.construct.programs.compiled import Program, program
from allometry.construct.programs.expressions import Selector, SequenceOperator, indices, tokens
from allometry.construct.programs.interpreter import interpret
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    elementwise,
    everything,
    numerical,
    select,
    selector_width,
)

__all__ = [
    "Program",
    "Selector",
    "SequenceOperator",
    "aggregate",
    "combine",
    "elementwise",
    "everything",
    "indices",
    "interpret",
    "numerical",
    "program",
    "select",
    "selector_width",
    "tokens",
]
