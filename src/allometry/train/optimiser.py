"""AdamW whose optimal learning rate does not depend on the width (muP)."""

from typing import Any

from torch import nn, optim


def hidden_and_other(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices between hidden layers, and all other parameters.

    A model lists its tables and readout by `embedding_parameters()`, and tensors that multiply
    element by element, whatever their number of axes, by `elementwise_parameters()`.
    """
    tables = getattr(model, "embedding_parameters", None)
    elementwise = getattr(model, "elementwise_parameters", None)
    listed = [listing() for listing in (tables, elementwise) if listing is not None]
    other = {id(p) for listing in listed for p in listing}
    hidden = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in other]
    rest = [p for p in model.parameters() if p.ndim < 2 or id(p) in other]
    return hidden, rest


def parameter_groups(
    model: nn.Module, *, lr: float, width: int, base_width: int, weight_decay: float
) -> list[dict[str, Any]]:
    r"""Groups for AdamW under the maximal-update parametrisation.

    Matrices between hidden layers have a fan-in that grows with width, so Adam's step there is
    scaled by `base_width / width`; tables, biases and gains keep the rate. Together with the scale
    of the readout (`Transformer(readout_scale=base_width / width)`) the optimal rate transfers
    across widths. Weight decay is applied to hidden matrices only, with a strength that does not
    shrink with their rate.

    References: `yang2022` Table 8; `loshchilov2019` Algorithm 2.
    """
    hidden, rest = hidden_and_other(model)
    scale = base_width / width
    groups = [
        {"params": hidden, "lr": lr * scale, "weight_decay": weight_decay / scale},
        {"params": rest, "lr": lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(
    model: nn.Module,
    *,
    lr: float,
    width: int = 1,
    base_width: int = 1,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.95),
) -> optim.AdamW:
    """AdamW over `parameter_groups`, with torch's fused kernel."""
    groups = parameter_groups(
        model, lr=lr, width=width, base_width=base_width, weight_decay=weight_decay
    )
    for group in groups:
        group["peak_lr"] = group["lr"]  # the schedule multiplies this
    return optim.AdamW(groups, betas=betas, fused=True)


def proportional(
    model: nn.Module, *, lr: float, betas: tuple[float, float] = (0.9, 0.95)
) -> optim.AdamW:
    """AdamW whose rate for each tensor is `lr` times its root mean square.

    For weights whose sizes differ by orders of magnitude, such as those of constructions: a step
    changes each tensor by the same fraction. Tensors that are all zero stay zero.

    Args:
        model: The model; parameters without gradient are skipped.
        lr: The fraction.
        betas: Decay rates of the moments.

    References: `you2020` for rates in proportion to the weights.
    """
    groups = []
    for weight in model.parameters():
        if weight.requires_grad:
            rate = lr * float(weight.detach().square().mean().sqrt())
            groups.append({"params": [weight], "lr": rate, "peak_lr": rate, "weight_decay": 0.0})
    return optim.AdamW(groups, betas=betas, fused=True)
