"""Gradient-based search for prompts that make a model generate a target.

A soft prompt is a sequence of vectors in place of token embeddings; a hard prompt is tokens.
Shapes: p prompt length, t target length, d width, V vocabulary, k candidates.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.decode.reader import Prompt, as_prompts


@runtime_checkable
class Embedded(Protocol):
    """A causal model that accepts embeddings or tokens: `models.Transformer`, `HuggingFace`."""

    @property
    def table(self) -> Tensor:
        """The token embeddings (V, d)."""
        ...

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (b, n, V) of ids (b, n), or of embeddings (b, n, d)."""
        ...


@final
class SoftPrompt(NamedTuple):
    """Embeddings that make a model generate a target."""

    vectors: Float[Tensor, "p d"]
    surprise: float
    """Surprisal of the target after the prompt, in nats."""
    history: tuple[float, ...]
    """The surprisal before every step, and after the last."""

    def logits(self, model: Embedded) -> Callable[[Tensor], Tensor]:
        """A function for `decode.sample`: the model with this prompt prepended to its input."""
        table = model.table.detach()

        def after(tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b _n V"]:
            first = self.vectors.expand(len(tokens), -1, -1)
            with torch.no_grad():
                logits = model(torch.cat([first, table[tokens]], 1))
            # The logits at the prompt's last vector predict the first token.
            return logits[:, len(self.vectors) - (tokens.shape[1] == 0) :]

        return after


@final
class HardPrompt(NamedTuple):
    """Tokens that make a model generate a target."""

    tokens: Int[Tensor, " p"]
    surprise: float
    """Surprisal of the target after the prompt, in nats."""
    history: tuple[float, ...]
    """The smallest surprisal so far, after every step of every restart."""


def surprise(
    model: Embedded, prompt: Prompt, target: Prompt, *, after: Prompt = ()
) -> Float[Tensor, " b"]:
    r"""$-\log p(\text{target} \mid \text{prompt}, \text{after})$ in nats, for each prompt.

    Args:
        model: A model that accepts tokens and embeddings.
        prompt: Token ids: one sequence, or a batch of equal lengths (b, p).
        target: Token ids of the target.
        after: Token ids between the prompt and the target.
    """
    prompts = torch.stack(as_prompts(prompt)[0])
    with torch.no_grad():
        return _surprisal(model, model.table[prompts], _ids(target, "target"), _between(after))


def soft_prompt(
    model: Embedded,
    target: Prompt,
    *,
    length: int,
    after: Prompt = (),
    steps: int = 200,
    lr: float = 0.05,
    rng: torch.Generator | int = 0,
) -> SoftPrompt:
    r"""Embeddings $P$ that minimise $-\log p(\text{target} \mid P, \text{after})$, by Adam.

    They are initialised with embeddings of random tokens; the model's weights are fixed.

    Args:
        model: A model that accepts tokens and embeddings.
        target: Token ids of the target.
        length: Prompt length p.
        after: Token ids between the prompt and the target.
        steps: Number of updates.
        lr: Learning rate.
        rng: A generator or a seed for the initial tokens.

    References: `lester2021`.
    """
    require(length >= 1, "soft_prompt.length", "be at least 1", length)
    require(steps >= 1, "soft_prompt.steps", "be at least 1", steps)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    ids, between = _ids(target, "target"), _between(after)
    table = model.table.detach()
    start = torch.randint(len(table), (length,), generator=rng)
    vectors = table[start].clone().requires_grad_()
    optimiser = torch.optim.Adam([vectors], lr=lr)
    best, least, history = vectors.detach().clone(), float("inf"), []
    for step in range(steps + 1):
        loss = _surprisal(model, vectors[None], ids, between).sum()
        history.append(loss.item())
        if history[-1] < least:
            best, least = vectors.detach().clone(), history[-1]
        if step < steps:
            (vectors.grad,) = torch.autograd.grad(loss, [vectors])
            optimiser.step()
    return SoftPrompt(best, least, tuple(history))


def hard_prompt(
    model: Embedded,
    target: Prompt,
    *,
    length: int,
    after: Prompt = (),
    steps: int = 50,
    restarts: int = 4,
    candidates: int = 64,
    k: int = 16,
    patience: int = 10,
    rng: torch.Generator | int = 0,
) -> HardPrompt:
    r"""Tokens that minimise $-\log p(\text{target} \mid \text{prompt}, \text{after})$.

    Greedy coordinate gradient: the gradient with respect to each position's one-hot token ranks
    the substitutions. `candidates` of the k best at random positions are evaluated, and the best
    one is used if it is an improvement. A restart ends after `patience` steps without improvement.

    Args:
        model: A model that accepts tokens and embeddings.
        target: Token ids of the target.
        length: Prompt length p.
        after: Token ids between the prompt and the target.
        steps: Largest number of steps of each restart.
        restarts: Number of random initialisations.
        candidates: Number of substitutions evaluated in a step.
        k: Number of tokens considered at each position.
        patience: Steps without improvement before the next restart.
        rng: A generator or a seed.

    References: `zou2023` Algorithm 1.
    """
    require(length >= 1, "hard_prompt.length", "be at least 1", length)
    require(min(steps, restarts, candidates, k) >= 1, "hard_prompt", "have counts of 1 or more", 0)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    ids, between = _ids(target, "target"), _between(after)
    V = len(model.table)
    best, least, history = torch.empty(0, dtype=torch.int64), float("inf"), []
    for _ in range(restarts):
        tokens = torch.randint(V, (length,), generator=rng)
        current, idle = surprise(model, tokens, ids, after=between).item(), 0
        for _ in range(steps):
            prompts = _substitutions(model, tokens, ids, between, min(k, V), candidates, rng)
            losses = surprise(model, prompts, ids, after=between)
            row = int(losses.argmin())
            better = losses[row].item() < current
            idle = 0 if better else idle + 1
            if better:
                tokens, current = prompts[row], losses[row].item()
            if current < least:
                best, least = tokens, current
            history.append(least)
            if idle >= patience:
                break
    return HardPrompt(best, least, tuple(history))


def _substitutions(
    model: Embedded,
    tokens: Int[Tensor, " p"],
    target: Tensor,
    between: Tensor,
    k: int,
    candidates: int,
    rng: torch.Generator,
) -> Int[Tensor, "k p"]:
    """Prompts that differ in one token, sampled from the k best by the gradient."""
    table = model.table.detach()
    vectors = table[tokens].clone().requires_grad_()
    loss = _surprisal(model, vectors[None], target, between).sum()
    (gradient,) = torch.autograd.grad(loss, [vectors])
    best = (-gradient @ table.T).topk(k, dim=1).indices
    prompts = tokens.repeat(candidates, 1)
    position = torch.randint(len(tokens), (candidates,), generator=rng)
    which = torch.randint(k, (candidates,), generator=rng)
    prompts[torch.arange(candidates), position] = best[position, which]
    return prompts


def _surprisal(
    model: Embedded, vectors: Float[Tensor, "b p d"], target: Tensor, between: Tensor
) -> Float[Tensor, " b"]:
    b, t = len(vectors), len(target)
    rest = model.table.detach()[torch.cat([between, target[:-1]])].expand(b, -1, -1)
    logits = model(torch.cat([vectors, rest], 1))[:, -t:]
    losses = F.cross_entropy(logits.flatten(0, 1), target.repeat(b), reduction="none")
    return losses.view(b, t).sum(1)


def _ids(given: Prompt, name: str) -> Int[Tensor, " t"]:
    rows, single = as_prompts(given)
    require(single and len(rows[0]) > 0, name, "be one sequence of at least one id", given)
    return rows[0]


def _between(after: Prompt) -> Int[Tensor, " n"]:
    return torch.as_tensor(after, dtype=torch.int64).reshape(-1)
