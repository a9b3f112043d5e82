"""Networks that run a Turing machine, with weights built from its transition table."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.construct.exact_certificate import Exactness, sizes
from allometry.construct.turing_weights import autoregressive, cellular
from allometry.models.transformer.model import Transformer
from allometry.targets.machines import Configuration, TuringMachine

Tape = str | Sequence[str] | Mapping[int, str]

MOST_WORK = 1e11
"""Largest number of compared position pairs of a run; more would take longer than minutes."""

MOST_SLOTS = 100_000
"""Largest number of positions: squares of positions must be exact in float64."""


def turing(
    machine: TuringMachine | str,
    *,
    steps: int,
    mode: str = "depth",
    cells: tuple[int, int] | None = None,
    n: int | None = None,
) -> "CellularRun | AutoregressiveRun":
    """A transformer that runs `machine` for `steps` steps on any input.

    Args:
        machine: The machine, or its text in any notation that `TuringMachine.parse` reads.
        steps: Number of steps T.
        mode: "depth": one position per cell, one block per step. "looped": the same with one block
            applied T times. "autoregressive": a decoder of three layers that writes one token per
            step, so that time costs length instead of depth.
        cells: First and last cell of the tape, for "depth" and "looped". Default: all cells that
            the head can reach. A head that leaves the range raises an error.
        n: Largest input length, for "autoregressive". Default: `steps`, at most 256.

    Example:
        >>> from allometry.construct import turing
        >>> end = turing("1RB1LB_1LA1RZ", steps=10)("")
        >>> end.halted, end.step, end.text()
        (True, 6, '1111')

    References:
        `wei2022` for the autoregressive form.
    """
    machine = TuringMachine.parse(machine) if isinstance(machine, str) else machine
    modes = ("depth", "looped", "autoregressive")
    require(mode in modes, "turing.mode", f"be one of {', '.join(modes)}", mode)
    require(steps >= 1, "turing.steps", "be at least 1", steps)
    if mode == "autoregressive":
        require(cells is None, "turing.cells", "be left out in autoregressive mode", cells)
        return AutoregressiveRun(machine, steps, min(steps, 256) if n is None else n)
    require(n is None, "turing.n", "be given only in autoregressive mode", n)
    first, last = (-steps, steps) if cells is None else cells
    require(first <= 0 <= last, "turing.cells", "be a range that includes cell 0", cells)
    return CellularRun(machine, steps, first, last, mode == "looped")


@final
class CellularRun:
    """The network with one position per cell and one block per step; call it on a tape.

    Args:
        machine: The machine.
        steps: Number of steps T.
        first: First cell of the window.
        last: Last cell of the window.
        looped: Whether one block is applied T times.

    Attributes:
        model: The transformer; it outputs the residual stream, see `turing_weights.cellular`.
    """

    def __init__(
        self, machine: TuringMachine, steps: int, first: int, last: int, looped: bool
    ) -> None:
        slots = last - first + 2
        feasible = steps * slots**2 <= MOST_WORK
        fix = "Give a narrower range of cells, or use the autoregressive mode."
        require(feasible, "turing.steps", f"be fewer for {slots:,} slots", steps, fix)
        self.machine, self.steps = machine, steps
        self.first, self.last = first, last
        self.model: Transformer = cellular(machine, steps, last - first + 1, looped=looped)

    def __call__(self, tape: Tape = "") -> Configuration:
        """The configuration after T steps, or where the machine halted before."""
        *_, end = self.trace(tape)
        return end

    @torch.no_grad()
    def trace(self, tape: Tape = "") -> Iterator[Configuration]:
        """Yield every configuration, read from the residual stream, until the machine halts.

        Raises:
            InputError: The head left the window.
        """
        tokens, outside = self._tokens(tape)
        assert self.model.table is not None
        assert self.model.position_table is not None
        x = self.model.table[tokens] + self.model.position_table[None]
        for step in range(self.steps + 1):
            now = self._read(x[0, 1:], outside, step)
            yield now
            if now.halted or step == self.steps:
                return
            x = self.model.blocks[step % len(self.model.blocks)](x)

    def slots(self, tape: Tape = "") -> tuple[Tensor, list[str]]:
        """The model's input tokens for a tape, and their symbols."""
        cells = self.machine.cells(tape)
        window = range(self.first, self.last + 1)
        return self._tokens(tape)[0], ["sink", *(cells.get(i, self.machine.blank) for i in window)]

    def _tokens(self, tape: Tape) -> tuple[Tensor, dict[int, str]]:
        """Token ids of the sink and of every cell in the window, and the cells outside it."""
        cells = self.machine.cells(tape)
        outside = {i: a for i, a in cells.items() if not self.first <= i <= self.last}
        reachable = [i for i in outside if -self.steps <= i <= self.steps]
        window = f"lie within cells {self.first} to {self.last}"
        require(not reachable, "tape", window, reachable[:3])
        symbol = {a: i for i, a in enumerate(self.machine.symbols)}
        ids = [
            symbol[cells.get(i, self.machine.blank)] + (len(symbol) if i == 0 else 0)
            for i in range(self.first, self.last + 1)
        ]
        return torch.tensor([[2 * len(symbol), *ids]]), outside

    def _read(self, x: Tensor, outside: dict[int, str], step: int) -> Configuration:
        """The configuration in the residual stream: symbols, and the state at one position."""
        A, Q = len(self.machine.symbols), len(self.machine.states)
        posts = x[:, A : A + 3 * Q].unflatten(1, (3, Q))
        found = (posts > 0.5).nonzero()
        if len(found) != 1:
            raise AssertionError(f"{len(found)} heads on the tape after step {step}")
        slot, kind, q = found[0].tolist()
        head = self.first + slot + (0, -1, 1)[kind]
        if not self.first <= head <= self.last:
            raise InputError(
                f"turing.cells must include all cells the machine visits; it left {self.first} to "
                f"{self.last} at step {step}. Give a wider range."
            )
        letters = x[:, :A].argmax(1).tolist()
        tape = dict(outside)
        for i, a in enumerate(letters):
            if self.machine.symbols[a] != self.machine.blank:
                tape[self.first + i] = self.machine.symbols[a]
        state = self.machine.states[q]
        under = tape.get(head, self.machine.blank)
        halted = (state, under) not in self.machine.rules
        return Configuration(state, head, tape, halted, step)

    @cached_property
    def certificate(self) -> Exactness:
        """Agreement with the simulator at every step on inputs to length 3 (see `verify`)."""
        return verify(self, 3)


