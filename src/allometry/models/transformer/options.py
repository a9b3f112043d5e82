"""Arguments of `Transformer`: their names, checks and defaults."""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from allometry._core.errors import require

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
"""Activations by name; `gelu_tanh` is the one of GPT-2. Any other callable may be passed."""

GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "reglu": F.relu,
}
"""Activations of gated feed-forward layers (`shazeer2020`)."""

BIASES = ("query", "key", "value", "output", "inner", "outer", "norm")
"""Biases of `bias=True`: four of attention, b_1 and b_2 of the feed-forward layer, the norms."""

PARTS = ("both", "attention", "feed_forward")

CHOICES: dict[str, tuple[str | None, ...]] = {
    "kind": ("decoder", "encoder", "encoder-decoder"),
    "norm": ("pre", "post", None),
    "positions": ("learned", "sinusoidal", "one_hot", "rotary", None),
    "norm_type": ("layernorm", "rmsnorm"),
}


def check_sizes(**sizes: int | None) -> None:
    """Refuse sizes below 1, and heads that do not divide the width."""
    for name, size in sizes.items():
        require(size is None or size >= 1, f"Transformer.{name}", "be at least 1", size)
    width, heads = sizes["width"] or 1, sizes["heads"] or 1
    divides = sizes["head_size"] is not None or width % heads == 0
    fix = "Change one of them, or give head_size."
    require(divides, "Transformer.heads", f"divide width ({width})", heads, fix)


def check_choices(context: int | None, **given: str | None) -> None:
    """Refuse unknown names, and positions without a context."""
    for name, value in given.items():
        known = CHOICES[name]
        require(value in known, f"Transformer.{name}", f"be one of {known}", value)
    fine, kind = given["positions"] is None or context is not None, given["positions"]
    require(fine, "Transformer.context", f"be given for {kind} positions", context)


def check_groups(heads: int, key_value_heads: int | None) -> None:
    """Refuse heads of keys and values that do not divide the heads of queries."""
    fine = key_value_heads is None or (key_value_heads >= 1 and heads % key_value_heads == 0)
    require(fine, "Transformer.key_value_heads", f"divide heads ({heads})", key_value_heads)


def check_shared(depth: int, shared: bool | int) -> None:
    """Refuse a number of shared blocks that does not divide the depth."""
    fine = not shared or (shared >= 1 and depth % shared == 0)
    require(fine, "Transformer.shared", f"divide depth ({depth})", shared)


def check_vocabulary(
    vocabulary: int | None, inputs: int | None, outputs: int | None, columns: bool, tied: bool
) -> None:
    """Refuse options that contradict the presence or absence of a vocabulary."""
    fine = not tied or (vocabulary is not None and outputs in (None, vocabulary))
    require(fine, "Transformer.tied", "read out its vocabulary", outputs)
    for name, value in (("inputs", inputs), ("columns", columns)):
        fine = vocabulary is None or not value
        require(fine, f"Transformer.{name}", "not be given with a vocabulary", value)


def activation_function(
    activation: str | Callable[[Tensor], Tensor],
) -> Callable[[Tensor], Tensor]:
    """The activation of a name; a callable is returned as it is."""
    if not isinstance(activation, str):
        return activation
    known = ACTIVATIONS | GATED
    fine = activation in known
    require(fine, "Transformer.activation", f"be one of {tuple(known)}", activation)
    return known[activation]


def bias_names(bias: bool | Collection[str]) -> tuple[str, ...]:
    """Names of the biases that the model has."""
    known = {*BIASES, "readout"}
    fine = isinstance(bias, bool) or (not isinstance(bias, str) and set(bias) <= known)
    require(fine, "Transformer.bias", f"be True, False or some of {sorted(known)}", bias)
    return (BIASES if bias else ()) if isinstance(bias, bool) else tuple(bias)


def block_shapes(
    blocks: int,
    width: int,
    hidden: int | Sequence[int] | None,
    parts: Sequence[str] | None,
    gated: bool = False,
) -> list[tuple[str, int]]:
    """For each block its parts and its hidden size."""
    usual = round(8 * width / 3) if gated else 4 * width
    hidden = usual if hidden is None else hidden
    sizes = [hidden] * blocks if isinstance(hidden, int) else list(hidden)
    fine = len(sizes) == blocks and min(sizes) >= 1
    require(fine, "Transformer.hidden", f"be at least 1 in each of {blocks} blocks", sizes)
    fine = parts is None or (len(parts) == blocks and set(parts) <= set(PARTS))
    require(fine, "Transformer.parts", f"name one of {PARTS} for each of {blocks} blocks", parts)
    return list(zip(parts or ["both"] * blocks, sizes, strict=True))


def check_length(length: int, context: int | None) -> None:
    """Refuse more positions than the context has."""
    fix = "Cut them, or build the model with a larger context."
    fits = context is None or length <= context
    require(fits, "tokens", f"be at most context ({context}) long", length, fix)


def check_tokens(tokens: Tensor, size: int, columns: bool) -> None:
    """Refuse real-valued tokens (b, n, d) of another size; `columns` are shown as (b, d, n)."""
    shape = tuple(tokens.mT.shape if columns else tokens.shape)
    wanted = f"be real-valued of size {size} along axis {1 if columns else 2} of 3"
    require(tokens.ndim == 3 and tokens.shape[2] == size, "tokens", wanted, shape)
