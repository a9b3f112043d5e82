r"""Sampling from the model's distribution given a constraint, $p(x \mid x \in L)$.

Masking forbidden tokens and sampling from the rest is biased towards sequences that are unlikely
under the model: each step is renormalised, and the removed probability is ignored.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.decode.constraints import Constrained, Constraint
from allometry.decode.reader import Cached, LogitsFunction, Prompt, Reader, as_prompts
from allometry.decode.sampling import ENDED, draw
from allometry.decode.strategies import checked


@torch.no_grad()
def posterior(
    logits_fn: "LogitsFunction | Cached",
    prompt: Prompt,
    constraint: Constraint,
    *,
    n: int,
    samples: int = 1,
    particles: int = 256,
    end: int | None = None,
    rng: torch.Generator | int = 0,
    context: int | None = None,
) -> tuple[Int[Tensor, "samples _"], Float[Tensor, ""]]:
    r"""Samples of $p(x \mid x \in L)$ and the log of $p(x \in L)$, by sequential Monte Carlo.

    Particles are extended under the mask, weighted by the allowed probability $Z_t$ of every step,
    and resampled when their effective sample size falls below a half. Exact in the limit of many
    `particles`. A sequence is complete at an `end` token, or, without one, when no token may
    follow.

    Args:
        logits_fn: See `sample`.
        prompt: One sequence of token ids.
        constraint: L.
        n: Largest number of new tokens.
        samples: Number of samples, drawn from the particles with replacement.
        particles: Number of particles.
        end: See `constrained`.
        rng: A generator or a seed.
        context: See `sample`.

    References: `lew2023`.
    """
    require(n >= 1, "posterior.n", "be at least 1", n)
    require(particles >= samples >= 1, "posterior.samples", "be 1 to particles", samples)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    rows, single = as_prompts(prompt)
    require(single, "posterior.prompt", "be one sequence", f"{len(rows)} sequences")
    strategy = Constrained(constraint, end)
    reader = Reader(logits_fn, rows * particles, context)
    state = strategy.start(rows * particles, 0)
    tokens = torch.empty(particles, 0, dtype=torch.int64)
    log_w = torch.zeros(particles, dtype=torch.float64)
    log_mass = torch.zeros((), dtype=torch.float64)
    ended = strategy.finished(state)
    for _ in range(n):
        if bool(ended.all()):
            break
        last = tokens[:, -1].clamp(min=0) if tokens.shape[1] else None
        logits = checked(reader.start() if last is None else reader.step(last)).double()
        masked = strategy.apply(logits.log_softmax(-1), state)
        log_w = log_w + masked.logsumexp(-1).masked_fill(ended, 0.0)
        # A particle without allowed tokens has weight 0; any token may be drawn for it.
        drawable = masked.masked_fill(torch.isneginf(log_w)[:, None] | ended[:, None], 0.0)
        new = draw(drawable, rng).masked_fill(ended, ENDED)
        dead = torch.isneginf(log_w)
        state = strategy.advance(state, logits, new.masked_fill(dead, ENDED))
        tokens = torch.cat([tokens, new[:, None]], 1)
        ended = ended | dead | strategy.finished(state)
        w = (log_w - log_w.logsumexp(0)).exp()
        if not bool(torch.isfinite(w).all()):
            raise InputError(
                "constraint must be possible under the model; every sample has probability 0."
            )
        if 1 / w.square().sum() < particles / 2:
            chosen = draw(log_w.expand(particles, -1), rng)
            tokens, ended = tokens[chosen], ended[chosen]
            state = [state[i] for i in chosen.tolist()]
            reader.select(chosen)
            log_mass = log_mass + log_w.logsumexp(0) - torch.tensor(float(particles)).log()
            log_w = torch.zeros_like(log_w)
    log_w = log_w.masked_fill(~strategy.complete(state), -torch.inf)
    log_mass = log_mass + log_w.logsumexp(0) - torch.tensor(float(particles)).log()
    if bool(torch.isneginf(log_mass)):
        raise InputError(f"n must be enough to complete a sequence; got {n}. Raise n.")
    return tokens[draw(log_w.expand(samples, -1), rng)], log_mass


@torch.no_grad()
def exact_posterior(
    logits_fn: LogitsFunction,
    prompt: Prompt,
    constraint: Constraint,
    *,
    n: int,
    memory: int,
    samples: int = 1,
    rng: torch.Generator | int = 0,
) -> tuple[Int[Tensor, "samples n"], Float[Tensor, ""]]:
    r"""Exact samples of $p(x_1..x_n \mid x \in L)$ of a model of finite memory, and log $p(L_n)$.

    A model that depends on `memory` tokens only, such as an n-gram model of order `memory + 1`,
    and a constraint with comparable states form a Markov chain. A backward pass computes the
    probability of completing the sequence from each state; a forward pass samples.

    Args:
        logits_fn: Logits (b, V) of the next token given the last `memory` tokens (b, memory), or
            fewer at the start.
        prompt: One sequence of token ids.
        constraint: L; its states must be hashable, as those of an `Automaton`.
        n: Number of new tokens.
        memory: Number of tokens that the model depends on.
        samples: Number of samples.
        rng: A generator or a seed.
    """
    require(n >= 1, "exact_posterior.n", "be at least 1", n)
    require(memory >= 0, "exact_posterior.memory", "be at least 0", memory)
    rng = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    rows, single = as_prompts(prompt)
    require(single, "exact_posterior.prompt", "be one sequence", f"{len(rows)} sequences")
    window = tuple(rows[0].tolist()[max(0, len(rows[0]) - memory) :]) if memory else ()
    layers, moves = [[(window, constraint.start())]], []
    for _ in range(n):
        moved, following = _expand(logits_fn, layers[-1], constraint, memory)
        moves.append(moved)
        layers.append(following)
    log_beta = torch.tensor([0.0 if constraint.complete(s) else -torch.inf for _, s in layers[-1]])
    log_beta, steps = log_beta.double(), []
    for log_p, to in reversed(moves):
        joint = log_p + torch.where(to < 0, -torch.inf, log_beta[to.clamp(min=0)])
        steps.append(joint)
        log_beta = joint.logsumexp(-1)
    if bool(torch.isneginf(log_beta[0])):
        raise InputError(f"constraint must allow a sequence of length n; got none for {n}.")
    states = torch.zeros(samples, dtype=torch.int64)
    out = []
    for joint, (_, to) in zip(reversed(steps), moves, strict=True):
        token = draw(joint[states], rng)
        out.append(token)
        states = to[states, token]
    return torch.stack(out, 1), log_beta[0]


def _expand(
    logits_fn: LogitsFunction, layer: list[Any], constraint: Constraint, memory: int
) -> tuple[tuple[Tensor, Tensor], list[Any]]:
    """Log-probabilities and next states (-1: not allowed) of every token from every state."""
    windows = torch.tensor([w for w, _ in layer], dtype=torch.int64).reshape(len(layer), -1)
    logits = checked(logits_fn(windows))
    log_p = (logits[:, -1] if logits.ndim == 3 else logits).double().log_softmax(-1)
    to = torch.full(log_p.shape, -1, dtype=torch.int64)
    numbers: dict[Any, int] = {}
    for i, (window, state) in enumerate(layer):
        for token in constraint.allowed(state).nonzero()[:, 0].tolist():
            longer = (*window, token)
            kept = longer[len(longer) - memory :] if len(longer) > memory else longer
            key = (kept, constraint.advance(state, token))
            to[i, token] = numbers.setdefault(key, len(numbers))
    return (log_p, to), list(numbers)
