"""SUBLEQ, a computer with one instruction, run by generating its writes and jumps."""

from collections.abc import Mapping, Sequence

import numpy as np

from allometry._core.errors import require
from allometry.construct.programs.compiled import Program, program
from allometry.construct.programs.expressions import SequenceOperator, indices, tokens
from allometry.construct.programs.generation import Generator, generator
from allometry.construct.programs.generators import END
from allometry.construct.programs.integers import choose
from allometry.construct.programs.loops import loop
from allometry.construct.programs.operators import (
    aggregate,
    combine,
    elementwise,
    latest,
    select,
)

HALT = END


def memory_prompt(cells: Sequence[int]) -> list[str]:
    """The prompt for a memory: `address=value` for each cell, then `@0`, the first instruction."""
    return [*(f"{a}={v}" for a, v in enumerate(cells)), "@0"]


def subleq(cells: int = 16, largest: int = 16, steps: int = 12) -> Generator:
    """A SUBLEQ machine: each instruction a, b, c writes mem[b] - mem[a] to b.

    If the result is at most 0 it jumps to c, else to the next instruction. After `@p`, the
    instruction at p, comes the write `address=value`, then the next `@p`. A cell's value is the
    latest write to it. The machine halts at a jump to a negative address, at an operand or
    instruction outside the memory, and at a value beyond `largest`.

    Args:
        cells: Number of addresses.
        largest: Largest absolute value of a cell.
        steps: Instructions that fit.
    """
    require(cells >= 3, "subleq.cells", "be at least 3", cells)
    require(largest >= cells, "subleq.largest", f"be at least cells = {cells}", largest)
    span = 2 * largest + 1
    writes = [f"{a}={v}" for a in range(cells) for v in range(-largest, largest + 1)]
    jumps = [f"@{p}" for p in range(cells)]
    words = [*writes, *jumps, HALT]

    def part(place: int, otherwise: int) -> SequenceOperator:
        return elementwise(
            lambda t: int(t.split("=")[place]) if "=" in t else otherwise, tokens, numeric=True
        )

    address, value = part(0, -1), part(1, 0)

    def memory(of: SequenceOperator) -> SequenceOperator:
        return aggregate(latest(select(address, of)), value, -1)

    is_jump = elementwise(lambda t: t[0] == "@", tokens)
    counter = elementwise(lambda t: int(t[1:]) if t[0] == "@" else -1, tokens, numeric=True)
    place = aggregate(latest(select(is_jump, True)), counter, 0).named("instruction")
    a, b, c = (memory(place + k).named("abc"[k]) for k in range(3))
    difference = memory(b) - memory(a)

    def inside(x: SequenceOperator) -> SequenceOperator:
        return elementwise(lambda v: 0 <= v < cells, x)

    small = elementwise(lambda v: abs(v) <= largest, difference)
    may_write = inside(a) & inside(b) & small
    low = elementwise(lambda v: v <= 0, value)
    following = choose(numeric(low), [place + 3, c])
    # Codes of the words: writes in order of address and value, then jumps, then the halt.
    codes = [b * span + difference + largest, following + len(writes)]

    def case(jumping: bool, fine: tuple[bool, bool]) -> int:
        return (0 if fine[0] else 2) if jumping else (1 if fine[1] else 2)

    fine = combine(lambda w, j: (w, j), may_write, inside(following))
    chosen = choose(combine(case, is_jump, fine), codes, otherwise=len(words) - 1)
    text = elementwise(lambda k: words[int(k)] if 0 <= k < len(words) else HALT, chosen)
    prompts = [_program(np.random.default_rng(i), cells, largest, steps) for i in range(200)]
    n = cells + 1 + 2 * steps + 1
    return generator(text, alphabet=words, n=n, end=HALT, prompts=prompts)


def subleq_by_depth(
    cells: int = 16, largest: int = 16, steps: int = 16, n: int | None = None
) -> Program:
    """The same machine as a loop by depth: the memory is the input, and the output after `steps`.

    Six blocks run an instruction: they fetch a, b and c, then the cells a and b, and then every
    cell decides whether it is written. The blocks are applied `steps` times.

    Args:
        cells: Number of addresses.
        largest: Largest absolute value of a cell.
        steps: Instructions.
        n: Largest number of cells that are given; `cells` by default.
    """
    require(cells >= 3, "subleq_by_depth.cells", "be at least 3", cells)
    require(largest >= cells, "subleq_by_depth.largest", f"be at least cells = {cells}", largest)

    def inside(x: SequenceOperator) -> SequenceOperator:
        return elementwise(lambda v: 0 <= v < cells, x)

    def step(s: Mapping[str, SequenceOperator]) -> dict[str, SequenceOperator]:
        value, at = s["value"], s["at"]

        def memory(of: SequenceOperator) -> SequenceOperator:
            return aggregate(select(indices, of), value, -1)

        a, b, c = (memory(at + k).named("abc"[k]) for k in range(3))
        difference = memory(b) - memory(a)
        fine = combine(lambda p, i: p >= 0 and i, at, inside(a)) & inside(b)
        fine &= elementwise(lambda v: abs(v) <= largest, difference)
        kept = elementwise(lambda v: v if abs(v) <= largest else 0, difference, numeric=True)
        here = fine & (indices == b)
        low = elementwise(lambda v: v <= 0, difference)
        following = choose(numeric(low), [at + 3, c])
        next_at = elementwise(lambda p: p if 0 <= p < cells else -1, following, numeric=True)
        stopped = elementwise(lambda p: p, combine(lambda f, p: p if f else -1, fine, next_at))
        return {
            "value": choose(numeric(here), [value, kept]),
            "at": elementwise(int, stopped, numeric=True),
        }

    start = {
        "value": elementwise(int, tokens, numeric=True),
        "at": elementwise(lambda _: 0, indices, numeric=True),
    }
    alphabet = range(-largest, largest + 1)
    return program(loop(start, step, times=steps), alphabet=alphabet, n=n or cells)


def numeric(x: SequenceOperator) -> SequenceOperator:
    """A sequence of booleans as the numbers 0 and 1."""
    return elementwise(int, x, numeric=True)


def _program(rng: np.random.Generator, cells: int, largest: int, steps: int) -> list[str]:
    """A random memory whose program halts within `steps` instructions."""
    while True:
        memory = [int(v) for v in rng.integers(-2, cells, size=cells)]
        if simulate(memory, cells, largest, steps) is not None:
            return memory_prompt(memory)


def simulate(memory: Sequence[int], cells: int, largest: int, steps: int) -> list[str] | None:
    """The writes and jumps of a SUBLEQ program; `None` if it does not halt in `steps`."""
    state, at, text = list(memory), 0, []
    for _ in range(steps):
        if at + 2 >= len(state):
            a, b = (state[at + k] if at + k < len(state) else -1 for k in range(2))
        else:
            a, b = state[at], state[at + 1]
        if not (0 <= a < cells and 0 <= b < cells):
            return text
        read = [state[x] if x < len(state) else -1 for x in (a, b)]
        result = read[1] - read[0]
        if abs(result) > largest:
            return text
        state += [-1] * (b + 1 - len(state))
        state[b] = result
        text.append(f"{b}={result}")
        third = state[at + 2] if at + 2 < len(state) else -1
        at = third if result <= 0 else at + 3
        if not 0 <= at < cells:
            return text
        text.append(f"@{at}")
    return None
