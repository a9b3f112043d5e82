"""Architectures: plain modules, independent of data and training."""

from allometry._core.deprecation import moved
from allometry.models import autoencoders, diffusion, flows, quantisation, sampling
from allometry.models.convolution import CausalConvolution, FiniteMemory
from allometry.models.finite_state import DecayingMemory, SaturatingCounter
from allometry.models.graphical import Directed, Node
from allometry.models.hidden_markov import HiddenMarkov
from allometry.models.linear_attention import LinearAttention
from allometry.models.linear_process import Autoregression
from allometry.models.mamba import Mamba
from allometry.models.ngram import AddConstant, Katz, KneserNey
from allometry.models.pixelcnn import PixelCNN
from allometry.models.recurrent import Recurrent
from allometry.models.transformer.attention import Attention, hardmax
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.model import Block, FeedForward, Transformer
from allometry.models.universal_prediction import LZ78, ContextTree

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
    "LinearAttention",
    "Mamba",
    "Node",
    "PixelCNN",
    "Recurrent",
    "SaturatingCounter",
    "Transformer",
    "autoencoders",
    "diffusion",
    "flows",
    "hardmax",
    "quantisation",
    "sampling",
]

__getattr__ = moved(__name__, {"quantise": "quantisation"})
