"""A checkpoint of a stock architecture, and the words for its tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from allometry.models.transformer import options

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
"""Precisions by name."""


@final
@dataclass(frozen=True)
class Symbols:
    """Tokens of an export.

    Attributes:
        words: The text of each token id of our model.
        before: Ids that the tokenizer puts before every text.
        after: Ids that it puts after every text.
        ends: Ids after which generation stops.
        labels: Names of the outputs, if they are not tokens.
        silent: Whether decoded text leaves out the start and end tokens.
    """

    words: Sequence[str]
    before: Sequence[int] = ()
    after: Sequence[int] = ()
    ends: Sequence[int] = ()
    labels: Sequence[str] | None = None
    silent: bool = False


@final
@dataclass(frozen=True)
class Checkpoint:
    """Configuration and weights in the names of the `transformers` library.

    Attributes:
        config: Content of `config.json`.
        weights: Tensors by name.
        ids: Token id in the checkpoint of each of our token ids; empty without a vocabulary.
        inputs: Matrix (d, width) that maps real-valued tokens to `inputs_embeds`, or `None`.
        precision: "float32" or "float64".
        greedy: Whether generation takes the likeliest token unless it is asked to sample.
        before: Number of blocks before those of the model.
        steep: Factor on the inputs of neurons.
    """

    config: dict[str, Any]
    weights: Mapping[str, Tensor]
    ids: list[int] = field(default_factory=list)
    inputs: Tensor | None = None
    precision: str = "float32"
    greedy: bool = False
    before: int = 0
    steep: float = 1.0

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(w.numel() for w in self.weights.values())


def activation_name(activation: Any) -> str | None:
    """The name in `transformers` of an activation of `options.ACTIVATIONS`, or `None`."""
    ours = next((n for n, f in options.ACTIVATIONS.items() if f is activation), None)
    renamed = {"gelu_tanh": "gelu_pytorch_tanh", "identity": "linear"}
    return renamed.get(ours or "", ours)


def cast(weights: Mapping[str, Tensor], precision: str) -> dict[str, Tensor]:
    """The weights as contiguous tensors of a precision, each with its own memory."""
    dtype = DTYPES[precision]
    return {name: w.detach().to(dtype).clone().contiguous() for name, w in weights.items()}
