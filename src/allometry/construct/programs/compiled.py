"""`program` compiles an expression to weights; `Program` runs and verifies them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.construct.exact_certificate import Batch, Exactness, check
from allometry.construct.head_patterns import attention_maps
from allometry.construct.programs.assembly import SCALE, Assembled, assemble, with_scale
from allometry.construct.programs.expressions import Aggregate, Loop, SequenceOperator
from allometry.construct.programs.interpreter import interpret, undefined
from allometry.construct.programs.linear_forms import Form
from allometry.construct.programs.loop_assembly import compile_loop
from allometry.construct.programs.lowering import Lowering
from allometry.construct.programs.operators import parts
from allometry.construct.programs.readouts import Readout, next_token, readout
from allometry.construct.programs.value_sets import Domains
from allometry.models.transformer.model import Transformer

START = "<s>"
"""The text of the start token."""

MOST_TOKENS = 10_000
"""Largest input length of a program in tokens: attention is quadratic in it."""


def program(
    expr: SequenceOperator | Mapping[str, SequenceOperator],
    *,
    alphabet: Sequence[Any],
    n: int,
    causal: bool = False,
) -> "Program":
    """A transformer that computes `expr` on every input of up to n tokens.

    The compiler first determines the possible values of each expression, then builds weights for
    exactly these. Attention selects, neurons tabulate. Layers, reuse of the residual stream and
    its width follow from the stages at which values are needed.

    Args:
        expr: The program, made of `tokens`, `indices`, `select`, `aggregate`, `selector_width`,
            `elementwise`, `combine` and Python's operators. Several outputs are given as a dict.
        alphabet: The tokens, each once.
        n: Largest input length in tokens.
        causal: Whether positions select only themselves and earlier ones; the network is then a
            decoder.

    Raises:
        InputError: The program can't be exact; the message has the reason and the line.

    Example:
        >>> from allometry.construct import program
        >>> from allometry.construct.programs import select, selector_width, tokens
        >>> made = program(selector_width(select(tokens, tokens)), alphabet="abc", n=8)
        >>> made("abcaba")
        [3, 2, 1, 3, 2, 3]

    References:
        `weiss2021` for the language; `lindner2023` for compiling it.
    """
    named = expr if isinstance(expr, Mapping) else {"output": expr}
    require(len(named) > 0, "program.expr", "have at least one output", expr)
    for part in named.values():
        is_operator = isinstance(part, SequenceOperator)
        require(is_operator, "program.expr", "be a sequence operator", part)
    return Program(expr, checked_alphabet(alphabet, n, "program"), n, causal=causal)


def checked_alphabet(alphabet: Sequence[Any], n: int, name: str) -> tuple[Any, ...]:
    """The alphabet as a tuple; refuses it, or the length n, if a program can't have it."""
    letters = tuple(alphabet)
    require(len(letters) > 0, f"{name}.alphabet", "have at least one token", letters)
    require(len(set(letters)) == len(letters), f"{name}.alphabet", "name each token once", letters)
    require(n >= 1, f"{name}.n", "be at least 1", n)
    require(n <= MOST_TOKENS, f"{name}.n", f"be at most {MOST_TOKENS:,}", n)
    return letters


