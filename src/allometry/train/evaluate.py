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
    model: nn.Module, target: Split, split: str, *, context: int, batch: int = 64
) -> Float[Tensor, " tokens"]:
    """Negative log-likelihood in nats of every token of `split` but the first, in order."""
    inputs, following, counts = target.blocks(split, context)
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


def evaluate(model: nn.Module, target: Split, split: str, *, context: int) -> Estimate:
    """Mean loss of `model` over the whole `split` in nats per token, with a block-based error."""
    return block_mean(token_losses(model, target, split, context=context).double().numpy())
