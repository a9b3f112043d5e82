"""`generator` compiles a causal program whose output is the next token; `Generator` runs it."""

import math
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import torch

from allometry._core.errors import InputError, require
from allometry.construct.exact_certificate import Batch, Exactness, sizes
from allometry.construct.programs.compiled import Program, checked_alphabet
from allometry.construct.programs.expressions import SequenceOperator
from allometry.construct.programs.interpreter import interpret
from allometry.construct.programs.schedule import Schedule
from allometry.models.transformer.model import Transformer


def generator(
    expr: SequenceOperator,
    *,
    alphabet: Sequence[Any],
    n: int,
    end: Any = None,
    prompts: Iterable[Sequence[Any]] | None = None,
) -> "Generator":
    """A causal transformer that generates tokens: at each position, `expr` is the next one.

    Positions select only themselves and earlier ones. Each generated token is read by the next
    step, so a program loops by generating. The network has no depth for it: n tokens are n steps.

    Args:
        expr: The next token, made of the operators of `program`. Its values must be tokens.
        alphabet: The tokens, each once.
        n: Largest number of tokens, prompt and generated ones together.
        end: Token after which generation stops; `None`: it stops after n tokens.
        prompts: Prompts that the certificate checks. Default: strings over the alphabet.

    Raises:
        InputError: The program can't be exact, or outputs something that is no token.

    Example:
        >>> from allometry.construct import generator
        >>> from allometry.construct.programs import elementwise, tokens
        >>> following = elementwise(lambda t: "0123456789"[(int(t) + 1) % 10], tokens)
        >>> "".join(generator(following, alphabet="0123456789", n=8)("7"))
        '8901234'

    References:
        `weiss2021` for the language.
    """
    is_operator = isinstance(expr, SequenceOperator)
    require(is_operator, "generator.expr", "be a sequence operator", expr)
    letters = checked_alphabet(alphabet, n, "generator")
    fine = end is None or end in letters
    require(fine, "generator.end", f"be in the alphabet {letters}", end)
    return Generator(Program(expr, letters, n, causal=True, generates=True), end, prompts)


