"""Penalties on repeated tokens."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require


@final
class Penalty:
    """Lower the log-probabilities of tokens by how often they occurred.

    Log-probabilities are changed instead of raw logits: a constant added to all logits, which
    gives the same model, does not change the penalty.

    Args:
        repetition: Factor on the log-probability of a token that occurred; 1 has no effect.
        frequency: Subtracted for every occurrence of a token.
        presence: Subtracted once from a token that occurred.
        prompt: Whether tokens of the prompt count.

    References: `keskar2019` Sec. 4.1 for repetition.
    """

    def __init__(
        self,
        repetition: float | int = 1.0,
        frequency: float | int = 0.0,
        presence: float | int = 0.0,
        prompt: bool = True,
    ) -> None:
        require(repetition > 0, "penalty.repetition", "be positive", repetition)
        self.repetition = repetition
        self.frequency = frequency
        self.presence = presence
        self.prompt = prompt

    def start(self, prompts: Sequence[Tensor], V: int) -> Float[Tensor, "b V"]:
        """The number of occurrences of each token."""
        counts = torch.zeros(len(prompts), V)
        if self.prompt:
            for row, prompt in zip(counts, prompts, strict=True):
                row += torch.bincount(prompt, minlength=V)
        return counts

    def apply(
        self, logits: Float[Tensor, "b V"], state: Float[Tensor, "b V"]
    ) -> Float[Tensor, "b V"]:
        """The penalised log-probabilities."""
        log_p = logits.log_softmax(-1)
        present = (state > 0).to(log_p.dtype)
        # -inf stays -inf; 0 * -inf would be NaN.
        scaled = torch.where(state > 0, log_p * self.repetition, log_p)
        return scaled - self.frequency * state.to(log_p.dtype) - self.presence * present

    def advance(
        self, state: Float[Tensor, "b V"], logits: Float[Tensor, "b V"], tokens: Int[Tensor, " b"]
    ) -> Float[Tensor, "b V"]:
        """The counts including the sampled tokens."""
        drawn = (tokens >= 0).to(state.dtype)[:, None]
        return state.scatter_add(-1, tokens.clamp(min=0)[:, None], drawn)


def repetition(r: float | int, prompt: bool = True) -> Penalty:
    """Multiply the log-probability of tokens that occurred by `r` (above 1: rarer)."""
    return Penalty(repetition=r, prompt=prompt)


def frequency(f: float | int, presence: float | int = 0.0, prompt: bool = True) -> Penalty:
    """Subtract `f` for every occurrence of a token, and `presence` once."""
    return Penalty(frequency=f, presence=presence, prompt=prompt)
