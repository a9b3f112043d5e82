"""The loss on a whole split."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.estimate import Estimate
from allometry.measure.likelihood import block_mean
from allometry.models.transformer import fused_decoder


@runtime_checkable
class Split(Protocol):
    """The interface that evaluation needs of a target: windows that cover a split once."""

    def blocks(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """Inputs, the next tokens, and a mask of those that count."""
        ...


@torch.no_grad()
def token_losses(
    model: nn.Module,
    target: Split,
    split: str,
    *,
    context: int,
    batch: int = 64,
    most: int | None = None,
) -> Float[Tensor, " tokens"]:
    """Negative log-likelihood in nats of every token of `split` but the first, in order.

    Args:
        model: Gives logits.
        target: Has the split.
        split: Its name.
        context: Tokens of a window.
        batch: Windows evaluated at once.
        most: Only so many tokens, rounded up to windows at even distances. Default: all.
    """
    inputs, following, counts = target.blocks(split, context)
    chosen = some_windows(len(inputs), context, most)
    inputs, following, counts = inputs[chosen], following[chosen], counts[chosen]
    was_training = model.training
    device = next((p.device for p in model.parameters()), inputs.device)
    model.eval()
    parts = []
    for start in range(0, len(inputs), batch):
        rows = slice(start, start + batch)
        losses = fused_decoder.losses(model, inputs[rows], following[rows])
        if losses is None:
            logits = model(inputs[rows].long().to(device))
            true = following[rows].long().flatten().to(device)
            losses = functional.cross_entropy(logits.flatten(0, 1), true, reduction="none").cpu()
        parts.append(losses[counts[rows]] if losses.ndim == 2 else losses[counts[rows].flatten()])
    model.train(was_training)
    return torch.cat(parts)


def some_windows(count: int, context: int, most: int | None) -> Int[Tensor, " b"]:
    """Positions of windows at even distances: all, or those of at least `most` tokens."""
    kept = count if most is None else min(count, -(-most // context))
    return torch.arange(kept) * count // kept


def evaluate(
    model: nn.Module, target: Split, split: str, *, context: int, most: int | None = None
) -> Estimate:
    """Mean loss of `model` over the `split` in nats per token, with a block-based error.

    Args:
        model: Gives logits.
        target: Has the split.
        split: Its name.
        context: Tokens of a window.
        most: Only so many tokens, rounded up to windows at even distances. Default: all.
    """
    losses = token_losses(model, target, split, context=context, most=most)
    return block_mean(losses.double().numpy())
