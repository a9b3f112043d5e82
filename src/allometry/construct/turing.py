"""Networks that run a Turing machine, their weights made from its table."""

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
"""Pairs of slots compared in the longest run of a network with a slot per cell: minutes."""

MOST_SLOTS = 100_000
"""Beyond so many slots the squares of places and the order of time no longer fit in float64."""


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
        machine: The machine, or its text in any notation `TuringMachine.parse` reads.
        steps: T.
        mode: "depth": a slot per cell, a block per step; "looped": the same with one block
            applied T times; "autoregressive": a decoder of three layers that writes one token a
            step, so that time costs length and not depth.
        cells: First and last cell of the tape, for "depth" and "looped"; all that the head can
            reach unless told. A head that leaves it is an error, not a silence.
        n: Longest input, for "autoregressive"; as many cells as steps, at most 256, unless told.

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
    require(n is None, "turing.n", "be left out but in autoregressive mode", n)
    first, last = (-steps, steps) if cells is None else cells
    require(first <= 0 <= last, "turing.cells", "be a range that holds cell 0", cells)
    return CellularRun(machine, steps, first, last, mode == "looped")


@final
class CellularRun:
    """The network with a slot per cell and a block per step; call it on a tape.

    Args:
        machine: The machine.
        steps: T.
        first: First cell of the window.
        last: Last cell of it.
        looped: Whether one block is applied T times.

    Attributes:
        model: The transformer; its outputs are the stream, see `turing_weights.cellular`.
    """

    def __init__(
        self, machine: TuringMachine, steps: int, first: int, last: int, looped: bool
    ) -> None:
        slots = last - first + 2
        fine = steps * slots**2 <= MOST_WORK
        fix = "Give a narrower range of cells, or use the autoregressive mode."
        require(fine, "turing.steps", f"be fewer for {slots:,} slots", steps, fix)
        self.machine, self.steps = machine, steps
        self.first, self.last = first, last
        self.model: Transformer = cellular(machine, steps, last - first + 1, looped=looped)

    def __call__(self, tape: Tape = "") -> Configuration:
        """The configuration after T steps, or where the machine halted before."""
        *_, end = self.trace(tape)
        return end

    @torch.no_grad()
    def trace(self, tape: Tape = "") -> Iterator[Configuration]:
        """Every configuration, read off the stream after each block, until it halts.

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
            x = self.model.blocks[0 if self.model.shared else step](x)

    def slots(self, tape: Tape = "") -> tuple[Tensor, list[str]]:
        """What the model reads for a tape, and the symbols that stand there."""
        cells = self.machine.cells(tape)
        window = range(self.first, self.last + 1)
        return self._tokens(tape)[0], ["sink", *(cells.get(i, self.machine.blank) for i in window)]

    def _tokens(self, tape: Tape) -> tuple[Tensor, dict[int, str]]:
        """Ids of the sink and of every cell in the window, and the cells outside it."""
        cells = self.machine.cells(tape)
        outside = {i: a for i, a in cells.items() if not self.first <= i <= self.last}
        reach = (-self.steps, self.steps)
        seen = [i for i in outside if reach[0] <= i <= reach[1]]
        require(not seen, "tape", f"lie within cells {self.first} to {self.last}", seen[:3])
        symbol = {a: i for i, a in enumerate(self.machine.symbols)}
        ids = [
            symbol[cells.get(i, self.machine.blank)] + (len(symbol) if i == 0 else 0)
            for i in range(self.first, self.last + 1)
        ]
        return torch.tensor([[2 * len(symbol), *ids]]), outside

    def _read(self, x: Tensor, outside: dict[int, str], step: int) -> Configuration:
        """The configuration on the stream: symbols, and the one state posted somewhere."""
        A, Q = len(self.machine.symbols), len(self.machine.states)
        posts = x[:, A : A + 3 * Q].unflatten(1, (3, Q))
        found = (posts > 0.5).nonzero()
        if len(found) != 1:
            raise AssertionError(f"{len(found)} heads on the tape after step {step}")
        slot, kind, q = found[0].tolist()
        head = self.first + slot + (0, -1, 1)[kind]
        if not self.first <= head <= self.last:
            raise InputError(
                f"turing.cells must hold all cells the machine visits; it left {self.first} to "
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
        steps: T.
        n: Longest input.

    Attributes:
        model: The transformer: logits of the next token.
    """

    def __init__(self, machine: TuringMachine, steps: int, n: int) -> None:
        require(n >= 0, "turing.n", "be at least 0", n)
        slots = steps + n + 2
        fix = "Ask for fewer steps."
        fine = slots <= MOST_SLOTS
        require(fine, "turing.steps", f"need at most {MOST_SLOTS:,} slots with n", slots, fix)
        self.machine, self.steps, self.n = machine, steps, n
        self.model: Transformer = autoregressive(machine, slots)
        self._first_step = 2 + len(machine.symbols)

    def prompt(self, tape: Tape = "") -> list[int]:
        """The tokens of an input: first, its symbols from cell 0 on, go."""
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
        """The whole run as the model reads it, and what stands in each slot."""
        ids, inside = self.prompt(tape), self.machine.cells(tape)
        labels = ["first", *(inside.get(i, self.machine.blank) for i in range(len(ids) - 2)), "go"]
        states, symbols = self.machine.states, self.machine.symbols
        for q, a in self.tokens(tape):
            ids.append(self._first_step + states.index(q) * len(symbols) + symbols.index(a))
            labels.append(f"{q}{a}")
        # What was written last is never read again.
        return torch.tensor([ids[:-1]]), labels[:-1]

    def tokens(self, tape: Tape = "") -> Iterator[tuple[str, str]]:
        """The run as it is written: (state, symbol read) for each step, the halt's included."""
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
        """Every configuration, put together from the tokens, until it halts."""
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
    """Configurations compared, and the step of the first that differs from the simulator's."""
    mine, count = made.trace(word), 0
    for theirs in made.machine.trace(word, steps=made.steps):
        try:
            same = next(mine, None) == theirs
        except AssertionError:  # more than one head, or none
            same = False
        count += 1
        if not same:
            return count, theirs.step
    return count, None


def verify(made: CellularRun | AutoregressiveRun, length: int) -> Exactness:
    """Every configuration against the simulator's, on every input up to `length`.

    The certificate's `tried` counts configurations; a wrong one has its input as the example.

    Args:
        made: The construction.
        length: Of the longest inputs.
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
