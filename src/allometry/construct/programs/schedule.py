"""Assign operations to layers: fewest layers, then the narrowest residual stream."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import final

from allometry.construct.named_weights import ONE
from allometry.construct.programs.lowering import HeadOperation, Lowering, TableOperation

Operation = HeadOperation | TableOperation
Cost = tuple[int, ...]

ALL = 48
"""Largest number of schedules that are all tried; beyond it one operation is moved at a time."""
MOST = 60
"""Largest number of schedules that the heuristic tries."""


@final
@dataclass(frozen=True)
class Schedule:
    """How the layers of operations were chosen.

    The number of layers is the length of the longest chain of operations: no schedule of the same
    operations has fewer.

    Attributes:
        layers: Number of blocks.
        width: Width of the residual stream.
        exact: Whether every schedule with this number of layers was tried.
        tried: Number of schedules tried.
        repeats: How often a group of layers is applied, in a loop.
    """

    layers: int
    width: int
    exact: bool
    tried: int
    repeats: int = 1

    def __str__(self) -> str:
        if self.repeats > 1:
            return (
                f"{self.layers // self.repeats} layers applied {self.repeats} times, width "
                f"{self.width}: every operation as early as possible"
            )
        how = "narrowest of all" if self.exact else "narrowest found, by moving one operation,"
        noun = "schedule" if self.tried == 1 else "schedules"
        return f"{self.layers} layers, width {self.width}: {how} {self.tried:,} {noun}"


def schedule(lowering: Lowering, cost: Callable[[], Cost]) -> Schedule:
    """Set the stage of every operation; the first number of the cost is the width.

    Args:
        lowering: The operations, each at its earliest stage. Their stages are changed.
        cost: The cost of the present stages.
    """
    graph = _Graph(lowering)
    ranges = graph.ranges()
    best = cost()
    chosen = [op.stage for op in graph.operations]
    tried, exact = 1, math.prod(map(len, ranges)) <= ALL

    def attempt(stages: list[int]) -> None:
        nonlocal best, chosen, tried
        graph.place(stages)
        tried += 1
        found = cost()
        if found < best:
            best, chosen = found, stages

    if exact:
        for stages in product(*ranges):
            if list(stages) != chosen and graph.valid(stages):
                attempt(list(stages))
    else:
        for stages in graph.moves(lambda: chosen, ranges):
            if tried >= MOST:
                break
            attempt(stages)
    graph.place(chosen)
    blocks = max([(op.stage + 1) // 2 for op in graph.operations], default=1)
    return Schedule(blocks, best[0], exact, tried)


@final
class _Graph:
    """Which operation reads what which other one writes."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.operations: list[Operation] = [*lowering.heads, *lowering.tables]
        writer = {name: i for i, op in enumerate(self.operations) for name in _writes(op)}
        self.reads = [_reads(op) for op in self.operations]
        self.inputs = [{writer[n] for n in names if n in writer} for names in self.reads]
        self.writer = writer
        self.final = {n for n, c in lowering.coordinates.items() if c.last >= 10**9}
        self.last = max([op.stage + op.stage % 2 for op in self.operations], default=0)

    def ranges(self) -> list[range]:
        """From the earliest to the latest stage of every operation."""
        late = [self.last - isinstance(op, HeadOperation) for op in self.operations]
        order = sorted(range(len(self.operations)), key=lambda i: -self.operations[i].stage)
        for i in order:
            for j in self.inputs[i]:
                latest = late[i] - 1
                parity = int(isinstance(self.operations[j], HeadOperation))
                late[j] = min(late[j], latest - (latest % 2 != parity))
        return [
            range(op.stage, max(late[i], op.stage) + 1, 2) for i, op in enumerate(self.operations)
        ]

    def valid(self, stages: tuple[int, ...] | list[int]) -> bool:
        """Whether every operation comes after those whose results it reads."""
        return all(stages[j] < stages[i] for i, inputs in enumerate(self.inputs) for j in inputs)

    def moves(self, present: Callable[[], list[int]], ranges: list[range]) -> Iterator[list[int]]:
        """Schedules that differ from the present one in one operation."""
        for i, stages in enumerate(ranges):
            for stage in reversed(stages):
                moved = list(present())
                if stage != moved[i]:
                    moved[i] = stage
                    if self.valid(moved):
                        yield moved

    def place(self, stages: list[int]) -> None:
        """Set the stages, and with them when coordinates are written and last read."""
        coordinates = self.lowering.coordinates
        last = dict.fromkeys(coordinates, 0)
        for op, stage, names in zip(self.operations, stages, self.reads, strict=True):
            op.stage = stage
            for name in _writes(op):
                coordinates[name].birth = stage
                last[name] = max(last[name], stage)
            for name in names:
                last[name] = max(last[name], stage)
        for name, coordinate in coordinates.items():
            coordinate.last = 10**9 if name in self.final else last[name]


def _writes(op: Operation) -> list[str]:
    return [c for _, c, _ in op.fetch] if isinstance(op, HeadOperation) else list(op.outputs)


def _reads(op: Operation) -> set[str]:
    if isinstance(op, TableOperation):
        forms = [op.reads]
    else:
        forms = [form for pair in op.score.pairs for form in pair]
        forms += [op.score.level, *(form for form, _, _ in op.fetch)]
    return {name for form in forms for name in form if name != ONE}
