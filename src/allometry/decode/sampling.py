"""Drawing tokens one after another."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require
from allometry.decode.reading import Cached, LogitsFunction, Prompt, Reader, as_prompts
from allometry.decode.strategies import Strategy, chain, checked, plain


def draw(logits: Float[Tensor, "b V"], rng: torch.Generator) -> Int[Tensor, " b"]:
    """One token of each row, with the probabilities of its softmax."""
    cdf = checked(logits).double().softmax(-1).cumsum(-1)
    total = cdf[:, -1:]
    u = torch.rand(len(logits), 1, generator=rng, dtype=torch.float64) * total
    # The product may round up to the total; the last token that can be drawn then is.
    reachable = (cdf < total).sum(-1, keepdim=True)
    return torch.searchsorted(cdf, u, right=True).minimum(reachable)[:, 0]


@torch.no_grad()
def stream(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    strategy: "Strategy | Sequence[Strategy]" = plain,
    *,
    n: int,
    rng: torch.Generator | int = 0,
    context: int | None = None,
) -> Iterator[Int[Tensor, " b"]]:
    """The new tokens of every sequence, step by step; see `sample`."""
    require(n >= 0, "n", "be at least 0", n)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    apply = chain(strategy)
    reader = Reader(logits_fn, as_prompts(prompt)[0], context)
    tokens: Tensor | None = None
    for _ in range(n):
        logits = reader.start() if tokens is None else reader.step(tokens)
        tokens = draw(apply(checked(logits)), rng)
        yield tokens


def sample(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    strategy: "Strategy | Sequence[Strategy]" = plain,
    *,
    n: int,
    rng: torch.Generator | int = 0,
    context: int | None = None,
) -> "Int[Tensor, ' n'] | Int[Tensor, 'b n']":
    """The n tokens that follow the prompt, without the prompt.

    Args:
        logits_fn: Any function from token ids (b, t) to next-token logits (b, V) or (b, t, V); a
            model with a cache (see `Cached`) reads each token once.
        prompt: Ids: one sequence (the answer then has one axis), a batch, or a list of unequal
            sequences.
        strategy: A function of logits, or several, applied from left to right.
        n: How many tokens.
        rng: A generator, or a seed for one.
        context: The most tokens shown to the model at once, for functions that have a limit and no
            `context` attribute that tells it; the window slides.

    Example:
        >>> import torch
        >>> from allometry import decode
        >>> fair = lambda tokens: torch.zeros(len(tokens), 2)
        >>> decode.sample(fair, [0], decode.plain, n=4, rng=1).shape
        torch.Size([4])
    """
    prompts, bare = as_prompts(prompt)
    steps = list(stream(logits_fn, prompt, strategy, n=n, rng=rng, context=context))
    out = torch.stack(steps, 1) if steps else torch.empty(len(prompts), 0, dtype=torch.int64)
    return out[0] if bare else out
