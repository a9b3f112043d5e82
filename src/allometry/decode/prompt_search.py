"""Prompts found by search: which beginning makes a model say what is wanted?

Two ways through the same gradient. A soft prompt is any vectors in place of token embeddings; a
hard one is tokens. Shapes: p prompt length, t target length, d width, V vocabulary, k candidates.
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
    """A causal model that takes vectors as well as tokens: `models.Transformer`, `HuggingFace`."""

    @property
    def table(self) -> Tensor:
        """The vectors (V, d) of the tokens."""
        ...

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (b, n, V) of ids (b, n), or of vectors (b, n, d)."""
        ...


@final
class SoftPrompt(NamedTuple):
    """Vectors that make a model say what was wanted."""

    vectors: Float[Tensor, "p d"]
    surprise: float
    """Nats of the whole target after the prompt."""
    history: tuple[float, ...]
    """The surprise before every step, and after the last."""

    def logits(self, model: Embedded) -> Callable[[Tensor], Tensor]:
        """The model with this prompt before whatever it reads: a function for `decode.sample`."""
        table = model.table.detach()

        def after(tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b _n V"]:
            first = self.vectors.expand(len(tokens), -1, -1)
            with torch.no_grad():
                logits = model(torch.cat([first, table[tokens]], 1))
            # The last vector of the prompt already tells of the first token that follows.
            return logits[:, len(self.vectors) - (tokens.shape[1] == 0) :]

        return after


@final
class HardPrompt(NamedTuple):
    """Tokens that make a model say what was wanted."""

    tokens: Int[Tensor, " p"]
    surprise: float
    """Nats of the whole target after the prompt."""
    history: tuple[float, ...]
    """The least surprise so far, after every step of every restart."""


def surprise(
    model: Embedded, prompt: Prompt, target: Prompt, *, after: Prompt = ()
) -> Float[Tensor, " b"]:
    r"""$-\log p(\text{target} \mid \text{prompt}, \text{after})$ in nats, for each prompt.

    Args:
        model: A model that takes tokens and vectors.
        prompt: Ids: one sequence, or a batch of equal ones (b, p).
        target: What should follow, as ids.
        after: Ids that stand between the prompt and the target.
    """
    prompts = torch.stack(as_prompts(prompt)[0])
    with torch.no_grad():
        return _surprise(model, model.table[prompts], _ids(target, "target"), _between(after))


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
    r"""Vectors $P$ that minimise $-\log p(\text{target} \mid P, \text{after})$, by Adam.

    They start as the vectors of random tokens; the model's weights stay as they are.

    Args:
        model: A model that takes tokens and vectors.
        target: What it should say, as ids.
        length: p.
        after: Ids that stand between the prompt and the target.
        steps: Updates.
        lr: Learning rate.
        rng: A generator, or a seed for one, of the starting tokens.

    References: `lester2021`.
    """
    require(length >= 1, "soft_prompt.length", "be at least 1", length)
    require(steps >= 1, "soft_prompt.steps", "be at least 1", steps)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    wanted, between = _ids(target, "target"), _between(after)
    table = model.table.detach()
    start = torch.randint(len(table), (length,), generator=rng)
    vectors = table[start].clone().requires_grad_()
    optimiser = torch.optim.Adam([vectors], lr=lr)
    best, least, history = vectors.detach().clone(), float("inf"), []
    for step in range(steps + 1):
        loss = _surprise(model, vectors[None], wanted, between).sum()
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

    Greedy coordinate gradient: the gradient with respect to each place's one-hot token ranks the
    exchanges, `candidates` of the k best at random places are tried for real, and the best one is
    taken if it is an improvement. A start that has not improved for `patience` steps is given up.

    Args:
        model: A model that takes tokens and vectors.
        target: What it should say, as ids.
        length: p.
        after: Ids that stand between the prompt and the target.
        steps: Exchanges tried from each start.
        restarts: Random starts.
        candidates: Exchanges tried in a step.
        k: Tokens considered at each place.
        patience: Steps without improvement before the next start.
        rng: A generator, or a seed for one.

    References: `zou2023` Algorithm 1.
    """
    require(length >= 1, "hard_prompt.length", "be at least 1", length)
    require(min(steps, restarts, candidates, k) >= 1, "hard_prompt", "have counts of 1 or more", 0)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    wanted, between = _ids(target, "target"), _between(after)
    V = len(model.table)
    best, least, history = torch.empty(0, dtype=torch.int64), float("inf"), []
    for _ in range(restarts):
        tokens = torch.randint(V, (length,), generator=rng)
        here, idle = surprise(model, tokens, wanted, after=between).item(), 0
        for _ in range(steps):
            tried = _exchanges(model, tokens, wanted, between, min(k, V), candidates, rng)
            losses = surprise(model, tried, wanted, after=between)
            place = int(losses.argmin())
            better = losses[place].item() < here
            idle = 0 if better else idle + 1
            if better:
                tokens, here = tried[place], losses[place].item()
            if here < least:
                best, least = tokens, here
            history.append(least)
            if idle >= patience:
                break
    return HardPrompt(best, least, tuple(history))


def _exchanges(
    model: Embedded,
    tokens: Int[Tensor, " p"],
    wanted: Tensor,
    between: Tensor,
    k: int,
    candidates: int,
    rng: torch.Generator,
) -> Int[Tensor, "k p"]:
    """Prompts that differ in one token, drawn from those whose gradient promises most."""
    table = model.table.detach()
    vectors = table[tokens].clone().requires_grad_()
    loss = _surprise(model, vectors[None], wanted, between).sum()
    (slope,) = torch.autograd.grad(loss, [vectors])
    promising = (-slope @ table.T).topk(k, dim=1).indices
    tried = tokens.repeat(candidates, 1)
    place = torch.randint(len(tokens), (candidates,), generator=rng)
    which = torch.randint(k, (candidates,), generator=rng)
    tried[torch.arange(candidates), place] = promising[place, which]
    return tried


def _surprise(
    model: Embedded, vectors: Float[Tensor, "b p d"], wanted: Tensor, between: Tensor
) -> Float[Tensor, " b"]:
    b, t = len(vectors), len(wanted)
    rest = model.table.detach()[torch.cat([between, wanted[:-1]])].expand(b, -1, -1)
    logits = model(torch.cat([vectors, rest], 1))[:, -t:]
    losses = F.cross_entropy(logits.flatten(0, 1), wanted.repeat(b), reduction="none")
    return losses.view(b, t).sum(1)


def _ids(given: Prompt, name: str) -> Int[Tensor, " t"]:
    rows, bare = as_prompts(given)
    require(bare and len(rows[0]) > 0, name, "be one sequence of at least one id", given)
    return rows[0]


def _between(after: Prompt) -> Int[Tensor, " n"]:
    return torch.as_tensor(after, dtype=torch.int64).reshape(-1)
