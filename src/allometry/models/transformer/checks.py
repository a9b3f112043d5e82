"""What a transformer refuses to be built from."""

from typing import Any

from allometry._core.errors import require
from allometry.models.transformer.block import ACTIVATIONS, BIASES, PARTS


def check(given: dict[str, Any]) -> None:
    """Refuse arguments of `Transformer` that make no sense, before anything is built."""
    width, heads, context, outputs = (given[k] for k in ("width", "heads", "context", "outputs"))
    vocabulary, positions, parts, bias = (
        given[k] for k in ("vocabulary", "positions", "parts", "bias")
    )
    for name in ("vocabulary", "width", "depth", "heads", "context", "head_size"):
        size = given[name]
        require(size is None or size >= 1, f"Transformer.{name}", "be at least 1", size)
    fix = "Change one of them, or give head_size."
    divides = given["head_size"] is not None or width % heads == 0
    require(divides, "Transformer.heads", f"divide width ({width})", heads, fix)
    choices: dict[str, tuple[str | None, ...]] = {
        "kind": ("decoder", "encoder", "encoder-decoder"),
        "norm": ("pre", "post", None),
        "positions": ("learned", "sinusoidal", "one_hot", "rotary", None),
        "activation": tuple(ACTIVATIONS),
    }
    for name, known in choices.items():
        fine = given[name] in known or (name == "activation" and callable(given[name]))
        require(fine, f"Transformer.{name}", f"be one of {known}", given[name])
    placed = positions is None or context is not None
    require(placed, "Transformer.context", f"be given for {positions} positions", context)
    known = {*BIASES, "readout"}
    fine = isinstance(bias, bool) or (not isinstance(bias, str) and set(bias) <= known)
    require(fine, "Transformer.bias", f"be True, False or some of {sorted(known)}", bias)
    fine = vocabulary is not None and outputs in (None, vocabulary)
    require(not given["tied"] or fine, "Transformer.tied", "read out its vocabulary", outputs)
    for name in ("inputs", "columns"):
        fine = vocabulary is None or not given[name]
        require(fine, f"Transformer.{name}", "not be given with a vocabulary", given[name])
    blocks, hidden = 1 if given["shared"] else given["depth"], given["hidden"]
    hidden = [hidden] * blocks if isinstance(hidden, int) else hidden
    fine = hidden is None or (len(hidden) == blocks and min(hidden) >= 1)
    require(fine, "Transformer.hidden", f"be at least 1 in each of {blocks} blocks", hidden)
    fine = parts is None or (len(parts) == blocks and set(parts) <= set(PARTS))
    require(fine, "Transformer.parts", f"name one of {PARTS} for each of {blocks} blocks", parts)
