r"""Discrete diffusion of token sequences: masked (MDLM) and uniform (SEDD).

Tokens are corrupted independently: with probability $1 - \alpha_t$ a token is replaced by a mask,
or by a token drawn uniformly. A transformer that reads the whole window predicts the clean tokens.

Shapes: b rows, n positions, v vocabulary.
"""

import math
from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.diffusion.networks import LEVEL, level_features
from allometry.models.transformer.model import Transformer

Tokens = Int[Tensor, "b n"]
Logits = Float[Tensor, "b n v"]

LEAST = 1e-3
r"""$\alpha$ at the last time of uniform diffusion."""

BASE_WIDTH = 64
"""Width at which the readout has scale 1, so that one learning rate fits all widths."""


@final
class DiscreteDiffusion(nn.Module):
    r"""A model of windows of n tokens by denoising, with a bound on its likelihood.

    **Masked** diffusion with any schedule is a model of tokens in random order: if k positions
    are masked, k uniform on 1 ... n and the positions uniform,

    $-\log p(x) \le \mathbb E_k \frac nk \mathbb E \sum_{i\ masked} -\log p(x_i \mid x_{seen})$.

    **Uniform** diffusion has $\alpha_t = 1 - (1 - 10^{-3}) t$ and the score-entropy bound: with
    ratios $r_y = p_t(y | x_0) / p_t(x_t | x_0)$ and the model's $s_y$,
    $\int_0^1 \mathbb E \sum_i \frac{\beta_t}{v} \sum_{y \ne x_i} (s_y - r_y \log s_y
    + r_y (\log r_y - 1))\,dt$ plus the divergence of $x_1$ from uniform.

    Called with tokens, the model predicts the token after them, the rest of the window unknown. So
    it works with `decode.sample`: left to right is one of its orders.

    Differs from the papers: the masked bound takes the number of masked positions in place of the
    time, which is the same expectation with less variance. Uniform diffusion predicts the clean
    tokens, from which the ratios follow.

    Args:
        vocabulary: v.
        width: Of the transformer.
        depth: Its blocks.
        heads: Its attention heads.
        context: n, the positions of a window.
        noise: `"masked"` or `"uniform"`.
        rng: Generator of the initial weights; default: seed 0.

    Example:
        >>> import torch
        >>> from allometry.models import diffusion
        >>> model = diffusion.DiscreteDiffusion(5, width=16, depth=1, heads=1, context=8)
        >>> model.sample(2, rng=torch.Generator().manual_seed(0)).shape
        torch.Size([2, 8])

    References: `sahoo2024`; `hoogeboom2022` Eq. (4); `lou2024` Theorem 3.6.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        heads: int,
        context: int,
        noise: str = "masked",
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        known = ("masked", "uniform")
        require(noise in known, "DiscreteDiffusion.noise", f"be one of {known}", noise)
        require(vocabulary >= 2, "DiscreteDiffusion.vocabulary", "be at least 2", vocabulary)
        require(context >= 2, "DiscreteDiffusion.context", "be at least 2", context)
        self.vocabulary, self.noise, self.window = vocabulary, noise, context
        self.context = context - 1
        """Most tokens that are read before the next is predicted."""
        self.transformer = Transformer(
            vocabulary + (noise == "masked"),
            width,
            depth,
            heads,
            context,
            kind="encoder",
            positions="rotary",
            outputs=vocabulary,
            readout_scale=BASE_WIDTH / width,
            rng=rng,
        )
        # A masked window shows its noise level by itself.
        self.level = nn.Linear(LEVEL, width) if noise == "uniform" else None
        if self.level is not None:
            nn.init.zeros_(self.level.weight)
            nn.init.zeros_(self.level.bias)

    @property
    def mask(self) -> int:
        """The id of the mask."""
        return self.vocabulary

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Token table and readout."""
        yield from self.transformer.embedding_parameters()

    def logits(self, tokens: Tokens, t: Float[Tensor, " b"] | None = None) -> Logits:
        """Logits of the clean tokens; `t`, from 0 to 1, is the time of uniform diffusion.

        Under uniform noise a token is evidence of itself: Bayes' rule adds its log-likelihood
        ratio, so that the transformer only has to predict a token from the others.
        """
        if self.level is None:
            return self.transformer(tokens)
        table = self.transformer.table
        assert t is not None
        assert table is not None
        level = self.level(level_features(t))
        logits = self.transformer(F.embedding(tokens, table) + level[:, None])
        replaced = (1 - LEAST) * t.clamp(min=1e-9)
        evidence = torch.log1p(self.vocabulary * (1 - replaced) / replaced)
        return logits + evidence[:, None, None] * _one_hot(tokens, self.vocabulary)

    def forward(self, tokens: Tokens) -> Float[Tensor, "b v"]:
        """Logits of the token after `tokens`.

        Uniform diffusion has no mask: its unknown positions are filled with fixed random tokens,
        so its prediction is approximate.
        """
        tokens = tokens[:, -self.context :]
        known, missing = tokens.shape[1], self.window - tokens.shape[1]
        if self.level is None:
            rest = tokens.new_full((len(tokens), missing), self.mask)
            return self.logits(torch.cat([tokens, rest], 1))[:, known]
        rng = torch.Generator().manual_seed(0)
        rest = torch.randint(self.vocabulary, (len(tokens), missing), generator=rng)
        t = torch.full((len(tokens),), missing / self.window, device=tokens.device)
        return self.logits(torch.cat([tokens, rest.to(tokens.device)], 1), t)[:, known]

    def bound(
        self, tokens: Tokens, u: Float[Tensor, " b"], draws: Float[Tensor, "b n 2"]
    ) -> Float[Tensor, " b"]:
        """One draw of an upper bound on the negative log-likelihood of each row, in nats.

        Args:
            tokens: Clean tokens.
            u: Uniform numbers in (0, 1): the noise level of each row.
            draws: Uniform numbers in (0, 1): the corruption of each position.
        """
        return (self._masked if self.level is None else self._uniform)(tokens, u, draws)

    def _masked(self, tokens: Tokens, u: Tensor, draws: Tensor) -> Tensor:
        n = tokens.shape[1]
        k = (u * n).floor().clamp(max=n - 1) + 1
        # The k positions with the smallest numbers.
        hidden = draws[..., 0].argsort(1).argsort(1) < k[:, None]
        logits = self.logits(torch.where(hidden, self.mask, tokens))
        losses = F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")
        return (losses * hidden).sum(1) * n / k

    def _uniform(self, tokens: Tokens, u: Tensor, draws: Tensor) -> Tensor:
        v = self.vocabulary
        # A token changed at time t contributes about 1 / t, with probability t. With uniform
        # times the variance would be infinite.
        u = u.clamp(min=1e-3)
        t, weight = u**3, 3 * u**2
        replaced = (1 - LEAST) * t  # 1 - alpha, without cancellation
        alpha = 1 - replaced
        fresh = (draws[..., 1] * v).long().clamp(max=v - 1)
        seen = torch.where(draws[..., 0] < alpha[:, None], tokens, fresh)
        same, other = (alpha + replaced / v)[:, None, None], (replaced / v)[:, None, None]
        q = self.logits(seen, t).softmax(-1)
        at_seen = q.gather(2, seen[..., None])
        s = at_seen * (other / same) + q * (same / other) + (1 - at_seen - q)
        kept = (seen == tokens)[..., None]
        truth = _one_hot(tokens, v)
        r = torch.where(kept, other / same, torch.where(truth, same / other, 1.0))
        terms = s - r * torch.log(s.clamp(min=1e-20)) + r * (torch.log(r) - 1)
        terms = terms.masked_fill(_one_hot(seen, v), 0.0).sum((1, 2))
        rate = weight * (1 - LEAST) / alpha
        return rate / v * terms + tokens.shape[1] * self._last()

    def _last(self) -> float:
        """Divergence of a token at the last time from the uniform distribution."""
        v = self.vocabulary
        same, other = LEAST + (1 - LEAST) / v, (1 - LEAST) / v
        return same * math.log(same * v) + (v - 1) * other * math.log(other * v)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        *,
        steps: int | None = None,
        order: str = "random",
        rng: torch.Generator | None = None,
    ) -> Tokens:
        """`n` windows of tokens.

        Args:
            n: Number of windows.
            steps: Evaluations of the network; default: one for each position. With fewer, several
                tokens are drawn at once, as if they were independent.
            order: Of masked diffusion: `"random"`, which has the distribution that the bound is
                about; `"left"`, left to right; `"confident"`, the likeliest position first.
            rng: Generator of the draws; default: seed 0.
        """
        require(n >= 1, "sample.n", "be at least 1", n)
        orders = ("random", "left", "confident")
        require(order in orders, "sample.order", f"be one of {', '.join(orders)}", order)
        steps = self.window if steps is None else steps
        require(steps >= 1, "sample.steps", "be at least 1", steps)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        if self.level is not None:
            return self._sample_uniform(n, steps, rng)
        tokens = torch.full((n, self.window), self.mask, device=self.device)
        left = self.window
        for step in range(steps):
            count = left - round(self.window * (1 - (step + 1) / steps))
            if count < 1:
                continue
            logits = self.logits(tokens)
            drawn = _draw(logits.softmax(-1), rng)
            if order == "random":
                score = torch.rand(tokens.shape, generator=rng).to(tokens.device)
            elif order == "left":
                places = torch.arange(self.window, device=tokens.device)
                score = -places.expand(tokens.shape).float()
            else:
                score = logits.softmax(-1).gather(2, drawn[..., None])[..., 0]
            score = score.masked_fill(tokens != self.mask, -math.inf)
            chosen = score.topk(count, 1).indices
            tokens = tokens.scatter(1, chosen, drawn.gather(1, chosen))
            left -= count
        return tokens

    def _sample_uniform(self, n: int, steps: int, rng: torch.Generator) -> Tokens:
        v = self.vocabulary
        tokens = torch.randint(v, (n, self.window), generator=rng).to(self.device)
        for step in range(steps):
            now, then = 1 - step / steps, 1 - (step + 1) / steps
            q = self.logits(tokens, torch.full((n,), now, device=tokens.device)).softmax(-1)
            clean = _draw(q, rng)
            alpha, alpha_then = 1 - (1 - LEAST) * now, 1 - (1 - LEAST) * then
            share = alpha / alpha_then
            forward = share * _one_hot(tokens, v) + (1 - share) / v
            back = alpha_then * _one_hot(clean, v) + (1 - alpha_then) / v
            tokens = _draw(forward * back, rng)
        return tokens


def _one_hot(tokens: Tokens, v: int) -> Bool[Tensor, "b n v"]:
    # torch's own reads its values, so it cannot be vectorised over models.
    return tokens[..., None] == torch.arange(v, device=tokens.device)


def _draw(weights: Float[Tensor, "b n v"], rng: torch.Generator) -> Tokens:
    """One token of each distribution, given by weights."""
    total = weights.cumsum(-1)
    u = torch.rand(weights.shape[:2], generator=rng).to(weights.device)[..., None]
    u = u * total[..., -1:]
    return (total < u).sum(-1).clamp(max=weights.shape[-1] - 1)
