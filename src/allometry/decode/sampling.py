"""Sampling of tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require
from allometry.decode.reader import Cached, LogitsFunction, Prompt, Reader, as_prompts
from allometry.decode.strategies import Strategy, checked, plain
from allometry.decode.strategy_chain import Stateful, chain

ENDED = -1
"""Fills a batch after the end of a sequence."""

Strategies = Strategy | Stateful | Sequence[Strategy | Stateful]


def draw(logits: Float[Tensor, "b V"], rng: torch.Generator) -> Int[Tensor, " b"]:
    """Sample one token from the softmax of each row."""
    return _draw(logits, rng)[0]


def _draw(logits: Tensor, rng: torch.Generator) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Tokens, the logits minus their row maxima, and the row sums of their exponentials.

    In numpy, whose calls cost a third of torch's.
    """
    x = logits.detach().double().cpu().numpy()
    top = x.max(-1, keepdims=True)
    if not np.isfinite(top).all():
        checked(logits)
    x = x - top
    cdf = np.exp(x).cumsum(-1)
    total = cdf[:, -1:]
    u = torch.rand(len(x), 1, generator=rng, dtype=torch.float64).numpy() * total
    # The product may round up to the total; then the last possible token is sampled.
    tokens = (cdf > np.minimum(u, np.nextafter(total, 0.0))).argmax(-1)
    return torch.from_numpy(tokens), x, total


@final
class Step(NamedTuple):
    """The result of one sampling step."""

    tokens: Int[Tensor, " b"]
    """The sampled tokens; `ENDED` in sequences that have ended."""
    surprise: Float[Tensor, " b"]
    """Their surprisal under the model (before strategies), in nats."""


@final
class Sampler:
    """Samples a batch of sequences step by step.

    The cache and the state of the strategies (mirostat's threshold, penalties' counts) are kept
    between calls.

    Args:
        logits_fn: See `sample`, also for the other arguments.
        prompt: Token ids.
        strategy: One or several.
        rng: A generator or a seed.
        context: Length of the sliding context window.
        stop: Sequences of ids that end a sequence (and are part of it).
    """

    def __init__(
        self,
        logits_fn: "LogitsFunction | Cached",
        prompt: Prompt,
        strategy: Strategies = plain,
        *,
        rng: torch.Generator | int = 0,
        context: int | None = None,
        stop: Sequence[Sequence[int]] = (),
    ) -> None:
        self._rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
        self._chain = chain(strategy)
        self._prompts = as_prompts(prompt)[0]
        self._reader = Reader(logits_fn, self._prompts, context)
        self._stop = [torch.tensor(list(s)) for s in stop]
        for s in self._stop:
            require(len(s) > 0, "stop", "hold sequences of at least one token", s.tolist())
        self._may_end = bool(self._stop) or self._chain.ends
        self.drawn: list[Tensor] = []
        self.ended = torch.zeros(len(self._prompts), dtype=torch.bool)
        self._length = torch.zeros(len(self._prompts), dtype=torch.int64)
        self.state: tuple[object, ...] | None = None

    @property
    def length(self) -> Int[Tensor, " b"]:
        """Length of each sequence: all tokens, or up to where it was last complete."""
        return self._length if self._may_end else torch.full_like(self._length, len(self.drawn))

    @torch.no_grad()
    def step(self) -> Step:
        """Sample one more token in every sequence that has not ended."""
        logits, last, x, total = self.advance()
        tokens = self.drawn[-1]
        if last is logits:
            log_p = x[np.arange(len(x)), tokens.clamp(min=0).numpy()] - np.log(total[:, 0])
            log_p = torch.from_numpy(log_p)
        else:  # the surprisal is under the model, not under the strategy's distribution
            log_p = checked(logits).log_softmax(-1)
            log_p = log_p.gather(-1, tokens.clamp(min=0)[:, None])[:, 0]
        if self._may_end:
            log_p = log_p.masked_fill(tokens == ENDED, 0.0)
        return Step(tokens, -log_p.to(logits.dtype))

    def advance(self) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
        """Sample as `step` does, without computing the surprisal; call it without gradients.

        Returns:
            The model's logits, the strategy's logits, and the last two results of `_draw`.
        """
        some = self._may_end and bool(self.ended.any())
        if not self.drawn:
            logits = self._reader.start()
        else:
            last = self.drawn[-1]
            logits = self._reader.step(last.clamp(min=0) if some else last)
        if self.state is None:
            self.state = self._chain.start(self._prompts, logits.shape[-1])
            if self._chain.ends:
                self.ended |= self._chain.finished(self.state, len(logits))
                some = bool(self.ended.any())
        passed = self._chain.apply(logits, self.state)
        last = passed.last.masked_fill(self.ended[:, None], 0.0) if some else passed.last
        tokens, x, total = _draw(last, self._rng)
        if some:
            tokens = tokens.masked_fill(self.ended, ENDED)
        self.state = self._chain.advance(self.state, passed, tokens)
        self.drawn.append(tokens)
        if self._may_end:
            self._record_ends(tokens)
        return logits, last, x, total

    @property
    def over(self) -> bool:
        """Whether every sequence has ended."""
        return self._may_end and bool(self.ended.all())

    def _record_ends(self, tokens: Tensor) -> None:
        active = ~self.ended
        if self._chain.ends and self.state is not None:
            b = len(tokens)
            complete = self._chain.complete(self.state, b) & active
            self._length[complete] = len(self.drawn)
            self.ended = self.ended | self._chain.finished(self.state, b)
        else:
            self._length[active] = len(self.drawn)
        for stop in self._stop:
            if len(self.drawn) >= len(stop):
                tail = torch.stack(self.drawn[-len(stop) :], 1)
                self.ended = self.ended | (tail == stop).all(1)

    def tokens(self) -> Int[Tensor, "b n"]:
        """All tokens sampled so far; `ENDED` beyond the end of a sequence."""
        if not self.drawn:
            return torch.empty(len(self._prompts), 0, dtype=torch.int64)
        out = torch.stack(self.drawn, 1)
        return out.masked_fill(torch.arange(out.shape[1]) >= self.length[:, None], ENDED)


