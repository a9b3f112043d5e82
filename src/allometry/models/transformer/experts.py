"""A mixture of experts in place of a feed-forward layer: each token uses a few of them.

Shapes: b batch, n positions, t tokens, d width, r hidden size, e experts, k active experts.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require


@final
class MixtureOfExperts(nn.Module):
    r"""$\sum_{i \in \mathrm{top}_k} w_i\,\mathrm{FF}_i(x)$ with weights from a router.

    Scores are $W_R x$, with `router` = $W_R$. Weights are the softmax of the k largest scores; for
    k = 1, the softmax of all scores at the largest. Every expert is a `FeedForward`; their weights
    are stacked along the first axis.

    Args:
        width: d.
        hidden: r of each expert.
        activation: As for `FeedForward`.
        bias: As for `FeedForward`; the router has none.
        gated: As for `FeedForward`.
        experts: e.
        active: k, experts of a token.

    Attributes:
        collector: A list to which each pass adds its balance loss; see `balance_losses`.

    References: `fedus2022` section 2.1 for k = 1; `jiang2024` section 2.1 for more.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Callable[[Tensor], Tensor],
        bias: Collection[str],
        gated: bool,
        experts: int,
        active: int,
    ) -> None:
        super().__init__()
        require(1 <= active <= experts, "active_experts", f"be 1 to {experts}", active)
        self.activation, self.experts, self.active = activation, experts, active
        self.router = nn.Parameter(torch.empty(experts, width))
        self.inner = nn.Parameter(torch.empty(experts, hidden, width))
        self.outer = nn.Parameter(torch.empty(experts, width, hidden))
        self.gate = nn.Parameter(torch.empty(experts, hidden, width)) if gated else None

        def optional(wanted: bool, size: int) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(experts, size)) if wanted else None

        self.inner_bias = optional("inner" in bias, hidden)
        self.outer_bias = optional("outer" in bias, width)
        self.gate_bias = optional(gated and "inner" in bias, hidden)
        self.collector: list[Tensor] | None = None

    @property
    def inactive(self) -> int:
        """Parameters that a token does not use."""
        own = sum(p.numel() for p in self.parameters()) - self.router.numel()
        return own // self.experts * (self.experts - self.active)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The layer without its skip connection."""
        flat = x.flatten(0, 1)
        scores = F.linear(flat, self.router)
        top, chosen = scores.topk(self.active, -1)  # t k
        # The weight of a single expert must depend on the router, or it would never learn.
        weights = top.softmax(-1) if self.active > 1 else scores.softmax(-1).gather(1, chosen)
        if self.collector is not None:
            self.collector.append(balance_loss(scores, chosen))
        if flat.device.type in ("cpu", "meta"):
            return self._routed(flat, chosen, weights).view_as(x)
        return self._all(flat, chosen, weights).view_as(x)

    def _routed(
        self, x: Float[Tensor, "t d"], chosen: Int[Tensor, "t k"], weights: Float[Tensor, "t k"]
    ) -> Float[Tensor, "t d"]:
        """Every expert on its own tokens. Their number depends on values, so the host waits."""
        out = torch.zeros_like(x)
        for expert in range(self.experts):
            rows, slot = self._tokens(chosen, expert)
            y = self._expert(x[rows], expert) * weights[rows, slot][:, None]
            out = out.index_add(0, rows, y)
        return out

    def _tokens(self, chosen: Int[Tensor, "t k"], expert: int) -> tuple[Tensor, Tensor]:
        """Tokens of an expert, and which of their choices it is."""
        if chosen.device.type != "meta":
            rows, slot = (chosen == expert).nonzero(as_tuple=True)
            return rows, slot
        # Only shapes matter: equal parts, which together are all choices.
        part = torch.arange(chosen.numel(), device="meta").tensor_split(self.experts)[expert]
        return part, part

    def _all(
        self, x: Float[Tensor, "t d"], chosen: Int[Tensor, "t k"], weights: Float[Tensor, "t k"]
    ) -> Float[Tensor, "t d"]:
        """Every expert on every token, with weight 0 where it was not chosen.

        Shapes do not depend on values, so a GPU never waits for the host. It takes e / k times the
        arithmetic, in three batched products.
        """
        share = x.new_zeros(len(x), self.experts).scatter(1, chosen, weights)

        def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

        each = x.expand(self.experts, *x.shape)
        hidden = linear(each, self.inner, self.inner_bias)
        if self.gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(linear(each, self.gate, self.gate_bias)) * hidden
        return (linear(hidden, self.outer, self.outer_bias) * share.T[..., None]).sum(0)

    def _expert(self, x: Float[Tensor, "t d"], expert: int) -> Float[Tensor, "t d"]:
        def of(stack: Tensor | None) -> Tensor | None:
            return None if stack is None else stack[expert]

        hidden = F.linear(x, self.inner[expert], of(self.inner_bias))
        if self.gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(F.linear(x, self.gate[expert], of(self.gate_bias))) * hidden
        return F.linear(hidden, self.outer[expert], of(self.outer_bias))


def balance_loss(scores: Float[Tensor, "t e"], chosen: Int[Tensor, "t k"]) -> Float[Tensor, ""]:
    r"""$e \sum_i f_i P_i$: 1 if tokens are spread equally, more otherwise.

    $f_i$ is expert i's share of the choices, $P_i$ its mean probability.

    References: `fedus2022` Eqs. (4) to (6).
    """
    e = scores.shape[1]
    share = F.one_hot(chosen.flatten(), e).to(scores.dtype).mean(0)
    return e * (share * scores.softmax(-1).mean(0)).sum()


@contextlib.contextmanager
def balance_losses(model: nn.Module) -> Iterator[list[Tensor]]:
    """The balance losses of all mixtures of `model`, collected by passes inside the context."""
    parts = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    collected: list[Tensor] = []
    try:
        for part in parts:
            part.collector = collected
        yield collected
    finally:
        for part in parts:
            part.collector = None
