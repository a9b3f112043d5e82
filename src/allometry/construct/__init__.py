"""Models whose weights come from a proof."""

from allometry._core.deprecation import moved
from allometry.construct.certificate import Certificate, Construction, Term
from allometry.construct.dyck import DyckGenerator, DyckRecogniser, dyck
from allometry.construct.exact_certificate import Exactness
from allometry.construct.export import export
from allometry.construct.head_patterns import attention_maps
from allometry.construct.programs.compiled import Program, program
from allometry.construct.programs.generation import Generator, generator
from allometry.construct.softmax_sharpness import breaking_length, least_scale
from allometry.construct.turing import AutoregressiveRun, CellularRun, turing
from allometry.construct.two_block import CompactConstruction, compact
from allometry.construct.universal import universal
from allometry.construct.universal_construction import UniversalConstruction
from allometry.construct.universal_cost import UniversalCost, cost

__all__ = [
    "AutoregressiveRun",
    "CellularRun",
    "Certificate",
    "CompactConstruction",
    "Construction",
    "DyckGenerator",
    "DyckRecogniser",
    "Exactness",
    "Generator",
    "Program",
    "Term",
    "UniversalConstruction",
    "UniversalCost",
    "attention_maps",
    "breaking_length",
    "compact",
    "cost",
    "dyck",
    "export",
    "generator",
    "least_scale",
    "program",
    "turing",
    "universal",
]

__getattr__ = moved(__name__, {"Cost": "UniversalCost"})
