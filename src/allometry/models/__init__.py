"""Architectures: plain modules that know nothing of data or training."""

from allometry.models.attention import Attention, Cache, hardmax
from allometry.models.block import Block, FeedForward
from allometry.models.markov import KneserNey
from allometry.models.transformer import Transformer

__all__ = ["Attention", "Block", "Cache", "FeedForward", "KneserNey", "Transformer", "hardmax"]