@final
class Generator:
    """A compiled program that generates tokens; call it on a prompt.

    Args:
        program: The compiled program; its values are tokens.
        end: Token after which generation stops, or `None`.
        prompts: Prompts for the certificate, or `None`.
    """

    def __init__(
        self, program: Program, end: Any, prompts: Iterable[Sequence[Any]] | None
    ) -> None:
        self.program, self.end = program, end
        self.prompts = None if prompts is None else list(prompts)

    @property
    def model(self) -> Transformer:
        """The transformer; its outputs are logits of the alphabet and of the start token."""
        return self.program.model

    @property
    def alphabet(self) -> tuple[Any, ...]:
        """The tokens."""
        return self.program.alphabet

    @property
    def n(self) -> int:
        """Largest number of tokens, prompt and generated ones together."""
        return self.program.n

    @property
    def schedule(self) -> Schedule:
        """How operations were assigned to layers."""
        return self.program.schedule

    @property
    def listing(self) -> str:
        """What each head and neuron does."""
        return self.program.listing

    def __call__(self, prompt: Sequence[Any], steps: int | None = None) -> list[Any]:
        """The generated tokens, without the end token.

        Args:
            prompt: At least one token.
            steps: Largest number of new tokens. Default: as many as fit.

        Raises:
            InputError: The program has an end token and does not output it within n tokens.
        """
        return self.many([prompt], steps)[0]

    def many(self, prompts: Sequence[Sequence[Any]], steps: int | None = None) -> list[list[Any]]:
        """Generated tokens for several prompts of any lengths, one batch for each length."""
        found: list[list[Any]] = [[] for _ in prompts]
        lengths = [len(p) for p in prompts]
        for length in dict.fromkeys(lengths):
            rows = [i for i, size in enumerate(lengths) if size == length]
            batch = self._generate([list(prompts[i]) for i in rows], length, steps)
            for i, new in zip(rows, batch, strict=True):
                found[i] = new
        return found

    @torch.no_grad()
    def _generate(
        self, prompts: list[list[Any]], length: int, steps: int | None
    ) -> list[list[Any]]:
        require(length >= 1, "prompt", "have at least one token", length)
        require(length < self.n, "prompt", f"be shorter than n = {self.n} tokens", length)
        most = self.n - length if steps is None else min(steps, self.n - length)
        cache = self.model.new_cache()
        logits = self.model(self.program.ids(prompts), cache=cache)
        new: list[list[int]] = [[] for _ in prompts]
        stop = None if self.end is None else self.alphabet.index(self.end)
        active = [True] * len(prompts)
        for step in range(most):
            best = logits[:, -1].argmax(-1)
            for i, token in enumerate(best.tolist()):
                active[i] = active[i] and token != stop
                if active[i]:
                    new[i].append(token)
            if not any(active) or step == most - 1:
                break
            logits = self.model(best[:, None], cache=cache)
        if self.end is not None and steps is None and any(active):
            raise InputError(
                f"the program must output {self.end!r} within n = {self.n} tokens; got none for "
                f"{prompts[active.index(True)]}. Use a larger n."
            )
        return [[self.alphabet[t] for t in row] for row in new]

    def interpret(self, prompt: Sequence[Any], steps: int | None = None) -> list[Any]:
        """The tokens that the reference interpreter generates."""
        expr = self.program.readouts[0].expr
        word, new = list(prompt), []
        while len(word) < self.n and (steps is None or len(new) < steps):
            token = interpret(expr, word, causal=True, longest=self.n)[-1]
            if token == self.end and self.end is not None:
                break
            new.append(token)
            word.append(token)
        return new

    def slots(self, prompt: Sequence[Any]) -> tuple[torch.Tensor, list[str]]:
        """The model's input tokens for a prompt, and their labels."""
        return self.program.slots(prompt)

    def attention(self, prompt: Sequence[Any]) -> list[torch.Tensor | None]:
        """Attention weights of each layer; position 0 is the start token."""
        return self.program.attention(prompt)

    @cached_property
    def certificate(self) -> Exactness:
        """Two seconds of verification against the interpreter; see `verify`."""
        return self.verify(2.0)

    def verify(self, seconds: float, rng: np.random.Generator | None = None) -> Exactness:
        """Compare generated tokens with the interpreter's.

        With `prompts`, all of them in a random order, until the time is over. Otherwise the
        next token at every position of every string over the alphabet for half the time, then of
        random strings of every length.

        Args:
            seconds: Time limit.
            rng: Generator of the order or the strings.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        if self.prompts is None:
            return self.program.verify(seconds, rng)
        start = time.monotonic()
        tried = wrong = 0
        margin, example = math.inf, None
        order = rng.permutation(len(self.prompts)).tolist()
        for first in range(0, len(order), 64):
            batch = [self.prompts[i] for i in order[first : first + 64]]
            count, errors, least, bad = self.compare(batch)
            tried, wrong, margin = tried + count, wrong + errors, min(margin, least)
            example = bad if example is None else example
            if time.monotonic() - start > seconds:
                break
        complete = tried == len(order)
        return Exactness(
            exhaustive=max(map(len, self.prompts), default=0) if complete else -1,
            tried=tried if complete else 0,
            sampled=0 if complete else tried,
            longest=self.n,
            wrong=wrong,
            example=example,
            margin=margin,
            **sizes(self.model),
            seconds=time.monotonic() - start,
        )

    def compare(self, prompts: Sequence[Sequence[Any]]) -> Batch:
        """Generate for prompts and compare each new token with the interpreter's; see `Batch`.

        One run of the interpreter on prompt and generated tokens gives what it would have
        generated at every step: outputs of a causal program depend on earlier tokens only.
        """
        expr = self.program.readouts[0].expr
        wrong, least, example = 0, math.inf, None
        for prompt, new in zip(prompts, self.many(prompts), strict=True):
            word = [*prompt, *new]
            full = word if self.end is None or len(word) >= self.n else [*word, self.end]
            truth = interpret(expr, word, causal=True)[len(prompt) - 1 :]
            right = truth[: len(full) - len(prompt)] == full[len(prompt) :]
            if right:
                least = min(least, self.program.margin(word))
            else:
                wrong += 1
                example = prompt if example is None else example
        return len(prompts), wrong, least, example
