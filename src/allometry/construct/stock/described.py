"""What an export needs to know of each construction: tokens, samples, sharpness, answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from allometry._core.errors import InputError
from allometry.construct.certificate import Construction
from allometry.construct.dyck import DyckGenerator, DyckRecogniser
from allometry.construct.programs.compiled import START, Program
from allometry.construct.programs.generation import Generator
from allometry.construct.stock.stock_checkpoint import Symbols
from allometry.construct.turing import AutoregressiveRun, CellularRun
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Block, Transformer

SHARP = 64.0
"""Nats by which softmax prefers the largest score of a hardmax: others have weight e^-64."""
SAMPLES = 24

Answer = Callable[[Tensor], Tensor]
"""From outputs to what is decided by them: these must be equal."""


@final
@dataclass(frozen=True)
class Described:
    """A construction with what its export needs.

    Attributes:
        model: The transformer.
        symbols: Its tokens.
        samples: Inputs, each a batch.
        gap: Smallest difference between the largest score of a head and the next one, for hard
            attention, by the proof.
        answer: What is decided by the outputs.
        unit: Difference of outputs that separates decisions.
    """

    model: Transformer
    symbols: Symbols
    samples: list[Tensor] = field(repr=False)
    gap: float
    answer: Answer
    unit: float = 1.0

    @property
    def scale(self) -> float:
        """Factor on the scores with which softmax replaces hardmax."""
        blocks = [b for b in self.model.blocks if isinstance(b, Block)]
        heads = [b.attention for b in blocks if isinstance(b.attention, Attention)]
        if not heads:
            return 1.0
        return heads[0].scale * (SHARP / self.gap if heads[0].hard else 1.0)


def describe(made: Any) -> Described:
    """The description of a construction."""
    rng = np.random.default_rng(0)
    match made:
        case Program():
            return _program(made, rng)
        case Generator():
            return _generator(made, rng)
        case DyckRecogniser():
            return _recogniser(made, rng)
        case DyckGenerator():
            words = [*made.language.alphabet, "<s>"]
            ids = [made.sample(rng) for _ in range(SAMPLES)]
            samples = [torch.tensor([[2 * made.k, *word]]) for word in ids]
            symbols = Symbols(words, before=[2 * made.k], ends=[2 * made.k])
            return Described(made.model, symbols, samples, 1.0, _largest)
        case AutoregressiveRun():
            return _autoregressive(made)
        case CellularRun():
            return _cellular(made, rng)
        case Construction():
            samples = [torch.from_numpy(rng.random((16, made.d, made.n)))]
            return Described(made.model, Symbols([]), samples, 1.0, lambda out: out)
    raise InputError(
        f"export.made must be a construction or a trained decoder; got {type(made).__name__}."
    )


def _program(made: Program, rng: np.random.Generator) -> Described:
    count = len(made.alphabet)
    words = [str(t).replace(" ", "_") for t in made.alphabet] + ["<s>"]
    samples = []
    for _ in range(SAMPLES):
        length = int(rng.integers(1, made.n + 1))
        draws = torch.from_numpy(rng.integers(count, size=(8, length)))
        samples.append(torch.cat([torch.full((8, 1), count), draws], 1))
    extra = made.model.readout.shape[0] - made.outputs if made.model.readout is not None else 0
    labels = []
    for part in made.readouts:
        prefix = f"{part.name}: " if len(made.readouts) > 1 else ""
        names = ["value"] if part.numeric else [str(v) for v in part.values]
        labels += [prefix + name for name in names]
    labels = [
        f"{label} ({i})" if labels.count(label) > 1 else label for i, label in enumerate(labels)
    ]
    labels += [f"check {i}" for i in range(extra)]
    symbols = Symbols(words, before=[count], labels=labels)

    return Described(made.model, symbols, samples, 1.0, made.decisions)


def _generator(made: Generator, rng: np.random.Generator) -> Described:
    count = len(made.alphabet)
    words = [*(str(t).replace(" ", "_") if len(str(t)) > 1 else str(t) for t in made.alphabet)]
    prompts = made.prompts or [
        [made.alphabet[i] for i in rng.integers(count, size=int(rng.integers(1, made.n)))]
        for _ in range(SAMPLES)
    ]
    chosen = [prompts[i] for i in rng.integers(len(prompts), size=SAMPLES).tolist()]
    lengths: dict[int, list[list[Any]]] = {}
    for prompt, new in zip(chosen, made.many(chosen, steps=made.n), strict=True):
        lengths.setdefault(len(prompt) + len(new), []).append([*prompt, *new])
    samples = [made.program.ids(words) for words in lengths.values()]
    ends = [] if made.end is None else [made.alphabet.index(made.end)]
    symbols = Symbols([*words, START], before=[count], ends=ends, silent=True)
    unit = made.program.readouts[0].unit
    return Described(made.model, symbols, samples, 1.0, _largest, unit)


def _recogniser(made: DyckRecogniser, rng: np.random.Generator) -> Described:
    layered = made.form == "layered"
    words = [*made.language.alphabet, "<s>"] + (["</s>"] if layered else [])
    start = 2 * made.k
    samples = []
    for _ in range(SAMPLES):
        length = int(rng.integers(0, made.n // 2 + 1)) * 2
        inside = rng.integers(start, size=(16, length))
        if length and length >= 2:
            inside[::2] = made.language.uniform(8, length, rng)
        frame = [torch.full((16, 1), start), torch.from_numpy(inside)]
        samples.append(torch.cat([*frame, *([frame[0] + 1] if layered else [])], 1))
    labels = ["error"] if layered else ["word", "prefix"]
    symbols = Symbols(words, before=[start], after=[start + 1] if layered else [], labels=labels)
    # Keys differ by position / (n + 2) where all else is equal.
    return Described(made.model, symbols, samples, 1 / (made.n + 2), lambda out: out > 0.5)


def _autoregressive(made: AutoregressiveRun) -> Described:
    machine = made.machine
    marks = [f"{q}:{a}" for q in machine.states for a in machine.symbols]
    words = ["<tape>", *machine.symbols, "<run>", *marks]
    first = 2 + len(machine.symbols)
    pairs = [(q, a) for q in machine.states for a in machine.symbols]
    halts = [first + i for i, pair in enumerate(pairs) if pair not in machine.rules]
    tapes = ["", *machine.symbols][: made.n + 1]
    samples = [made.slots(tape)[0] for tape in tapes if len(tape) <= made.n]
    symbols = Symbols(words, before=[0], after=[first - 1], ends=halts)
    assert made.model.context is not None
    # The latest of two writes to a cell leads by 1 / 2N; positions differ by at least 1 / N.
    return Described(made.model, symbols, samples, 1 / (2 * made.model.context), _largest)


def _cellular(made: CellularRun, rng: np.random.Generator) -> Described:
    machine = made.machine
    words = [*machine.symbols, *(f"{machine.start}:{a}" for a in machine.symbols), "<sink>"]
    tapes = [""]
    for _ in range(3):
        draws = rng.integers(len(machine.symbols), size=min(3, made.last + 1))
        tapes.append("".join(machine.symbols[i] for i in draws))
    samples = [made.slots(tape)[0] for tape in tapes]
    symbols = Symbols(words, before=[len(words) - 1], labels=list(made.model.names or ()))
    return Described(made.model, symbols, samples, 1.0, lambda out: out > 0.5)


def _largest(out: Tensor) -> Tensor:
    return out.argmax(-1)