def stream(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    strategy: Strategies = plain,
    *,
    n: int,
    rng: torch.Generator | int = 0,
    context: int | None = None,
    stop: Sequence[Sequence[int]] = (),
) -> Iterator[Step]:
    """Yield sampling steps until n tokens are sampled or all sequences ended; see `sample`."""
    require(n >= 0, "n", "be at least 0", n)
    sampler = Sampler(logits_fn, prompt, strategy, rng=rng, context=context, stop=stop)
    for _ in range(n):
        if sampler.over:
            return
        yield sampler.step()


def sample(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    strategy: Strategies = plain,
    *,
    n: int,
    rng: torch.Generator | int = 0,
    context: int | None = None,
    stop: Sequence[Sequence[int]] = (),
) -> "Int[Tensor, ' _'] | Int[Tensor, 'b _']":
    """Sample n tokens after the prompt, or fewer if a sequence ends; without the prompt.

    Args:
        logits_fn: Any function from token ids (b, t) to next-token logits (b, V) or (b, t, V); a
            model with a cache (see `Cached`) reads each token once.
        prompt: Token ids: one sequence (the result then has one axis), a batch, or a list of
            sequences of different lengths.
        strategy: A function of logits, a stateful strategy, or several, applied left to right.
        n: Largest number of tokens.
        rng: A generator or a seed.
        context: Length of the sliding context window. Default: the `context` attribute of
            `logits_fn`, if it has one.
        stop: Sequences of ids that end a sequence (and are part of it). In a batch, -1 fills up
            ended sequences.

    Example:
        >>> import torch
        >>> from allometry import decode
        >>> fair = lambda tokens: torch.zeros(len(tokens), 2)
        >>> decode.sample(fair, [0], decode.plain, n=4, rng=1).shape
        torch.Size([4])
    """
    require(n >= 0, "n", "be at least 0", n)
    sampler = Sampler(logits_fn, prompt, strategy, rng=rng, context=context, stop=stop)
    with torch.no_grad():
        for _ in range(n):
            sampler.advance()
            if sampler.over:
                break
    out = sampler.tokens()
    single = as_prompts(prompt)[1]
    return out[0][out[0] != ENDED] if single else out


def best_of(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    strategy: Strategies = plain,
    *,
    n: int,
    of: int,
    score: Callable[[Tensor], float] | None = None,
    rng: torch.Generator | int = 0,
    context: int | None = None,
    stop: Sequence[Sequence[int]] = (),
) -> tuple[Int[Tensor, " _"], float]:
    """The best of several samples from one prompt, and its score.

    Args:
        logits_fn: See `sample`.
        prompt: One sequence of token ids.
        strategy: See `sample`.
        n: Largest number of tokens.
        of: Number of samples.
        score: A function of a sample's tokens. Default: their mean log-probability under the
            model.
        rng: A generator or a seed.
        context: See `sample`.
        stop: See `sample`.
    """
    require(of >= 1, "best_of.of", "be at least 1", of)
    require(n >= 1, "best_of.n", "be at least 1", n)
    rows, single = as_prompts(prompt)
    require(single, "best_of.prompt", "be one sequence", f"{len(rows)} sequences")
    sampler = Sampler(logits_fn, [rows[0]] * of, strategy, rng=rng, context=context, stop=stop)
    steps = []
    for _ in range(n):
        steps.append(sampler.step())
        if sampler.over:
            break
    candidates = [row[row != ENDED] for row in sampler.tokens()]
    if score is None:
        surprisal = torch.stack([s.surprise for s in steps], 1)
        counted = torch.arange(len(steps)) < sampler.length[:, None]
        scores = (-(surprisal * counted).sum(1) / sampler.length.clamp(min=1)).tolist()
    else:
        scores = [float(score(c)) for c in candidates]
    best = max(range(of), key=scores.__getitem__)
    return candidates[best], scores[best]
