r"""Memory of training and inference of a transformer, in bytes.

Mixed-precision training with Adam keeps 16 bytes per parameter: bf16 weights (2) and gradients
(2), and in fp32 a copy of the weights, the momentum and the variance (12). Activations of a layer
of width $h$ take $34\,h$ bytes per token if attention is recomputed (as FlashAttention does), and
$2\,h$ if only the inputs of layers are kept.

References:
    `rajbhandari2020` section 3.1; `korthikanti2023` Table 2.
"""

import math
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import require

WEIGHTS, GRADIENTS, OPTIMISER = 2, 2, 12
"""Bytes per parameter."""

ACTIVATIONS = {"attention": 34, "full": 2}
"""Bytes per token, layer and unit of width, by what is recomputed in the backward pass."""

ASPECT = 128
"""Width over depth if the shape is unknown; 128 in Llama 7B, 64 to 128 in most transformers."""


@final
@dataclass(frozen=True)
class Memory:
    """Memory of a training in bytes, over all accelerators.

    Args:
        weights: bf16 weights.
        gradients: bf16 gradients.
        optimiser: Adam's fp32 copy of the weights, momentum and variance.
        activations: Activations of the tokens in flight on all accelerators.
        accelerators: Number of accelerators over which everything is sharded.
        width: Width of the model.
        depth: Layers of the model.
    """

    weights: float
    gradients: float
    optimiser: float
    activations: float
    accelerators: int
    width: int
    depth: int

    @property
    def total(self) -> float:
        """The sum."""
        return self.weights + self.gradients + self.optimiser + self.activations

    @property
    def per_accelerator(self) -> float:
        """The share of one accelerator if model states are fully sharded (ZeRO stage 3, FSDP)."""
        return self.total / self.accelerators

    def to_dict(self) -> dict[str, Any]:
        """The parts as JSON."""
        return {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimiser": self.optimiser,
            "activations": self.activations,
            "total": self.total,
            "per_accelerator": self.per_accelerator,
            "width": self.width,
            "depth": self.depth,
        }


def shape(N: float, aspect: float = ASPECT) -> tuple[int, int]:
    r"""Width $h$ and depth $l$ with $N = 12\,l\,h^2$ and $h/l$ equal to `aspect`.

    Example:
        >>> shape(6.44e9)
        (4095, 32)

    References:
        `kaplan2020` section 2.1.
    """
    require(N > 0 and math.isfinite(N), "N", "be positive", N)
    width = (aspect * N / 12.0) ** (1.0 / 3.0)
    return max(round(width), 1), max(round(width / aspect), 1)


def training_memory(
    N: float,
    *,
    batch_tokens: float = 4096,
    accelerators: int = 1,
    recompute: str = "attention",
    width: int | None = None,
    depth: int | None = None,
) -> Memory:
    r"""Memory to train a transformer of N parameters in mixed precision with Adam.

    $16 N + k\, n\, T\, h\, l$ bytes for $n$ accelerators with $T$ tokens each at once, width $h$,
    depth $l$, and $k = 34$, or 2 with full recomputation. Logits and fragmentation are left out.

    Args:
        N: Parameters.
        batch_tokens: Tokens that each accelerator processes at once (its micro-batch).
        accelerators: Number of accelerators.
        recompute: `"attention"` or `"full"`.
        width: Width of the model. Default: by `shape`.
        depth: Layers. Default: by `shape`.

    Example:
        >>> made = training_memory(7e9, batch_tokens=4096, accelerators=64, width=4096, depth=32)
        >>> made.total - made.activations, made.activations == 34 * 64 * 4096 * 4096 * 32
        (112000000000.0, True)

    References:
        `rajbhandari2020` section 3.1; `korthikanti2023` Table 2.
    """
    require(recompute in ACTIVATIONS, "recompute", "be attention or full", recompute)
    require(batch_tokens > 0, "batch_tokens", "be positive", batch_tokens)
    require(accelerators >= 1, "accelerators", "be at least 1", accelerators)
    h, layers = shape(N)
    h, layers = width or h, depth or layers
    return Memory(
        weights=WEIGHTS * N,
        gradients=GRADIENTS * N,
        optimiser=OPTIMISER * N,
        activations=float(ACTIVATIONS[recompute]) * accelerators * batch_tokens * h * layers,
        accelerators=accelerators,
        width=h,
        depth=layers,
    )


def inference_compute(N: float, tokens: float) -> float:
    """FLOPs to process `tokens` after training: 2N each, without attention over the context.

    Example:
        >>> inference_compute(7e9, 1e12)
        1.4e+22

    References:
        `kaplan2020` section 2.1; `sardana2024` Eq. (3).
    """
    return 2.0 * N * tokens
