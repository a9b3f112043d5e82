"""Transformers with other norms, activations, attention heads or optimisers than the default."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn, optim

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.models import Transformer
from allometry.models.transformer import options
from allometry.study.recipes.text_run import BASE_WIDTH, TextRun
from allometry.targets import Sources, Text
from allometry.train.budget import count_inactive, count_next_token
from allometry.train.muon import RATE_RATIO, muon
from allometry.train.objectives import balanced_next_token
from allometry.train.training import Training

EXPERTS, ACTIVE_EXPERTS = 8, 2
"""Of the family `moe` by default."""

OPTIMIZERS = {"adamw": 0.008, "muon": 0.016}
"""Optimisers and their default rates, at `BASE_WIDTH` and depth 1."""

DEFAULTS: dict[str, Any] = {
    "activation": "gelu",
    "norm": "layernorm",
    "key_value_heads": None,
    "qk_norm": False,
    "optimizer": "adamw",
    "hidden_rate": 1.0,
    "experts": None,
    "active_experts": 1,
}
"""Options of `VariantRun` and the default transformer's values."""


@final
@dataclass(frozen=True, kw_only=True)
class VariantRun(TextRun):
    """One decoder transformer that differs from `TransformerRun` in the options below.

    Further arguments: see `TokenRun`.

    Args:
        heads: Attention heads of a block.
        activation: A name in `options.ACTIVATIONS`, or "swiglu", "geglu" or "reglu".
        norm: "layernorm" or "rmsnorm".
        key_value_heads: Heads of keys and values (grouped-query attention); `None` for all.
        qk_norm: RMSNorm of queries and keys.
        optimizer: "adamw" or "muon".
        hidden_rate: Factor on the learning rate of hidden matrices.
        experts: Feed-forward layers of each block that a router chooses from (mixture of experts);
            `None` for one layer without a router. Their hidden size is divided by
            `active_experts`, so that N, the parameters that a token uses, is that of one layer.
        active_experts: Experts of each token.
    """

    target: Text | Sources
    heads: int
    activation: str = "gelu"
    norm: str = "layernorm"
    key_value_heads: int | None = None
    qk_norm: bool = False
    optimizer: str = "adamw"
    hidden_rate: float = 1.0
    experts: int | None = None
    active_experts: int = 1

    @property
    def family_name(self) -> str:
        """The family with its options, such as `transformer (swiglu, muon)` or `moe`."""
        labels = ", ".join(self._labels)
        return f"{'transformer' if self.experts is None else 'moe'}{labels and f' ({labels})'}"

    @property
    def _labels(self) -> list[str]:
        """The options that differ from the default."""
        named = (self.activation, self.norm, self.optimizer)
        usual = (DEFAULTS[key] for key in ("activation", "norm", "optimizer"))
        labels = [name for name, default in zip(named, usual, strict=True) if name != default]
        grouped = [] if self.key_value_heads is None else ["grouped queries"]
        labels += grouped + (["qk-norm"] if self.qk_norm else [])
        if self.experts is not None:
            usual = (self.experts, self.active_experts) == (EXPERTS, ACTIVE_EXPERTS)
            return labels + ([] if usual else [f"{self.active_experts} of {self.experts}"])
        return labels or [f"hidden rate {self.hidden_rate:g}"]

    @property
    def columns(self) -> dict[str, Any]:
        """Those of every run, activation, norm and optimiser; of a mixture its total size."""
        more = {"activation": self.activation, "norm": self.norm, "optimizer": self.optimizer}
        if self.experts is not None:
            more |= {"experts": self.experts, "active_experts": self.active_experts}
            more |= {"N_total": self.cost()[0] + _unused(**self._sizes)}
        return super().columns | more

    @property
    def packs(self) -> bool:
        """Not a mixture: which tokens an expert gets differs between runs."""
        return self.experts is None

    @property
    def splits(self) -> bool:
        """Not a mixture: its balance is that of a whole batch."""
        return self.experts is None

    def training(self) -> Training:
        """Next-token prediction; a mixture of experts is also kept in balance."""
        made = super().training()
        if self.experts is None:
            return made
        return dataclasses.replace(made, objective=balanced_next_token)

    @property
    def _sizes(self) -> dict[str, Any]:
        sizes = {"width": self.width, "depth": self.depth, "heads": self.heads}
        sizes |= {"vocabulary": self.target.vocabulary.size, "context": self.context}
        sizes |= {"activation": self.activation, "norm": self.norm, "qk_norm": self.qk_norm}
        sizes |= {"experts": self.experts, "active_experts": self.active_experts}
        return sizes | {"key_value_heads": self.key_value_heads}

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
        return Spec(variant_decoder, **self._sizes, rng=None)

    def model(self) -> Transformer:
        """The untrained model."""
        return variant_decoder(**self._sizes, rng=torch.Generator().manual_seed(self.seed))

    def optimiser(self, model: nn.Module) -> optim.Optimizer:
        """AdamW or Muon with the rate scaled to the model's shape."""
        if self.optimizer == "muon":
            ratio = RATE_RATIO * self.hidden_rate
            return muon(model, lr=self.peak_lr, weight_decay=self.weight_decay, ratio=ratio)
        made = super().optimiser(model)
        hidden = made.param_groups[0]
        hidden["peak_lr"] *= self.hidden_rate
        hidden["weight_decay"] /= self.hidden_rate
        return made

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token; those of the optimiser do not count."""
        return _cost(**self._sizes)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.003 + 0.002 * self.depth) + self.budget().C / 4e10


def variant_decoder(
    vocabulary: int,
    width: int,
    depth: int,
    heads: int,
    context: int,
    activation: str = "gelu",
    norm: str = "layernorm",
    key_value_heads: int | None = None,
    qk_norm: bool = False,
    experts: int | None = None,
    active_experts: int = 1,
    rng: torch.Generator | None = None,
) -> Transformer:
    """The model of a rung; the readout is scaled so that the learning rate transfers."""
    gated = activation in options.GATED
    ((_, hidden),) = options.block_shapes(1, width, None, None, gated)
    return Transformer(
        vocabulary=vocabulary,
        width=width,
        depth=depth,
        heads=heads,
        context=context,
        positions="rotary",
        readout_scale=BASE_WIDTH / width,
        hidden=hidden if experts is None else max(1, round(hidden / active_experts)),
        activation=activation,
        norm_type=norm,
        key_value_heads=key_value_heads,
        qk_norm=qk_norm,
        experts=experts,
        active_experts=active_experts,
        rng=rng,
    )


@functools.cache
def _cost(**sizes: Any) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""
    make = functools.partial(variant_decoder, **sizes)
    about = 12 * sizes["depth"] * sizes["width"] ** 2
    window = {"vocabulary": sizes["vocabulary"], "context": sizes["context"]}
    return count_next_token(make, **window, about=about)


@functools.cache
def _unused(**sizes: Any) -> int:
    """Parameters that a token does not use."""
    with torch.device("meta"):
        return count_inactive(variant_decoder(**sizes))


def changed(variant: Mapping[str, Any]) -> dict[str, Any]:
    """The options that differ from the default, checked."""
    unknown = sorted(set(variant) - set(DEFAULTS))
    if unknown:
        raise InputError(
            f"transformer must have the options {', '.join(DEFAULTS)}; got {unknown[0]}."
        )
    given = DEFAULTS | dict(variant)
    known = {
        "activation": (*options.ACTIVATIONS, *options.GATED),
        "norm": options.CHOICES["norm_type"],
        "optimizer": tuple(OPTIMIZERS),
    }
    for name, names in known.items():
        shown = ", ".join(map(str, names))
        require(given[name] in names, name, f"be one of {shown}", given[name])
    total, active = given["experts"], given["active_experts"]
    require(total is None or total >= 1, "experts", "be at least 1", total)
    fits = 1 <= active <= (total or 1)
    require(fits, "active_experts", f"be from 1 to experts ({total or 1})", active)
    factor = given["hidden_rate"]
    require(0 < factor < math.inf, "hidden_rate", "be above 0 and finite", factor)
    groups = given["key_value_heads"]
    require(groups is None or groups >= 1, "key_value_heads", "be at least 1", groups)
    return {name: value for name, value in given.items() if value != DEFAULTS[name]}


def grouped(variant: Mapping[str, Any], heads: int) -> dict[str, int]:
    """Heads of keys and values of one size: the largest divisor of `heads` up to those asked."""
    most = variant.get("key_value_heads")
    if most is None:
        return {}
    return {"key_value_heads": max(g for g in range(1, heads + 1) if heads % g == 0 and g <= most)}
