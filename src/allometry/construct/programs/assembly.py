"""From operations on named coordinates to the weights of a transformer, as narrow as may be."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import final

import torch

from allometry.construct.named_weights import ONE, Head, Layer, Neuron, build
from allometry.construct.programs.lowering import BEGIN, Form, Lowering, TableOperation
from allometry.models.transformer.model import Transformer

SCALE = 128.0
"""Factor on the scores: what is not selected, half a unit below, weighs e^-64."""
ALONE = 4.0
"""The score with which the first slot looks at itself alone."""


def assemble(lowering: Lowering, readout: Sequence[Form], *, scale: float = SCALE) -> Transformer:
    """The smaller of the networks with and without coordinates used again.

    Args:
        lowering: The operations.
        readout: What is read at the end.
        scale: Factor on the scores.
    """
    for form in readout:
        lowering.use(form, 10**9)
    made = [Assembly(lowering, again).network(readout, scale) for again in (True, False)]
    return min(made, key=lambda model: sum(p.numel() for p in model.parameters()))


@final
class Assembly:
    """Coordinates given slots of the stream, then operations written as heads and neurons.

    Args:
        lowering: The operations.
        again: Whether a slot whose coordinate is no longer read is erased and used again.
    """

    def __init__(self, lowering: Lowering, again: bool) -> None:
        self.lowering = lowering
        self.blocks = max(
            [(op.stage + 1) // 2 for op in (*lowering.heads, *lowering.tables)], default=1
        )
        self.bases: dict[str, Form] = {}
        self.tokens = self._base(lowering.by_token, "token", len(lowering.domains.alphabet))
        self.places = self._base(lowering.by_index, "index", lowering.domains.n)
        self.slot: dict[str, str] = {}
        self.erased: dict[int, list[Neuron]] = {}
        self._allocate(again)

    def _base(
        self, known: dict[tuple[float, ...], str], name: str, count: int
    ) -> list[dict[str, float]]:
        """What each token (or index) puts on the stream; one-hot where that takes less room."""
        if len(known) <= count:
            return [{c: v[i] for v, c in known.items() if v[i]} for i in range(count)]
        coordinates = self.lowering.coordinates
        last = max(coordinates[c].last for c in known.values())
        for i in range(count):
            coordinates[f"{name} is {i}"] = type(coordinates[BEGIN])(0, last, 0.0, 1.0)
        for vector, c in known.items():
            self.bases[c] = {f"{name} is {i}": x for i, x in enumerate(vector) if x}
        return [{f"{name} is {i}": 1.0} for i in range(count)]

    def _allocate(self, again: bool) -> None:
        """A slot for every coordinate, the earliest first; erased slots are used again."""
        coordinates = self.lowering.coordinates
        names = [c for c in coordinates if c not in self.bases]
        held: list[tuple[str, str]] = []  # slot, the coordinate in it now
        for name in sorted(names, key=lambda c: coordinates[c].birth):
            birth = coordinates[name].birth
            # What attention writes needs a slot erased by the feed-forward layer before.
            by = birth - birth % 2
            place = next(
                (
                    i
                    for i, (_, old) in enumerate(held)
                    if again
                    and by >= 2
                    and coordinates[old].last <= by
                    and old != BEGIN
                    and coordinates[old].birth < by
                ),
                None,
            )
            if place is None:
                held.append((f"slot {len(held)}", name))
                self.slot[name] = held[-1][0]
                continue
            slot, old = held[place]
            held[place] = (slot, name)
            self.slot[name] = slot
            self.erased.setdefault(by, []).extend(
                _erase(slot, coordinates[old].low, coordinates[old].high)
            )

    @property
    def names(self) -> list[str]:
        """The slots."""
        return list(dict.fromkeys(self.slot.values()))

    def placed(self, form: Form) -> Form:
        """A form of coordinates as a form of slots."""
        made: Form = {}
        for name, factor in form.items():
            for base, part in self.bases.get(name, {name: 1.0}).items():
                slot = base if base == ONE else self.slot[base]
                made[slot] = made.get(slot, 0.0) + factor * part
        return {name: x for name, x in made.items() if x or name == ONE}

    def network(self, readout: Iterable[Form], scale: float) -> Transformer:
        """The transformer, with the first slot's stream followed so that it never disturbs."""
        first = dict.fromkeys(self.names, 0.0)
        first[self.slot[BEGIN]] = 1.0
        layers = []
        for block in range(1, self.blocks + 1):
            layer = Layer(self._heads(2 * block - 1, first), self._neurons(2 * block))
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
            [layer for layer in layers if layer.heads or layer.neurons] or [Layer([], [_idle()])],
            tokens=[*(self.placed(t) for t in self.tokens), {self.slot[BEGIN]: 1.0}],
            places=[{}, *(self.placed(p) for p in self.places)],
            readout=rows,
            kind="encoder",
            hard=False,
            scale=scale,
        )

    def _heads(self, stage: int, first: dict[str, float]) -> list[Head]:
        begin = self.slot[BEGIN]

        def set_first(form: Form, wanted: float) -> Form:
            """The form with the value `wanted` at the first slot."""
            made = dict(form)
            made[begin] = made.get(begin, 0.0) + wanted - _value(form, first)
            return {name: x for name, x in made.items() if x}

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
            heads.append(Head(pairs, fetch, op.score.sight))
        for slot, default in arrived.items():
            first[slot] += default
        return heads

    def _neurons(self, stage: int) -> list[Neuron]:
        neurons = list(self.erased.get(stage, []))
        for table in self.lowering.tables:
            if table.stage == stage:
                neurons += self._steps(table)
        return neurons

    def _steps(self, table: TableOperation) -> list[Neuron]:
        """Two neurons between neighbouring cases that need different answers."""
        reads = self.placed(table.reads)
        order = sorted(range(len(table.levels)), key=lambda i: table.levels[i])
        outputs = {self.slot[c]: numbers for c, numbers in table.outputs.items()}
        neurons: list[Neuron] = []
        for i, j in pairwise(order):
            change = {s: x[j] - x[i] for s, x in outputs.items() if x[j] != x[i]}
            if not change:
                continue
            low, high = table.levels[i], table.levels[j]
            # The ramp takes the middle half of the gap: rounding on either side does no harm.
            slope = 2 / (high - low)
            scaled = {name: slope * x for name, x in reads.items()}
            for half, sign in ((0.5, 1.0), (-0.5, -1.0)):
                form = dict(scaled)
                form[ONE] = form.get(ONE, 0.0) - slope * (low + high) / 2 + half
                neurons.append(Neuron(form, {s: sign * x for s, x in change.items()}))
        return neurons


def _erase(slot: str, low: float, high: float) -> list[Neuron]:
    made = []
    if high > 0:
        made.append(Neuron({slot: 1.0}, {slot: -1.0}))
    if low < 0:
        made.append(Neuron({slot: -1.0}, {slot: 1.0}))
    return made


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
