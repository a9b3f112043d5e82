"""Models whose weights come from a proof."""

from allometry.construct.attention import attention_maps
from allometry.construct.dyck import DyckGenerator, DyckRecogniser, dyck
from allometry.construct.exactness import Exactness
from allometry.construct.turing import AutoregressiveRun, CellularRun, turing

__all__ = [
    "AutoregressiveRun",
    "CellularRun",
    "DyckGenerator",
    "DyckRecogniser",
    "Exactness",
    "attention_maps",
    "dyck",
    "turing",
]
