"""Sampling strategies: pure functions from logits to logits, with -inf for excluded tokens.

Any number of leading axes is a batch. Strategies always keep the likeliest token; ties go to the
lowest id.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require

Strategy = Callable[[Tensor], Tensor]
_FEW = 4096


def plain(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
    """The unchanged logits: ancestral sampling."""
    return logits


def greedy(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
    """Only the likeliest token; ties go to the lowest id."""
    return keep(logits, torch.zeros_like(logits, dtype=torch.bool))


def temperature(t: float | int) -> Strategy:
    r"""$p_i \propto p_i^{1/t}$; $t = 0$ is `greedy`, 1 has no effect."""
    require(0 <= t < float("inf"), "temperature.t", "be at least 0 and finite", t)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        # Shifted first, so that a tiny t gives -inf for all but the likeliest token.
        return greedy(logits) if t == 0 else (logits - _top(logits)) / t

    return apply


def top_k(k: int) -> Strategy:
    """Exactly the k likeliest tokens; ties go to the lower ids.

    References: `fan2018`.
    """
    require(k >= 1, "top_k.k", "be at least 1", k)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        if k >= logits.shape[-1]:
            return logits
        kept = torch.zeros_like(logits, dtype=torch.bool)
        return keep(logits, kept.scatter(-1, first_largest(logits, k), True))

    return apply


def top_p(p: float | int) -> Strategy:
    """Nucleus sampling: the smallest set of likeliest tokens with probability p or more.

    `p = 0` is `greedy`.

    References: `holtzman2020`.
    """
    require(0 <= p <= 1, "top_p.p", "lie between 0 and 1", p)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        order = logits.argsort(dim=-1, descending=True, stable=True)
        return _nucleus(logits, order, p)

    return apply


def min_p(p: float | int) -> Strategy:
    """Tokens at least p times as likely as the likeliest.

    References: `nguyen2024`.
    """
    require(0 <= p <= 1, "min_p.p", "lie between 0 and 1", p)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        q = logits.softmax(-1)
        return keep(logits, q >= p * q.amax(-1, keepdim=True))

    return apply


def top_a(a: float | int) -> Strategy:
    """Tokens of probability at least a times the squared probability of the likeliest."""
    require(0 <= a <= 1, "top_a.a", "lie between 0 and 1", a)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        q = logits.softmax(-1)
        return keep(logits, q >= a * q.amax(-1, keepdim=True) ** 2)

    return apply


def typical(p: float | int) -> Strategy:
    """The smallest set of probability p or more with surprisals nearest to the entropy.

    References: `meister2023`.
    """
    require(0 <= p <= 1, "typical.p", "lie between 0 and 1", p)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        log_q = logits.log_softmax(-1)
        away = (-log_q - _entropy(log_q)).abs()
        # Equal distances may differ in the last bits; after rounding, ties go to the lowest id.
        order = away.round(decimals=5).argsort(dim=-1, stable=True)
        return _nucleus(logits, order, p)

    return apply


def epsilon(e: float | int) -> Strategy:
    """Tokens of probability at least e.

    References: `hewitt2022`.
    """
    require(0 <= e <= 1, "epsilon.e", "lie between 0 and 1", e)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        return keep(logits, logits.softmax(-1) >= e)

    return apply


def eta(e: float | int) -> Strategy:
    r"""Tokens of probability at least $\min(\epsilon, \sqrt\epsilon\, e^{-H})$ with entropy H.

    References: `hewitt2022`.
    """
    require(0 <= e <= 1, "eta.e", "lie between 0 and 1", e)

    def apply(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        log_q = logits.log_softmax(-1)
        threshold = (e**0.5 * (-_entropy(log_q)).exp()).clamp(max=e)
        return keep(logits, log_q.exp() >= threshold)

    return apply


def checked(logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
    """The logits, if a token can be sampled from them; otherwise raise an error."""
    top = _top(logits)
    if not bool(torch.isfinite(top).all()):
        if bool(torch.isnan(logits).any()):
            raise InputError("logits must be numbers; got NaN. The model has diverged.")
        word = "+inf" if bool((top > 0).any()) else "-inf at every token"
        raise InputError(f"logits must be finite for some token; got {word}.")
    return logits


def _top(logits: Tensor) -> Tensor:
    return logits.amax(-1, keepdim=True)


def _entropy(log_q: Tensor) -> Tensor:
    return torch.special.entr(log_q.exp()).sum(-1, keepdim=True)


def keep(logits: Float[Tensor, "*b V"], kept: Bool[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
    """The logits of the kept tokens and of the likeliest token; -inf elsewhere."""
    best = logits.argmax(-1, keepdim=True)
    return logits.masked_fill(~kept.scatter(-1, best, True), -torch.inf)


def first_largest(x: Float[Tensor, "*b m"], k: int) -> Int[Tensor, "*b k"]:
    """Indices of the k largest entries in descending order; ties go to the lower index."""
    if x.numel() <= _FEW:  # one sort in numpy costs less than the calls below
        order = np.argsort(-x.detach().cpu().numpy(), axis=-1, kind="stable")
        return torch.from_numpy(order[..., :k].copy()).to(x.device)
    values, indices = x.topk(k, dim=-1, sorted=False)
    tied = (x >= values.amin(-1, keepdim=True)).sum(-1) > k
    if bool(tied.any()):  # topk may return any of the tied entries: sort all of them
        return x.argsort(dim=-1, descending=True, stable=True)[..., :k]
    indices = indices.sort(dim=-1).values
    order = x.gather(-1, indices).argsort(dim=-1, descending=True, stable=True)
    return indices.gather(-1, order)


def _nucleus(logits: Tensor, order: Tensor, p: float) -> Tensor:
    """The shortest prefix of `order` whose probability is p or more."""
    if p >= 1:
        return logits
    q = logits.softmax(-1).gather(-1, order)
    before = q.cumsum(-1) - q
    # A sum that equals p up to rounding counts as reached.
    kept = before < p - 8 * torch.finfo(q.dtype).eps
    kept[..., 0] = True
    unsorted = torch.zeros_like(kept).scatter(-1, order, kept)
    return logits.masked_fill(~unsorted, -torch.inf)
