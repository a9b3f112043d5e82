"""Beam search: standard, diverse, stochastic.

Shapes: b prompts, k beams, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.decode.reader import Cached, LogitsFunction, Prompt, Reader, as_prompts
from allometry.decode.strategies import checked, first_largest

WIDEST = 1 << 16
"""Largest number of hypotheses."""


@final
class Hypothesis(NamedTuple):
    """A continuation found by beam search."""

    tokens: Int[Tensor, " _"]
    """The new tokens, including the end token if there is one."""
    log_prob: float
    """Their log-probability given the prompt."""
    score: float
    """The normalised log-probability, by which hypotheses are ranked."""


@torch.no_grad()
def beam(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    *,
    n: int,
    width: int = 4,
    normalise: str = "none",
    alpha: float = 1.0,
    end: int | None = None,
    groups: int = 1,
    diversity: float = 0.0,
    context: int | None = None,
) -> "list[Hypothesis] | list[list[Hypothesis]]":
    r"""The likeliest continuations by beam search, best first; one list per prompt of a batch.

    Scores: `"none"` ranks by $\log p$, `"length"` by $\log p / \ell^\alpha$, `"gnmt"` by
    $\log p / ((5 + \ell)/6)^\alpha$, with $\ell$ the length. Several `groups` share the beams: a
    group's candidates lose `diversity` for each earlier group that chose the same token at this
    step. Reported log-probabilities and scores do not include this penalty.

    Args:
        logits_fn: See `sample`.
        prompt: Token ids: one sequence, a batch, or a list of sequences of different lengths.
        n: Largest number of new tokens.
        width: Number of beams over all groups.
        normalise: `"none"`, `"length"` or `"gnmt"`.
        alpha: Exponent of the length.
        end: End-of-sequence token.
        groups: Number of groups; must divide `width`.
        diversity: Penalty between groups.
        context: See `sample`.

    References: `wu2016` Eq. (14) for gnmt; `vijayakumar2018` for groups.
    """
    require(n >= 1, "beam.n", "be at least 1", n)
    require(1 <= width <= WIDEST, "beam.width", f"be from 1 to {WIDEST:,}", width)
    require(groups >= 1 and width % groups == 0, "beam.groups", f"divide {width}", groups)
    score = _score(normalise, alpha)
    prompts, single = as_prompts(prompt)
    search = _Search(logits_fn, prompts, width, groups, end, context, score, n)
    for _ in range(n):
        if not search.step(diversity):
            break
    hypotheses = search.finish()
    return hypotheses[0] if single else hypotheses


def _score(normalise: str, alpha: float) -> Callable[[float, int], float]:
    match normalise:
        case "none":
            return lambda log_prob, length: log_prob
        case "length":
            return lambda log_prob, length: log_prob / length**alpha
        case "gnmt":
            return lambda log_prob, length: log_prob / ((5 + length) / 6) ** alpha
        case other:
            raise InputError(f"beam.normalise must be none, length or gnmt; got {other!r}.")


@final
class _Search:
    """The beams of all prompts, extended as one batch."""

    def __init__(
        self,
        logits_fn: "LogitsFunction | Cached",
        prompts: list[Tensor],
        width: int,
        groups: int,
        end: int | None,
        context: int | None,
        score: Callable[[float, int], float],
        n: int,
    ) -> None:
        self.b, self.width, self.groups, self.end, self.n = len(prompts), width, groups, end, n
        self.score = score
        self.reader = Reader(logits_fn, prompts, context)
        self.tokens = torch.empty(self.b, width, 0, dtype=torch.int64)
        self.log_prob = torch.zeros(self.b, width)
        self.done: list[list[Hypothesis]] = [[] for _ in prompts]
        self.active = [True] * self.b
        self.last: Tensor | None = None

    def step(self, diversity: float) -> bool:
        """Extend every beam by one token; false if no better hypothesis is possible."""
        if self.last is None:
            logits = checked(self.reader.start()).log_softmax(-1)
            self.reader.select(torch.arange(self.b).repeat_interleave(self.width))
            log_p = logits[:, None].expand(-1, self.width, -1)
            # All beams of a group still equal the prompt: only the first may be extended.
            first = torch.full((self.b, self.width), -torch.inf, dtype=log_p.dtype)
            first[:, :: self.width // self.groups] = 0.0
            self.log_prob = first
        else:
            log_p = checked(self.reader.step(self.last)).log_softmax(-1)
            log_p = log_p.reshape(self.b, self.width, -1)
        total = self.log_prob[:, :, None] + log_p
        rows, tokens, self.log_prob = self._choose(total, diversity)
        self.tokens = torch.cat(
            [self.tokens.gather(1, rows[:, :, None].expand_as(self.tokens)), tokens[:, :, None]], 2
        )
        offset = self.width * torch.arange(self.b)[:, None]
        self.reader.select((rows + offset).reshape(-1))
        self.last = tokens.reshape(-1)
        return any(self.active)

    def _choose(self, total: Float[Tensor, "b k V"], diversity: float) -> tuple[Tensor, ...]:
        V, size = total.shape[-1], self.width // self.groups
        taken = torch.zeros(self.b, V, dtype=total.dtype)
        rows, tokens, scores = [], [], []
        for g in range(self.groups):
            own = total[:, g * size : (g + 1) * size]
            ranked = (own - diversity * taken[:, None]).reshape(self.b, -1)
            # Twice the size, because half of the candidates may end here.
            count = min(ranked.shape[1], 2 * size if self.end is not None else size)
            best = first_largest(ranked, count)
            row, token = best // V, best % V
            value = own.reshape(self.b, -1).gather(1, best)
            if self.end is not None:
                row, token, value = self._collect_ended(row, token, value, g * size, size)
            if row.shape[1] < size:  # fewer sequences than beams: fill up with impossible ones
                short = size - row.shape[1]
                row = torch.nn.functional.pad(row, (0, short))
                token = torch.nn.functional.pad(token, (0, short))
                value = torch.nn.functional.pad(value, (0, short), value=-torch.inf)
            taken.scatter_add_(1, token, torch.isfinite(value).to(taken.dtype))
            rows.append(row + g * size)
            tokens.append(token)
            scores.append(value)
        return torch.cat(rows, 1), torch.cat(tokens, 1), torch.cat(scores, 1)

    def _collect_ended(
        self, row: Tensor, token: Tensor, value: Tensor, offset: int, size: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Move candidates that end to the finished list; keep the best `size` of the others."""
        ends = token == self.end
        length = self.tokens.shape[2] + 1
        for i, j in ends.nonzero().tolist():
            log_prob = value[i, j].item()
            # Only the best `size` candidates are hypotheses that the beam keeps.
            if j < size and math.isfinite(log_prob) and self.active[i]:
                past = self.tokens[i, offset + int(row[i, j])]
                sequence = torch.cat([past, token[i, j][None]])
                score = self.score(log_prob, length)
                self.done[i].append(Hypothesis(sequence, log_prob, score))
        order = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :size]
        row, token, value = (x.gather(1, order) for x in (row, token, value))
        value = value.masked_fill(token == self.end, -torch.inf)
        for i in range(self.b):
            self.active[i] = self.active[i] and self._can_improve(i, value[i])
        return row, token, value

    def _can_improve(self, i: int, value: Tensor) -> bool:
        """Whether an active beam may still beat the worst hypothesis that would be returned."""
        best = sorted((h.score for h in self.done[i]), reverse=True)[: self.width]
        if len(best) < self.width:
            return True
        # log p only falls; divided by a growing length it is largest at the largest length.
        most = value.max().item()
        return max(self.score(most, self.tokens.shape[2] + 2), self.score(most, self.n)) > best[-1]

    def finish(self) -> list[list[Hypothesis]]:
        """The hypotheses of every prompt, best first."""
        out = []
        length = self.tokens.shape[2]
        for i in range(self.b):
            alive = [
                Hypothesis(tokens, value, self.score(value, length))
                for tokens, value in zip(self.tokens[i], self.log_prob[i].tolist(), strict=True)
                if math.isfinite(value) and self.active[i]
            ]
            ranked = sorted(self.done[i] + alive, key=lambda h: -h.score)
            out.append(ranked[: self.width])
        return out


