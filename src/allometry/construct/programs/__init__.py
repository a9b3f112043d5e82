"""A RASP-like language of sequence operators, compiled to transformers."""

from allometry.construct.programs.compiled import Program, program
from allometry.construct.programs.expressions import Selector, SequenceOperator, indices, tokens
from allometry.construct.programs.generation import Generator, generator
from allometry.construct.programs.integers import (
    choose,
    digits,
    floor_divide,
    number,
    product,
    remainder,
    thresholds,
)
from allometry.construct.programs.interpreter import interpret
from allometry.construct.programs.loops import loop
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    earliest,
    elementwise,
    everything,
    latest,
    numerical,
    select,
    selector_width,
)

__all__ = [
    "Generator",
    "Program",
    "Selector",
    "SequenceOperator",
    "aggregate",
    "choose",
    "combine",
    "digits",
    "earliest",
    "elementwise",
    "everything",
    "floor_divide",
    "generator",
    "indices",
    "interpret",
    "latest",
    "loop",
    "number",
    "numerical",
    "product",
    "program",
    "remainder",
    "select",
    "selector_width",
    "thresholds",
    "tokens",
]
