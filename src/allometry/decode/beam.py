"""Beam search: plain, diverse, stochastic.

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


@final
class Hypothesis(NamedTuple):
    """A sequence that a beam found."""

    tokens: Int[Tensor, " _"]
    """The new tokens, the end token included where there is one."""
    log_prob: float
    """Their log-probability given the prompt."""
    score: float
    """What hypotheses are ranked by: the log-probability, normalised as asked."""


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
    r"""The likeliest continuations a beam finds, best first; one list for each prompt of a batch.

    Scores: `"none"` ranks by $\log p$, `"length"` by $\log p / \ell^\alpha$, `"gnmt"` by
    $\log p / ((5 + \ell)/6)^\alpha$, with $\ell$ the length. With several `groups` the beam is
    shared out among them, and a group's candidates lose `diversity` for each earlier group that
    chose the same token at this step; reported log-probabilities and scores leave that out.

    Args:
        logits_fn: As for `sample`.
        prompt: Ids: one sequence, a batch, or a list of unequal sequences.
        n: Length at most.
        width: Beams, over all groups.
        normalise: `"none"`, `"length"` or `"gnmt"`.
        alpha: The power of the length.
        end: A token after which a sequence is complete.
        groups: How many groups; they divide `width`.
        diversity: The penalty between groups.
        context: As for `sample`.

    References: `wu2016` Eq. (14) for gnmt; `vijayakumar2018` for groups.
    """
    require(n >= 1, "beam.n", "be at least 1", n)
    require(width >= 1, "beam.width", "be at least 1", width)
    require(groups >= 1 and width % groups == 0, "beam.groups", f"divide {width}", groups)
    measure = _measure(normalise, alpha)
    prompts, bare = as_prompts(prompt)
    search = _Search(logits_fn, prompts, width, groups, end, context, measure, n)
    for _ in range(n):
        if not search.step(diversity):
            break
    found = search.finish()
    return found[0] if bare else found


def _measure(normalise: str, alpha: float) -> Callable[[float, int], float]:
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
    """The beams of all prompts, moved on together."""

    def __init__(
        self,
        logits_fn: "LogitsFunction | Cached",
        prompts: list[Tensor],
        width: int,
        groups: int,
        end: int | None,
        context: int | None,
        measure: Callable[[float, int], float],
        n: int,
    ) -> None:
        self.b, self.width, self.groups, self.end, self.n = len(prompts), width, groups, end, n
        self.measure = measure
        self.reader = Reader(logits_fn, prompts, context)
        self.tokens = torch.empty(self.b, width, 0, dtype=torch.int64)
        self.log_prob = torch.zeros(self.b, width)
        self.done: list[list[Hypothesis]] = [[] for _ in prompts]
        self.active = [True] * self.b
        self.last: Tensor | None = None

    def step(self, diversity: float) -> bool:
        """One token more in every beam; false when nothing better can come."""
        if self.last is None:
            logits = checked(self.reader.start()).log_softmax(-1)
            self.reader.select(torch.arange(self.b).repeat_interleave(self.width))
            log_p = logits[:, None].expand(-1, self.width, -1)
            # All beams of a group are the prompt still: only the first may speak.
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
            # Twice the size, for half of them may end here.
            count = min(ranked.shape[1], 2 * size if self.end is not None else size)
            best = first_largest(ranked, count)
            row, token = best // V, best % V
            value = own.reshape(self.b, -1).gather(1, best)
            if self.end is not None:
                row, token, value = self._set_aside(row, token, value, g * size, size)
            if row.shape[1] < size:  # fewer sequences than beams: the rest are impossible
                short = size - row.shape[1]
                row = torch.nn.functional.pad(row, (0, short))
                token = torch.nn.functional.pad(token, (0, short))
                value = torch.nn.functional.pad(value, (0, short), value=-torch.inf)
            taken.scatter_add_(1, token, torch.isfinite(value).to(taken.dtype))
            rows.append(row + g * size)
            tokens.append(token)
            scores.append(value)
        return torch.cat(rows, 1), torch.cat(tokens, 1), torch.cat(scores, 1)

    def _set_aside(
        self, row: Tensor, token: Tensor, value: Tensor, offset: int, size: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Move candidates that end to the finished; keep the best `size` of the others."""
        ends = token == self.end
        length = self.tokens.shape[2] + 1
        for i, j in ends.nonzero().tolist():
            log_prob = value[i, j].item()
            # Only among the best `size` is it a hypothesis the beam would have kept.
            if j < size and math.isfinite(log_prob) and self.active[i]:
                past = self.tokens[i, offset + int(row[i, j])]
                sequence = torch.cat([past, token[i, j][None]])
                score = self.measure(log_prob, length)
                self.done[i].append(Hypothesis(sequence, log_prob, score))
        order = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :size]
        row, token, value = (x.gather(1, order) for x in (row, token, value))
        value = value.masked_fill(token == self.end, -torch.inf)
        for i in range(self.b):
            self.active[i] = self.active[i] and self._hope(i, value[i])
        return row, token, value

    def _hope(self, i: int, value: Tensor) -> bool:
        """Whether a living beam may still beat the worst hypothesis that would be returned."""
        best = sorted((h.score for h in self.done[i]), reverse=True)[: self.width]
        if len(best) < self.width:
            return True
        # log p only falls; divided by a growing length it is largest at the greatest length.
        most = value.max().item()
        return (
            max(self.measure(most, self.tokens.shape[2] + 2), self.measure(most, self.n))
            > best[-1]
        )

    def finish(self) -> list[list[Hypothesis]]:
        """The hypotheses of every prompt, best first."""
        out = []
        length = self.tokens.shape[2]
        for i in range(self.b):
            alive = [
                Hypothesis(tokens, value, self.measure(value, length))
                for tokens, value in zip(self.tokens[i], self.log_prob[i].tolist(), strict=True)
                if math.isfinite(value) and self.active[i]
            ]
            found = sorted(self.done[i] + alive, key=lambda h: -h.score)
            out.append(found[: self.width])
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
    """`width` different continuations of length n, sampled without replacement from the model.

    Log-probabilities are perturbed by Gumbel noise, top-down and consistently, and the beam keeps
    the largest. The first is an ordinary sample; `score` is the perturbed log-probability.

    Args:
        logits_fn: As for `sample`.
        prompt: One sequence of ids.
        n: Length.
        width: How many sequences.
        rng: A generator, or a seed for one.
        context: As for `sample`.

    References: `kool2019` Algorithm 1 and Appendix B.3.
    """
    require(n >= 1, "stochastic_beam.n", "be at least 1", n)
    require(width >= 1, "stochastic_beam.width", "be at least 1", width)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    prompts, bare = as_prompts(prompt)
    require(bare, "stochastic_beam.prompt", "be one sequence", f"{len(prompts)} sequences")
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
    """Gumbel variables at `phi` whose maximum in each row is that row's G."""
    u = torch.rand(phi.shape, generator=rng, dtype=phi.dtype).clamp(min=1e-300)
    raw = phi - (-u.log()).log()
    Z = raw.amax(-1, keepdim=True)
    # Appendix B.3: a form of -log(e^-G - e^-Z + e^-raw) that neither overflows nor cancels.
    # At the maximum raw = Z, so v = -inf and the value is G itself.
    v = G[:, None] - raw + torch.log1p(-(raw - Z).exp())
    out = G[:, None] - v.clamp(min=0) - torch.log1p((-v.abs()).exp())
    return out.masked_fill(torch.isneginf(phi), -torch.inf)
