"""Options of `allometry run` for a text's transformer: norms, activation, heads, optimiser."""

from typing import Annotated, Any

import typer

from allometry.cli import option_types

Activation = Annotated[
    str | None,
    typer.Option(
        help="Activation of a text's transformer: gelu, relu, silu, ..., or swiglu, geglu or "
        "reglu for gated layers. Default: gelu."
    ),
]
Norm = Annotated[
    str | None,
    typer.Option(help="Norm of a text's transformer: layernorm or rmsnorm. Default: layernorm."),
]
KeyValueHeads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=option_types.LARGEST_COUNT,
        help="Largest number of key and value heads of a text's transformer (grouped-query "
        "attention). Default: as many as query heads.",
    ),
]
QkNorm = Annotated[
    bool,
    typer.Option("--qk-norm", help="Normalise queries and keys of a text's transformer."),
]
Optimizer = Annotated[
    str | None,
    typer.Option(help="Optimiser of a text's transformer: adamw or muon. Default: adamw."),
]

Experts = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=option_types.LARGEST_COUNT,
        help="Experts in each block of the family moe. Default: 8.",
    ),
]
ActiveExperts = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=option_types.LARGEST_COUNT,
        help="Experts that each token uses in the family moe. Default: 2.",
    ),
]


def variant(
    activation: str | None,
    norm: str | None,
    key_value_heads: int | None,
    qk_norm: bool,
    optimizer: str | None,
    experts: int | None,
    active_experts: int | None,
) -> dict[str, Any]:
    """The options that were given."""
    given = {"activation": activation, "norm": norm, "key_value_heads": key_value_heads}
    given |= {"qk_norm": qk_norm or None, "optimizer": optimizer}
    given |= {"experts": experts, "active_experts": active_experts}
    return {name: value for name, value in given.items() if value is not None}
