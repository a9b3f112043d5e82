"""Strategies over next-token logits: anyone's logits."""

from allometry.decode.reading import Cached, Memory, Reader
from allometry.decode.sampling import draw, sample, stream
from allometry.decode.strategies import (
    Strategy,
    chain,
    epsilon,
    eta,
    greedy,
    min_p,
    plain,
    temperature,
    top_a,
    top_k,
    top_p,
    typical,
)

__all__ = [
    "Cached",
    "Memory",
    "Reader",
    "Strategy",
    "chain",
    "draw",
    "epsilon",
    "eta",
    "greedy",
    "min_p",
    "plain",
    "sample",
    "stream",
    "temperature",
    "top_a",
    "top_k",
    "top_p",
    "typical",
]
