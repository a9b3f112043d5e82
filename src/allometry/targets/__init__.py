"""Targets: data and functions that models learn."""

from allometry._core.deprecation import moved
from allometry.targets import functions, music, points
from allometry.targets.functions import SequenceFunction
from allometry.targets.images import Images
from allometry.targets.languages import (
    Automaton,
    Brackets,
    Dyck,
    Grammar,
    Language,
    ShuffleDyck,
    Tree,
)
from allometry.targets.machines import Configuration, TuringMachine
from allometry.targets.numeric_table import NumericTable
from allometry.targets.points import Points
from allometry.targets.series import AutoregressiveSeries
from allometry.targets.sources import Sources
from allometry.targets.symbol_rows import Symbols
from allometry.targets.text import Text
from allometry.targets.transduction import Transduction
from allometry.targets.vocabulary import Vocabulary, vocabulary_from_dict

__all__ = [
    "Automaton",
    "AutoregressiveSeries",
    "Brackets",
    "Configuration",
    "Dyck",
    "Grammar",
    "Images",
    "Language",
    "NumericTable",
    "Points",
    "SequenceFunction",
    "ShuffleDyck",
    "Sources",
    "Symbols",
    "Text",
    "Transduction",
    "Tree",
    "TuringMachine",
    "Vocabulary",
    "functions",
    "music",
    "points",
    "vocabulary_from_dict",
]

__getattr__ = moved(__name__, {"Table": "NumericTable"})