@final
class Program:
    """A compiled program; call it on tokens for the output.

    Args:
        expr: The program, or several by name.
        alphabet: The tokens.
        n: Largest input length.
        causal: Whether the network is a decoder.
        generates: Whether the output is the next token; see `generator`.

    Attributes:
        model: The transformer. Its token ids are indices in the alphabet; the next id is the start
            token. Its outputs are logits of `values`, or the number itself for a numerical
            program, then pairs that show whether aggregates were well defined.
        readouts: The outputs.
        outputs: Number of the network's outputs before those pairs.
        schedule: How operations were assigned to layers.
        listing: What each head and neuron does, as text.
    """

    def __init__(
        self,
        expr: SequenceOperator | Mapping[str, SequenceOperator],
        alphabet: tuple[Any, ...],
        n: int,
        *,
        causal: bool = False,
        generates: bool = False,
    ) -> None:
        self.expr, self.alphabet, self.n, self.causal = expr, alphabet, n, causal
        self._checked: list[tuple[Aggregate, Form, Form]] = []
        # The smallest variance has one different value among n: (n - 1) / n^2.
        self._least = (n - 1) / n**2 / 2
        if isinstance(expr, Loop):
            words = (*alphabet, START) if generates else None
            made, assembled = compile_loop(expr, alphabet, n, causal, words)
            self.readouts: list[Readout] = [made]
            self.outputs = len(made.rows)
        else:
            assembled = self._compile(expr, generates)
        self.model: Transformer = assembled.model
        self.schedule, self.listing = assembled.schedule, assembled.listing

    def _compile(
        self, expr: SequenceOperator | Mapping[str, SequenceOperator], generates: bool
    ) -> Assembled:
        alphabet, n, causal = self.alphabet, self.n, self.causal
        lowering = Lowering(Domains(alphabet, n, causal))
        self.readouts = []
        named = expr if isinstance(expr, Mapping) else {"output": expr}
        for name, part in named.items():
            made = (
                next_token(part, (*alphabet, START), lowering)
                if generates
                else readout(name, part, lowering, sum(len(r.rows) for r in self.readouts))
            )
            self.readouts.append(made)
        for node in {id(p): p for part in named.values() for p in parts(part)}.values():
            lowering.check(node)
        self._checked = list(lowering.checked.values())
        rows = [row for made in self.readouts for row in made.rows]
        self.outputs = len(rows)
        rows += [form for _, code, square in self._checked for form in (code, square)]
        return assemble(lowering, rows)

    @property
    def values(self) -> Sequence[Any]:
        """The possible values of the (first) output."""
        return self.readouts[0].values

    @property
    def numeric(self) -> bool:
        """Whether the (first) output is a number, instead of logits of `values`."""
        return self.readouts[0].numeric

    def __call__(self, tokens: Sequence[Any]) -> Any:
        """The output, one value per position; a dict of these if there are several outputs.

        Raises:
            InputError: A token is unknown, the input is too long, or the program is undefined on
                it.
        """
        return self.many([tokens])[0]

    def many(self, inputs: Sequence[Sequence[Any]]) -> list[Any]:
        """Outputs on inputs of one length."""
        out = self._run(inputs)
        for i, (node, *_) in enumerate(self._checked):
            if bool((self._spread(out, i) > self._least).any()):
                raise undefined(node)
        return self._read(out)[0]

    def _run(self, inputs: Sequence[Sequence[Any]]) -> Tensor:
        with torch.no_grad():
            return self.model(self.ids(inputs))[:, 1:]

    def ids(self, inputs: Sequence[Sequence[Any]]) -> Tensor:
        """The token ids of inputs of one length, the start token included."""
        number = {t: i for i, t in enumerate(self.alphabet)}
        rows = []
        for tokens in inputs:
            require(len(tokens) <= self.n, "tokens", f"be at most n = {self.n} long", len(tokens))
            for place, t in enumerate(tokens):
                known = t in number
                require(known, f"tokens[{place}]", f"be in the alphabet {self.alphabet}", t)
            rows.append([len(number), *(number[t] for t in tokens)])
        return torch.tensor(rows)

    def margin(self, tokens: Sequence[Any]) -> float:
        """The smallest margin of an output from another value; 1/2 is the ideal."""
        return float(self._read(self._run([tokens]))[1].min())

    def _spread(self, out: Tensor, i: int) -> Tensor:
        """Variance of the codes that an aggregate selects: 0 if they are equal."""
        code, square = out[..., self.outputs + 2 * i], out[..., self.outputs + 2 * i + 1]
        return square - code**2

    def _read(self, out: Tensor) -> tuple[list[Any], Tensor]:
        """Output values of each input, and their smallest margins at each position."""
        columns, margins = zip(*(made.read(out) for made in self.readouts), strict=True)
        margin = torch.stack(margins).amin(0)
        if not isinstance(self.expr, Mapping):
            return columns[0], margin
        rows = [dict(zip(self.expr, row, strict=True)) for row in zip(*columns, strict=True)]
        return rows, margin

    def decisions(self, out: Tensor) -> Tensor:
        """The indices of the values that the outputs of the network stand for."""
        return torch.stack([made.decisions(out) for made in self.readouts], -1)

    def interpret(self, tokens: Sequence[Any]) -> Any:
        """The output of the reference interpreter."""
        if not isinstance(self.expr, Mapping):
            return interpret(self.expr, list(tokens), causal=self.causal, longest=self.n)
        return {
            name: interpret(part, list(tokens), causal=self.causal)
            for name, part in self.expr.items()
        }

    def slots(self, tokens: Sequence[Any]) -> tuple[Tensor, list[str]]:
        """The model's input tokens, and their labels."""
        return self.ids([tokens]), ["start", *map(str, tokens)]

    def attention(self, tokens: Sequence[Any]) -> list[Tensor | None]:
        """Attention weights of each layer; position 0 is the start token."""
        maps = attention_maps(self.model, self.slots(tokens)[0])
        return [None if m is None else m[0] for m in maps]

    @contextmanager
    def softened(self, scale: float) -> Iterator[None]:
        """Use another factor on the scores inside the block; smaller factors are softer."""
        require(scale > 0, "scale", "be above 0", scale)
        with_scale(self.model, scale)
        try:
            yield
        finally:
            with_scale(self.model, SCALE)

    @cached_property
    def certificate(self) -> Exactness:
        """Two seconds of verification against the interpreter; see `verify`."""
        return self.verify(2.0)

    def verify(self, seconds: float, rng: np.random.Generator | None = None) -> Exactness:
        """Test every input for half the time, then random inputs of every length.

        Args:
            seconds: Time limit.
            rng: Generator of the samples.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        random = self._random(rng)
        return check(self.model, self._exhaust, random, longest=self.n, seconds=seconds)

    def _exhaust(self, length: int) -> Iterator[Batch]:
        if length == 0:
            yield 1, 0, math.inf, None
            return
        batch: list[tuple[Any, ...]] = []
        for word in product(self.alphabet, repeat=length):
            batch.append(word)
            if len(batch) == 256:
                yield self.compare(batch)
                batch = []
        if batch:
            yield self.compare(batch)

    def _random(self, rng: np.random.Generator) -> Iterator[Batch]:
        while True:
            length = int(rng.integers(1, self.n + 1))
            draws = rng.integers(len(self.alphabet), size=(32, length)).tolist()
            yield self.compare([tuple(self.alphabet[i] for i in row) for row in draws])

    def compare(self, words: Sequence[Sequence[Any]]) -> Batch:
        """Compare the outputs with the interpreter's; see `Batch`.

        An input on which the program is undefined must be refused by both.
        """
        out = self._run(words)
        answers, margins = self._read(out)
        refused = torch.zeros(len(words), dtype=torch.bool)
        for i in range(len(self._checked)):
            refused |= (self._spread(out, i) > self._least).any(1)
        wrong, least, example = 0, math.inf, None
        for word, answer, margin, refuses in zip(words, answers, margins, refused, strict=True):
            try:
                right = _equal(answer, self.interpret(word)) and not refuses
            except InputError:
                right = bool(refuses)
            if not right:
                wrong += 1
                example = word if example is None else example
            elif not refuses:
                least = min(least, float(margin.min()))
        return len(words), wrong, least, example


def _equal(answer: Any, truth: Any) -> bool:
    if isinstance(truth, dict):
        return all(_equal(answer[name], truth[name]) for name in truth)
    return all(
        x == y and isinstance(x, Fraction) == isinstance(y, Fraction)
        for x, y in zip(answer, truth, strict=True)
    )
