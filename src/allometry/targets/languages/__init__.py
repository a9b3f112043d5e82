"""Formal languages as targets: membership, words and exact next-symbol distributions."""

from allometry.targets.languages.automaton import Automaton
from allometry.targets.languages.bracket_stream import Brackets
from allometry.targets.languages.dyck_language import Dyck, ShuffleDyck
from allometry.targets.languages.grammar import Grammar
from allometry.targets.languages.language import Language
from allometry.targets.languages.notation import Rule, read_rules
from allometry.targets.languages.parse_trees import Tree

__all__ = [
    "Automaton",
    "Brackets",
    "Dyck",
    "Grammar",
    "Language",
    "Rule",
    "ShuffleDyck",
    "Tree",
    "read_rules",
]
