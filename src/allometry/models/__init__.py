"""Architectures: plain modules that know nothing of data or training."""

from allometry.models import autoencoders, flows, quantise, sampling
from allometry.models.attention import Attention, hardmax
from allometry.models.block import Block, FeedForward
from allometry.models.cache import Cache
from allometry.models.convolution import CausalConvolution, FiniteMemory
from allometry.models.graphical import Directed, Node
from allometry.models.hidden import HiddenMarkov
from allometry.models.linear_process import Autoregression
from allometry.models.machine_memory import DecayingMemory, SaturatingCounter
from allometry.models.markov import AddConstant, Katz, KneserNey
from allometry.models.pixels import PixelCNN
from allometry.models.recurrent import Recurrent
from allometry.models.transformer import Transformer
from allometry.models.universal import LZ78, ContextTree

__all__ = [
    "LZ78",
    "AddConstant",
    "Attention",
    "Autoregression",
    "Block",
    "Cache",
    "CausalConvolution",
    "ContextTree",
    "DecayingMemory",
    "Directed",
    "FeedForward",
    "FiniteMemory",
    "HiddenMarkov",
    "Katz",
    "KneserNey",
    "Node",
    "PixelCNN",
    "Recurrent",
    "SaturatingCounter",
    "Transformer",
    "autoencoders",
    "flows",
    "hardmax",
    "quantise",
    "sampling",
]
