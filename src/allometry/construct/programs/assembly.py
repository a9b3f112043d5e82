"""Assemble operations on named coordinates to the weights of a narrow transformer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import torch

from allometry.construct.named_weights import ONE, Head, Layer, Neuron, build
from allometry.construct.programs.expressions import tokens
from allometry.construct.programs.linear_forms import Form
from allometry.construct.programs.lowering import BEGIN, Lowering, TableOperation
from allometry.construct.programs.schedule import Schedule, schedule
from allometry.models.transformer.model import Transformer

SCALE = 128.0
"""Factor on the scores: unselected keys, half a unit below, have weight e^-64."""
ALONE = 4.0
"""Score with which the first position attends to itself only."""


@final
@dataclass(frozen=True)
class Assembled:
    """A network, how its layers were chosen, and what each head and neuron does."""

    model: Transformer
    schedule: Schedule
    listing: str


def assemble(lowering: Lowering, readout: Sequence[Form], *, scale: float = SCALE) -> Assembled:
    """The smaller of the networks with and without reuse of residual-stream slots.

    Args:
        lowering: The operations. Their stages are changed to those of the schedule.
        readout: The output forms.
        scale: Factor on the scores.
    """
    for form in readout:
        lowering.use(form, 10**9)
    made = schedule(lowering, lambda: Assembly(lowering, True).cost())
    networks = []
    for reuse in (True, False):
        assembly = Assembly(lowering, reuse)
        networks.append((assembly.network(readout, scale), assembly))
    model, assembly = min(networks, key=lambda both: sum(p.numel() for p in both[0].parameters()))
    # Without reuse there is nothing to erase: fewer neurons can outweigh a wider stream.
    made = replace(made, width=model.width, exact=made.exact and model.width == made.width)
    return Assembled(model, made, "\n".join([*assembly.legend(), *assembly.notes]))


@final
@dataclass(frozen=True)
class Repeated:
    """What makes a group of blocks a loop.

    Attributes:
        times: How often the blocks are applied.
        adds: What is added to a coordinate of a state at the end, besides what tables write.
        starts: Values of coordinates of states in the embedding, by "token" or by "index".
    """

    times: int
    adds: Mapping[str, Form]
    starts: Sequence[tuple[str, list[dict[str, float]]]]


@final
class Assembly:
    """Assigns coordinates to slots of the residual stream and operations to heads and neurons.

    Args:
        lowering: The operations.
        reuse: Whether a slot whose coordinate is no longer read is erased and reused.
        loop: How the blocks are repeated, if they are.
    """

    def __init__(self, lowering: Lowering, reuse: bool, loop: Repeated | None = None) -> None:
        self.lowering, self.loop = lowering, loop
        self.blocks = max(
            [(op.stage + 1) // 2 for op in (*lowering.heads, *lowering.tables)], default=1
        )
        self.bases: dict[str, Form] = {}
        self.tokens = self._base(lowering.by_token, "token", len(lowering.domains.alphabet))
        self.places = self._base(lowering.by_index, "index", lowering.domains.n)
        for kind, rows in loop.starts if loop is not None else ():
            for row, start in zip(self._rows(kind), rows, strict=True):
                row |= {c: x for c, x in start.items() if x}
        self.slot: dict[str, str] = {}
        self.erased: dict[int, list[Neuron]] = {}
        self.notes: list[str] = []
        self._allocate(reuse)

    def cost(self) -> tuple[int, ...]:
        """Width, then the largest number of heads and of table outputs of a layer."""
        heads = Counter(op.stage for op in self.lowering.heads)
        outputs = Counter(op.stage for op in self.lowering.tables for _ in op.outputs)
        return (
            len(self.names),
            max(heads.values(), default=0),
            max(outputs.values(), default=0),
            sum(map(len, self.erased.values())),
        )

    def legend(self) -> list[str]:
        """What the coordinates of the residual stream hold before the first layer."""
        coordinates = self.lowering.coordinates
        lines = ["residual stream"]
        for slot in self.names:
            values = [
                f"{c.meaning or name} (stages {c.birth} to {min(c.last, 2 * self.blocks)})"
                for name, c in coordinates.items()
                if self.slot.get(name) == slot
            ]
            lines.append(f"  {slot}: {'; then '.join(values)}")
        return lines

    def _base(
        self, known: dict[tuple[float, ...], str], name: str, count: int
    ) -> list[dict[str, float]]:
        """The embedding of each token (or index); one-hot if that takes fewer coordinates."""
        if len(known) <= count:
            return [{c: v[i] for v, c in known.items() if v[i]} for i in range(count)]
        coordinates = self.lowering.coordinates
        last = max(coordinates[c].last for c in known.values())
        for i in range(count):
            coordinates[f"{name} is {i}"] = type(coordinates[BEGIN])(0, last, 0.0, 1.0)
        for vector, c in known.items():
            self.bases[c] = {f"{name} is {i}": x for i, x in enumerate(vector) if x}
        return [{f"{name} is {i}": 1.0} for i in range(count)]

    def _allocate(self, reuse: bool) -> None:
        """Assign a slot to every coordinate in the order of their birth."""
        coordinates = self.lowering.coordinates
        names = [c for c in coordinates if c not in self.bases]
        used: list[tuple[str, str]] = []  # slot and its current coordinate
        for name in sorted(names, key=lambda c: coordinates[c].birth):
            birth = coordinates[name].birth
            # Attention writes to slots that the feed-forward layer before it has erased.
            by = birth - birth % 2
            free = next(
                (
                    i
                    for i, (_, old) in enumerate(used)
                    if reuse
                    and by >= 2
                    and coordinates[old].last <= by
                    and old != BEGIN
                    and coordinates[old].birth < by
                ),
                None,
            )
            if free is None:
                used.append((f"slot {len(used)}", name))
                self.slot[name] = used[-1][0]
                continue
            slot, old = used[free]
            used[free] = (slot, name)
            self.slot[name] = slot
            self.erased.setdefault(by, []).extend(
                _erase(slot, coordinates[old].low, coordinates[old].high)
            )

    @property
    def names(self) -> list[str]:
        """Names of the slots."""
        return list(dict.fromkeys(self.slot.values()))

    def placed(self, form: Form) -> Form:
        """Convert a form of coordinates to a form of slots."""
        slots: Form = {}
        for name, factor in form.items():
            for base, part in self.bases.get(name, {name: 1.0}).items():
                slot = base if base == ONE else self.slot[base]
                slots[slot] = slots.get(slot, 0.0) + factor * part
        return {name: x for name, x in slots.items() if x or name == ONE}

    def network(self, readout: Iterable[Form], scale: float) -> Transformer:
        """The transformer. The first position's stream is tracked so that it has no effect."""
        first = dict.fromkeys(self.names, 0.0)
        first[self.slot[BEGIN]] = 1.0
        layers = []
        self.notes = []
        for block in range(1, self.blocks + 1):
            self.notes.append(f"block {block - 1}")
            heads = self._heads(2 * block - 1, first)
            layer = Layer(heads, self._neurons(2 * block, first))
            written = dict(first)
            for neuron in layer.neurons:
                strength = max(0.0, _value(neuron.reads, first))
                for name, x in neuron.writes.items():
                    written[name] += strength * x
            first = written
            layers.append(layer)
        rows = [self.placed(form) for form in readout]
        return build(
            self.names,
            self._used(layers),
            tokens=[*(self.placed(t) for t in self._by_id()), {self.slot[BEGIN]: 1.0}],
            places=[{}, *(self.placed(p) for p in self.places)],
            readout=rows,
            kind="decoder" if self.lowering.domains.causal else "encoder",
            hard=False,
            scale=scale,
            even=False,
            repeat=None if self.loop is None else self.loop.times,
        )

    def _heads(self, stage: int, first: dict[str, float]) -> list[Head]:
        begin = self.slot[BEGIN]

        def set_first(form: Form, value: float) -> Form:
            return self._set_first(form, value, first)

        heads = []
        arrived: dict[str, float] = {}
        for op in self.lowering.heads:
            if op.stage != stage:
                continue
            pairs = [
                (set_first(self.placed(q), 0.0), set_first(self.placed(k), 0.0))
                for q, k in op.score.pairs
            ]
            level = self.placed(op.score.level)
            level[ONE] = level.get(ONE, 0.0) - (0.0 if op.counts else 0.5)
            pairs.append((set_first(level, ALONE), {begin: 1.0}))
            fetch = []
            for form, coordinate, default in op.fetch:
                fetch.append((set_first(self.placed(form), default), self.slot[coordinate]))
                arrived[self.slot[coordinate]] = default
            written = ", ".join(self.slot[c] for _, c, _ in op.fetch)
            what = "counts" if op.counts else "attends to"
            self.notes.append(f"  head {len(heads)}: {what} {op.name}; writes {written}")
            heads.append(Head(pairs, fetch, op.score.sight))
        for slot, default in arrived.items():
            first[slot] += default
        return heads

    def _set_first(
        self, form: Mapping[str, float], value: float, first: Mapping[str, float]
    ) -> Form:
        """The form changed to have the value `value` at the first position."""
        changed, begin = dict(form), self.slot[BEGIN]
        changed[begin] = changed.get(begin, 0.0) + value - _value(form, first)
        return {name: x for name, x in changed.items() if x}

    def _neurons(self, stage: int, first: Mapping[str, float]) -> list[Neuron]:
        neurons = list(self.erased.get(stage, []))
        if neurons:
            slots = dict.fromkeys(s for neuron in neurons for s in neuron.writes)
            self._note(0, len(neurons), f"erase {', '.join(slots)}")
        for table in self.lowering.tables:
            if table.stage == stage:
                steps = self._steps(table)
                if self.loop is not None:
                    # The first position must be the same before every repetition.
                    steps = [self._muted(neuron, first) for neuron in steps]
                slots = ", ".join(self.slot[c] for c in table.outputs)
                self._note(len(neurons), len(steps), f"table of {table.name}; writes {slots}")
                neurons += steps
        if self.loop is not None and stage == 2 * self.blocks:
            ending = self._ending(self.loop, first)
            self._note(len(neurons), len(ending), "erase, and write the next states")
            neurons += ending
        return neurons

    def _muted(self, neuron: Neuron, first: Mapping[str, float]) -> Neuron:
        return Neuron(self._set_first(neuron.reads, -1.0, first), neuron.writes)

    def _ending(self, loop: Repeated, first: Mapping[str, float]) -> list[Neuron]:
        """Neurons that erase what only one repetition needs, and complete the states."""
        coordinates = self.lowering.coordinates
        holder: dict[str, str] = {}
        for name in sorted(self.slot, key=lambda c: coordinates[c].birth):
            holder[self.slot[name]] = name
        neurons = []
        for slot, name in holder.items():
            if coordinates[name].birth > 0:
                neurons += _erase(slot, coordinates[name].low, coordinates[name].high)
        constant: dict[str, float] = {}
        for name, form in loop.adds.items():
            low = form.get(ONE, 0.0)
            for c, x in form.items():
                if c != ONE:
                    low += min(x * coordinates[c].low, x * coordinates[c].high)
            reads = self.placed(form)
            reads[ONE] = reads.get(ONE, 0.0) - low
            if set(form) != {ONE}:
                neurons.append(self._muted(Neuron(reads, {self.slot[name]: 1.0}), first))
            if low:
                constant[self.slot[name]] = low
        if constant:
            neurons.append(self._muted(Neuron({ONE: 1.0}, constant), first))
        return neurons

    def _used(self, layers: list[Layer]) -> list[Layer]:
        """The layers without those that do nothing."""
        return [y for y in layers if y.heads or y.neurons] or [Layer([], [_idle()])]

    def _by_id(self) -> list[dict[str, float]]:
        """The embeddings in the order of token ids; `tokens` has them in the order of values."""
        domains = self.lowering.domains
        place = {value: i for i, value in enumerate(domains.values(tokens))}
        return [self.tokens[place[token]] for token in domains.alphabet]

    def _rows(self, kind: str) -> list[dict[str, float]]:
        return self.tokens if kind == "token" else self.places

    def _note(self, first: int, count: int, what: str) -> None:
        self.notes.append(f"  neurons {first} to {first + count - 1}: {what}")

    def _steps(self, table: TableOperation) -> list[Neuron]:
        """Two neurons between adjacent cases that need different outputs."""
        reads = self.placed(table.reads)
        order = sorted(range(len(table.levels)), key=lambda i: table.levels[i])
        outputs = {self.slot[c]: numbers for c, numbers in table.outputs.items()}
        neurons: list[Neuron] = []
        for i, j in pairwise(order):
            change = {s: x[j] - x[i] for s, x in outputs.items() if x[j] != x[i]}
            if not change:
                continue
            low, high = table.levels[i], table.levels[j]
            # The ramp covers the middle half of the gap, so rounding errors have no effect.
            slope = 2 / (high - low)
            scaled = {name: slope * x for name, x in reads.items()}
            for half, sign in ((0.5, 1.0), (-0.5, -1.0)):
                form = dict(scaled)
                form[ONE] = form.get(ONE, 0.0) - slope * (low + high) / 2 + half
                neurons.append(Neuron(form, {s: sign * x for s, x in change.items()}))
        return neurons


def _erase(slot: str, low: float, high: float) -> list[Neuron]:
    neurons = []
    if high > 0:
        neurons.append(Neuron({slot: 1.0}, {slot: -1.0}))
    if low < 0:
        neurons.append(Neuron({slot: -1.0}, {slot: 1.0}))
    return neurons


def _idle() -> Neuron:
    return Neuron({ONE: -1.0}, {})


def _value(form: Mapping[str, float], at: Mapping[str, float]) -> float:
    return sum(x * (1.0 if name == ONE else at[name]) for name, x in form.items())


def with_scale(model: Transformer, scale: float) -> None:
    """Set the factor on all scores."""
    for block in model.blocks:
        part = getattr(block, "attention", None)
        if part is not None:
            assert not isinstance(part, torch.Tensor)
            part.scale = scale
