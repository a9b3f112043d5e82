"""What a run costs: parameters N, data D, compute C."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from allometry.train.objectives import next_token


@final
@dataclass(frozen=True)
class Budget:
    """The size of one run.

    Args:
        N: Parameters, embeddings apart.
        N_embedding: Parameters of token table, position table and readout.
        D: Tokens (or examples) seen in training, repeats included.
        C: Floating-point operations of training, counted.
    """

    N: int
    N_embedding: int
    D: int
    C: float

    @property
    def C_6ND(self) -> float:
        """The usual estimate of compute, $6 N D$ (`kaplan2020` section 2.1).

        References: `kaplan2020` Table 1.
        """
        return 6.0 * self.N * self.D


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters as `(N, N_embedding)`; each shared tensor counts once.

    A model names its tables and readout by a method `embedding_parameters()`; one without such a
    method has no embeddings.
    """
    everything = {id(p): p.numel() for p in model.parameters()}
    naming = getattr(model, "embedding_parameters", None)
    tables = {id(p): p.numel() for p in naming()} if naming is not None else {}
    embedding = sum(tables.values())
    return sum(everything.values()) - embedding, embedding


def count_flops(model: nn.Module, tokens: Tensor) -> float:
    """FLOPs of one forward and backward pass of the next-token loss on `tokens` (b, n+1).

    Counted by torch operator by operator (a multiply and an add are two). Attention is traced in
    its plain form, whose count the fused kernels' dispatch would hide.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        next_token(model, tokens).backward()
    model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def count_training_flops(model: nn.Module, *, vocabulary: int, context: int, tokens: int) -> float:
    """FLOPs of training on `tokens` tokens in windows of `context`, from one counted window."""
    device = next(model.parameters()).device
    window = torch.randint(
        vocabulary, (1, context + 1), generator=torch.Generator().manual_seed(0)
    ).to(device)
    return count_flops(model, window) * (tokens / context)
