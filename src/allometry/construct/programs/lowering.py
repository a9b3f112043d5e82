"""Lower a program to heads and tables of neurons on named coordinates of the residual stream.

Stages: 0 is the embedding, 2 l - 1 the attention of block l, 2 l its feed-forward layer. A form
is a linear combination of coordinates (and "1"). A feature of an expression is a form with a given
number for each of its values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any, final

from allometry._core.errors import InputError
from allometry.construct.named_weights import ONE
from allometry.construct.programs.attention_scores import Score, latest, score
from allometry.construct.programs.expression_names import name as name_of
from allometry.construct.programs.expression_names import selector_name
from allometry.construct.programs.expressions import (
    Aggregate,
    Indices,
    Latest,
    Linear,
    Selector,
    SequenceOperator,
    State,
    Steps,
    Tokens,
    Width,
)
from allometry.construct.programs.linear_forms import Form, affine, gap, plus
from allometry.construct.programs.selector_parts import conjuncts
from allometry.construct.programs.value_sets import LARGEST, Domains, is_atom

BEGIN = "begin"
"""The coordinate that is 1 at the start token and 0 elsewhere."""
COARSE = 16
"""Largest number of values of a second raw number in a table."""
Vectors = dict[tuple[float, ...], str]
"""Coordinates by the number that they hold for each value of an atom."""
FINEST = 2.0**-30
"""Smallest difference of numbers that must be distinguished, relative to the largest."""


@final
@dataclass
class HeadOperation:
    """A head: scores, fetched forms, and whether it counts (then the start token takes part)."""

    stage: int
    score: Score
    counts: bool
    name: str
    fetch: list[tuple[Form, str, float]] = field(default_factory=list)


@final
@dataclass
class TableOperation:
    """Neurons that map one number to others, by steps between its possible values."""

    stage: int
    reads: Form
    levels: list[float]
    name: str
    outputs: dict[str, list[float]] = field(default_factory=dict)


@final
@dataclass
class Coordinate:
    """Stages at which a coordinate is written and last read, its range and its meaning."""

    birth: int
    last: int
    low: float
    high: float
    meaning: str = ""


@final
class Lowering:
    """The operations of a program; `feature` adds a feature and all operations it needs.

    Args:
        domains: The possible values of the program's expressions.
    """

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.coordinates: dict[str, Coordinate] = {BEGIN: Coordinate(0, 10**9, 0, 1)}
        self.by_token: Vectors = {}
        self.by_index: Vectors = {}
        self.by_state: dict[int, Vectors] = {}
        self.heads: list[HeadOperation] = []
        self.tables: list[TableOperation] = []
        self.checked: dict[int, tuple[Aggregate, Form, Form]] = {}
        self._scores: dict[tuple[Any, ...], tuple[Score, int]] = {}
        self._scalars: dict[tuple[int, ...], tuple[TableOperation, list[tuple[Any, ...]]]] = {}
        self._by_steps: dict[int, tuple[TableOperation, list[int]]] = {}
        self._found: dict[int, list[Any]] = {}
        self._keep: list[Any] = []

    # --- features ---------------------------------------------------------------------------

    def feature(self, node: SequenceOperator, g: Callable[[Any], float]) -> tuple[Form, int]:
        """A form with the number g(value) at every position, and its stage."""
        atoms, f = self.domains.view(node)
        atom = atoms[0]
        sums = atom is node or any(isinstance(a, Width) for a in atoms)
        if isinstance(node, Linear) and sums and g is float:
            return self._total(node)
        if isinstance(atom, Steps) and len(atoms) == 1:
            table, cases = self._stepped(atom)
            return self._tabulated(table, [float(g(f((v,)))) for v in cases])
        if len(atoms) == 1:
            results = self._results(node, f, [(v,) for v in self.domains.listed(atom)])
            numbers = [float(g(v)) for v in results]
            if max(numbers) == min(numbers):
                return {ONE: numbers[0]}, 0
            if isinstance(atom, Tokens | Indices | State):
                return self._base(*self._embedded(atom), numbers, name_of(node)), 0
            if isinstance(atom, Aggregate) and self.domains.single(atom):
                return self._passed(atom, lambda v: float(g(f((v,)))))
            if isinstance(atom, Aggregate | Width | Linear):
                raw, levels, stage = self._raw(atom)
                line = affine(levels, numbers)
                if line is not None:
                    return plus({}, raw, line[0], line[1]), stage
        table, cases = self._scalar(atoms)
        return self._tabulated(table, [float(g(v)) for v in self._results(node, f, cases)])

    def _results(
        self, node: SequenceOperator, f: Callable[[Any], Any], cases: list[tuple[Any, ...]]
    ) -> list[Any]:
        """Values of an expression for all cases of its atoms: many features share them."""
        if id(node) not in self._found:
            self._keep.append(node)
            self._found[id(node)] = [f(case) for case in cases]
        return self._found[id(node)]

    def code(self, node: SequenceOperator) -> tuple[Form, int]:
        """The index of the value among all possible values, as a feature."""
        number = {v: i for i, v in enumerate(self.domains.values(node))}
        return self.feature(node, lambda v: number[v])

    def _embedded(self, atom: Tokens | Indices | State) -> tuple[Vectors, str]:
        match atom:
            case Tokens():
                return self.by_token, "token"
            case Indices():
                return self.by_index, "index"
        return self.by_state.setdefault(id(atom), {}), atom.name

    def _base(self, known: Vectors, kind: str, numbers: list[float], meaning: str) -> Form:
        for vector, coordinate in known.items():
            line = affine(list(vector), numbers)
            if line is not None:
                return plus({}, {coordinate: 1.0}, *line)
        low = min(numbers)
        # Shifted to a minimum of 0: one neuron can erase such a coordinate.
        vector = tuple(x - low for x in numbers)
        coordinate = f"{kind} {len(known)}"
        known[vector] = coordinate
        meaning = f"a number of {meaning}"
        self.coordinates[coordinate] = Coordinate(0, 0, 0.0, max(vector), meaning)
        return plus({}, {coordinate: 1.0}, 1.0, low)

    # --- attention --------------------------------------------------------------------------

    def scored(self, selector: Selector) -> tuple[Score, int]:
        """The scores of a selector and their stage."""
        end = selector.first if isinstance(selector, Latest) else None
        parts = conjuncts(selector.inner if isinstance(selector, Latest) else selector)
        # Selects of the same sequences by the same predicate share their scores.
        key = (end, *((id(p.keys), id(p.queries), id(p.predicate)) for p in parts))
        if key not in self._scores:
            self._keep.append(parts)
            scores, stage = score(parts, self)
            self._scores[key] = scores if end is None else latest(scores, self, end), stage
        return self._scores[key]

    def _fetch(
        self, selector: Selector, counts: bool, form: Form, stage: int, default: float, span: Any
    ) -> tuple[Form, int]:
        scores, ready = self.scored(selector)
        stage = max(stage, ready)
        stage += 1 + stage % 2
        head = next(
            (
                h
                for h in self.heads
                if h.score is scores and (h.stage, h.counts) == (stage, counts)
            ),
            None,
        )
        if head is None:
            head = HeadOperation(stage, scores, counts, selector_name(selector))
            self.heads.append(head)
            for query, key in scores.pairs:
                self.use(query, stage)
                self.use(key, stage)
            self.use(scores.level, stage)
        for known, coordinate, other in head.fetch:
            if known == form and other == default:
                return {coordinate: 1.0}, stage
        coordinate = f"fetched {len(self.coordinates)}"
        head.fetch.append((form, coordinate, default))
        self.use(form, stage)
        meaning = f"fetched from {head.name}"
        low, high = span
        self.coordinates[coordinate] = Coordinate(stage, stage, low, high, meaning)
        return {coordinate: 1.0}, stage

    def _passed(self, node: Aggregate, g: Callable[[Any], float]) -> tuple[Form, int]:
        """A feature of the selected value: the mean of equal numbers is that number."""
        self.check(node)
        return self._passed_on(node, g)

    def _passed_on(self, node: Aggregate, g: Callable[[Any], float]) -> tuple[Form, int]:
        form, stage = self.feature(node.values, g)
        default = g(node.default)
        numbers = [*map(g, self.domains.values(node.values)), default]
        return self._fetch(
            node.selector, False, form, stage, default, (min(numbers), max(numbers))
        )

    def check(self, node: SequenceOperator) -> None:
        """Fetch c and c^2 if several values may be selected, to check that they are equal."""
        if not isinstance(node, Aggregate) or node.numeric or id(node) in self.checked:
            return
        if self.domains.proven_single(node.selector):
            return
        values = self.domains.values(node)
        if len(self.domains.values(node.values)) < 2:
            return
        self._keep.append(node)
        number = {v: i for i, v in enumerate(values)}
        code, _ = self._passed_on(node, lambda v: float(number[v]))
        square, _ = self._passed_on(node, lambda v: float(number[v] ** 2))
        self.checked[id(node)] = (node, code, square)

    def _raw(self, atom: Aggregate | Width | Linear) -> tuple[Form, list[float], int]:
        """The number that the network computes for an atom, and its level for each value."""
        values = self.domains.values(atom)
        if isinstance(atom, Width):
            form, stage = self._fetch(atom.selector, True, {BEGIN: 1.0}, 0, 1.0, (0.0, 1.0))
            return form, [1 / (w + 1) for w in values], stage
        if isinstance(atom, Aggregate):
            inner, stage = self.feature(atom.values, float)
            low, high = float(values[0]), float(values[-1])
            form, stage = self._fetch(
                atom.selector, False, inner, stage, float(atom.default), (low, high)
            )
            return form, [float(v) for v in values], stage
        total, stage = self._total(atom)
        return total, [float(v) for v in self.domains.listed(atom)], stage

    def _total(self, node: Linear) -> tuple[Form, int]:
        """The form of a linear combination: it needs no neurons."""
        total: Form = {ONE: float(node.constant)}
        last = 0
        for factor, term in node.terms:
            form, stage = self.feature(term, float)
            total, last = plus(total, form, float(factor), 0.0), max(last, stage)
        return total, last

    # --- tables -----------------------------------------------------------------------------

    def _scalar(
        self, atoms: tuple[SequenceOperator, ...]
    ) -> tuple[TableOperation, list[tuple[Any, ...]]]:
        """A table whose input number is different for all cases of the atoms, and the cases."""
        key = tuple(id(a) for a in atoms)
        if key in self._scalars:
            return self._scalars[key]
        self._keep.append(atoms)
        total: Form = {}
        last, span = 0, 0.0
        levels = [0.0]
        # Raw numbers need no table of their own. The first may have any number of values.
        first = next((a for a in atoms if self._is_raw(a)), None)
        raw = [a is first or (self._is_raw(a) and self._coarse(a)) for a in atoms]
        order = sorted(range(len(atoms)), key=lambda i: (atoms[i] is first, raw[i]))
        for place in reversed(order):
            atom, unit = atoms[place], 1.0
            if raw[place]:
                form, numbers, stage = self._raw(atom)  # type: ignore[arg-type]
            else:
                form, stage = self.code(atom)
                numbers = [float(i) for i in range(len(self.domains.values(atom)))]
            if atom is not first:
                # Adjacent values of this atom are further apart than all others together.
                unit = (span + 1) / gap(numbers)
            total, last = plus(total, form, unit, 0.0), max(last, stage)
            levels = [unit * x + y for x in numbers for y in levels]
            span += unit * (max(numbers) - min(numbers))
        # `levels` and `cases` enumerate the atoms in `order`, the first one slowest.
        cases = []
        for case in product(*(self.domains.values(atoms[i]) for i in order)):
            back: list[Any] = [None] * len(atoms)
            for i, value in zip(order, case, strict=True):
                back[i] = value
            cases.append(tuple(back))
        stage = last + 2 - last % 2
        table = TableOperation(stage, total, levels, ", ".join(name_of(a) for a in atoms))
        self.tables.append(table)
        self.use(total, stage)
        self._scalars[key] = (table, cases)
        return table, cases

    def _stepped(self, atom: Steps) -> tuple[TableOperation, list[int]]:
        """A table of a step function: its cases are the numbers on both sides of each step."""
        if id(atom) not in self._by_steps:
            self._keep.append(atom)
            values = self.domains.values(atom.inner)
            if isinstance(values, range):
                low, high = values[0], values[-1]
                steps = atom.points(low, high)
                if len(steps) > LARGEST:
                    raise InputError(
                        f"{atom.name} ({atom.origin}) must have at most {LARGEST:,} steps; got "
                        f"{len(steps):,}. Divide parts of the sum, as in `digits`."
                    )
                values = sorted({low, high, *(x for k in steps for x in (k - 1, k))})
            form, last = self.feature(atom.inner, float)
            stage = last + 2 - last % 2
            table = TableOperation(stage, form, [float(v) for v in values], name_of(atom))
            self.tables.append(table)
            self.use(form, stage)
            self._by_steps[id(atom)] = table, [atom.f(int(v)) for v in values]
        return self._by_steps[id(atom)]

    def _is_raw(self, atom: SequenceOperator) -> bool:
        if isinstance(atom, Aggregate):
            return not self.domains.single(atom)
        return isinstance(atom, Width) or (
            isinstance(atom, Linear) and is_atom(self.domains.view(atom)[0], atom)
        )

    def _coarse(self, atom: SequenceOperator) -> bool:
        """Whether a raw number can share a table with another one: few and distant values."""
        if isinstance(atom, Width):
            return self.domains.n <= COARSE
        values = self.domains.values(atom)
        if isinstance(values, range) or len(values) > COARSE:
            return False
        numbers = [float(v) for v in values]
        return max(numbers) - min(numbers) <= COARSE**2 * gap(numbers)

    def _tabulated(self, table: TableOperation, numbers: list[float]) -> tuple[Form, int]:
        order = sorted(range(len(numbers)), key=lambda i: table.levels[i])
        if max(numbers) == min(numbers):
            return {ONE: numbers[0]}, 0
        for coordinate, known in table.outputs.items():
            line = affine(known, numbers)
            if line is not None:
                return plus({}, {coordinate: 1.0}, *line), table.stage
        largest = max(1.0, *(abs(x) for x in table.levels))
        for i, j in pairwise(order):
            gap = table.levels[j] - table.levels[i]
            if numbers[i] != numbers[j] and gap < FINEST * largest:
                raise InputError(
                    "the program can't be exact in float64: two cases that need different "
                    f"answers differ by {gap:.2g} in a number as large as {largest:.2g}. Use a "
                    "shorter input, or numbers with larger differences."
                )
        base = numbers[order[0]]
        coordinate = f"table {len(self.coordinates)}"
        table.outputs[coordinate] = [x - base for x in numbers]
        moved = table.outputs[coordinate]
        self.coordinates[coordinate] = Coordinate(
            table.stage, table.stage, min(moved), max(moved), f"a number of {table.name}"
        )
        return plus({}, {coordinate: 1.0}, 1.0, base), table.stage

    def use(self, form: Form, stage: int) -> None:
        """Record that a form is read at a stage."""
        for name in form:
            if name != ONE:
                known = self.coordinates[name]
                known.last = max(known.last, stage)