@torch.no_grad()
def stochastic_beam(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    *,
    n: int,
    width: int = 4,
    rng: torch.Generator | int = 0,
    context: int | None = None,
) -> list[Hypothesis]:
    """`width` continuations of length n, sampled without replacement from the model.

    Log-probabilities are perturbed by Gumbel noise, top-down and consistently, and the beam keeps
    the largest. The first is an ordinary sample; `score` is the perturbed log-probability.

    Args:
        logits_fn: See `sample`.
        prompt: One sequence of token ids.
        n: Number of new tokens.
        width: Number of sequences.
        rng: A generator or a seed.
        context: See `sample`.

    References: `kool2019` Algorithm 1 and Appendix B.3.
    """
    require(n >= 1, "stochastic_beam.n", "be at least 1", n)
    require(1 <= width <= WIDEST, "stochastic_beam.width", f"be from 1 to {WIDEST:,}", width)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    prompts, single = as_prompts(prompt)
    require(single, "stochastic_beam.prompt", "be one sequence", f"{len(prompts)} sequences")
    reader = Reader(logits_fn, prompts, context)
    log_p = checked(reader.start()).double().log_softmax(-1)
    V = log_p.shape[-1]
    phi, G = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    tokens = torch.empty(1, 0, dtype=torch.int64)
    for step in range(n):
        if step:
            log_p = checked(reader.step(tokens[:, -1])).double().log_softmax(-1)
        child = phi[:, None] + log_p
        noisy = _conditioned_gumbels(child, G, rng).reshape(-1)
        best = first_largest(noisy[None], min(width, len(noisy)))[0]
        best = best[torch.isfinite(noisy[best])]
        rows, token = best // V, best % V
        phi, G = child.reshape(-1)[best], noisy[best]
        tokens = torch.cat([tokens[rows], token[:, None]], 1)
        reader.select(rows)
    parts = zip(tokens, phi.tolist(), G.tolist(), strict=True)
    return [Hypothesis(*part) for part in parts]


def _conditioned_gumbels(
    phi: Float[Tensor, "k V"], G: Float[Tensor, " k"], rng: torch.Generator
) -> Float[Tensor, "k V"]:
    """Gumbel variables with locations `phi` whose maximum in each row is that row's G."""
    u = torch.rand(phi.shape, generator=rng, dtype=phi.dtype).clamp(min=1e-300)
    raw = phi - (-u.log()).log()
    Z = raw.amax(-1, keepdim=True)
    # Appendix B.3: -log(e^-G - e^-Z + e^-raw) without overflow and cancellation.
    # At the maximum raw = Z, so v = -inf and the value is G itself.
    v = G[:, None] - raw + torch.log1p(-(raw - Z).exp())
    out = G[:, None] - v.clamp(min=0) - torch.log1p((-v.abs()).exp())
    return out.masked_fill(torch.isneginf(phi), -torch.inf)