@final
class AutoregressiveRun:
    """The decoder that writes a run token by token; call it on a tape.

    Args:
        machine: The machine.
        steps: Number of steps T.
        n: Largest input length.

    Attributes:
        model: The transformer; it outputs logits of the next token.
    """

    def __init__(self, machine: TuringMachine, steps: int, n: int) -> None:
        require(n >= 0, "turing.n", "be at least 0", n)
        slots = steps + n + 2
        need = f"need at most {MOST_SLOTS:,} slots with n"
        require(slots <= MOST_SLOTS, "turing.steps", need, slots, "Use fewer steps.")
        self.machine, self.steps, self.n = machine, steps, n
        self.model: Transformer = autoregressive(machine, slots)
        self._first_step = 2 + len(machine.symbols)

    def prompt(self, tape: Tape = "") -> list[int]:
        """The tokens of an input: "first", its symbols from cell 0 on, "go"."""
        cells = self.machine.cells(tape)
        require(
            min(cells, default=0) >= 0, "tape", "begin at cell 0 or later", min(cells, default=0)
        )
        length = max(cells, default=-1) + 1
        require(length <= self.n, "tape", f"have at most n = {self.n} cells", length)
        symbol = {a: 1 + i for i, a in enumerate(self.machine.symbols)}
        inside = [symbol[cells.get(i, self.machine.blank)] for i in range(length)]
        return [0, *inside, 1 + len(symbol)]

    def slots(self, tape: Tape = "") -> tuple[Tensor, list[str]]:
        """The tokens of the whole run, and their labels."""
        ids, inside = self.prompt(tape), self.machine.cells(tape)
        labels = ["first", *(inside.get(i, self.machine.blank) for i in range(len(ids) - 2)), "go"]
        states, symbols = self.machine.states, self.machine.symbols
        for q, a in self.tokens(tape):
            ids.append(self._first_step + states.index(q) * len(symbols) + symbols.index(a))
            labels.append(f"{q}{a}")
        # The model never reads its last output.
        return torch.tensor([ids[:-1]]), labels[:-1]

    def tokens(self, tape: Tape = "") -> Iterator[tuple[str, str]]:
        """Yield (state, symbol read) for each step, including the halting one."""
        cache = self.model.new_cache()
        new = self.prompt(tape)
        for _ in range(self.steps + 1):
            with torch.no_grad():
                logits = self.model(torch.tensor([new]), cache=cache)[0, -1]
            token = int(logits.argmax())
            q, a = divmod(token - self._first_step, len(self.machine.symbols))
            pair = self.machine.states[q], self.machine.symbols[a]
            yield pair
            if pair not in self.machine.rules:
                return
            new = [token]

    def trace(self, tape: Tape = "") -> Iterator[Configuration]:
        """Yield every configuration, computed from the tokens, until the machine halts."""
        cells, head = self.machine.cells(tape), 0
        for step, pair in enumerate(self.tokens(tape)):
            rule = self.machine.rules.get(pair)
            yield Configuration(pair[0], head, dict(cells), rule is None, step)
            if rule is None or step == self.steps:
                return
            written, move, _ = rule
            if written == self.machine.blank:
                cells.pop(head, None)
            else:
                cells[head] = written
            head += move

    def __call__(self, tape: Tape = "") -> Configuration:
        """The configuration after T steps, or where the machine halted before."""
        *_, end = self.trace(tape)
        return end

    @cached_property
    def certificate(self) -> Exactness:
        """Agreement with the simulator at every step on inputs to length 3 (see `verify`)."""
        return verify(self, 3)


def _first_difference(made: CellularRun | AutoregressiveRun, word: str) -> tuple[int, int | None]:
    """Number of compared configurations, and the step of the first wrong one or `None`."""
    configurations, count = made.trace(word), 0
    for expected in made.machine.trace(word, steps=made.steps):
        try:
            same = next(configurations, None) == expected
        except AssertionError:  # more than one head, or none
            same = False
        count += 1
        if not same:
            return count, expected.step
    return count, None


def verify(made: CellularRun | AutoregressiveRun, length: int) -> Exactness:
    """Compare every configuration with the simulator's on every input up to `length`.

    The certificate's `tried` counts configurations; its example is the first wrong input.

    Args:
        made: The construction.
        length: Largest length of an input.
    """
    tried = wrong = 0
    example: Any = None
    words = [""]
    for n in range(length + 1):
        for word in words:
            count, step = _first_difference(made, word)
            tried += count
            wrong += step is not None
            example = (word, step) if example is None and step is not None else example
        words = [w + a for w in words for a in made.machine.symbols] if n < length else []
    return Exactness(
        exhaustive=length,
        tried=tried,
        sampled=0,
        longest=length,
        wrong=wrong,
        example=example,
        margin=0.5,
        **sizes(made.model),
        seconds=0.0,
    )
