"""Attention scores of selectors: selected keys have one score, all other keys a lower one."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from allometry._core.errors import InputError
from allometry.construct.named_weights import ONE
from allometry.construct.programs.expressions import Indices, Select, indices
from allometry.construct.programs.selector_parts import holds
from allometry.construct.programs.value_sets import Domains

if TYPE_CHECKING:
    from allometry.construct.programs.lowering import Lowering

LARGEST_SIDE = 1024
"""Largest number of values of a key or a query."""


@final
@dataclass
class Score:
    """The scores of a selector.

    Attributes:
        pairs: Forms at the query and at the key; the score is the sum of their products.
        level: Score of selected keys, a form at the query; all others are at least 1 below.
        sight: Attention mask of the head.
    """

    pairs: list[tuple[dict[str, float], dict[str, float]]] = field(default_factory=list)
    level: dict[str, float] = field(default_factory=lambda: {ONE: 0.0})
    sight: str = "all"


def score(parts: list[Select], lowering: "Lowering") -> tuple[Score, int]:
    """The scores of a conjunction of selects, and the stage at which they are available."""
    total, stage = Score(), 0
    for part in parts:
        keys, queries = lowering.domains.values(part.keys), lowering.domains.values(part.queries)
        if max(len(keys), len(queries)) > LARGEST_SIDE:
            raise InputError(
                f"select ({part.origin}) must compare at most {LARGEST_SIDE} different keys and "
                f"queries; got {len(keys):,} and {len(queries):,}. Compare coarser values."
            )
        table = [[holds(part, k, q) for k in keys] for q in queries]
        if all(all(row) for row in table):
            continue
        sight = _sight(part, table, lowering.domains)
        if sight == "past" and lowering.domains.causal:
            continue
        if sight == "before" and lowering.domains.causal:
            raise InputError(
                f"select ({part.origin}) must not exclude only its own position in a causal "
                'program; got "<" of positions. Use "<=", and subtract the position itself.'
            )
        if sight is not None:
            total.sight = sight if total.sight != "before" else "before"
            continue
        stage = max(stage, _add(total, part, table, lowering))
    return total, stage


def _sight(part: Select, table: list[list[bool]], domains: Domains) -> str | None:
    """The attention mask that implements a comparison of positions, or `None`."""
    for side in (part.keys, part.queries):
        atoms, f = domains.view(side)
        same = len(atoms) == 1 and isinstance(atoms[0], Indices)
        if not same or [f((i,)) for i in range(domains.n)] != list(range(domains.n)):
            return None
    n = domains.n
    for name, mask in (("past", lambda k, q: k <= q), ("before", lambda k, q: k < q)):
        if all(table[q][k] == mask(k, q) for q in range(n) for k in range(n)):
            return name
    return None


def _add(total: Score, part: Select, table: list[list[bool]], lowering: "Lowering") -> int:
    """Add one select to the scores; return the stage at which its features are available."""
    keys, queries = lowering.domains.values(part.keys), lowering.domains.values(part.queries)
    rows = {q: tuple(row) for q, row in zip(queries, table, strict=True)}
    columns = {k: tuple(row[j] for row in table) for j, k in enumerate(keys)}
    row_kinds = [r for r in dict.fromkeys(rows.values()) if any(r)]
    column_kinds = [c for c in dict.fromkeys(columns.values()) if any(c)]
    place_q = {q: i for i, q in enumerate(queries)}
    place_k = {k: i for i, k in enumerate(keys)}
    stages = [0]

    def feature(side: Any, g: Any) -> dict[str, float]:
        form, stage = lowering.feature(side, g)
        stages.append(stage)
        return form

    disjoint = sum(map(sum, row_kinds)) == len([c for c in columns.values() if any(c)])
    if disjoint and len(row_kinds) > 2:
        # Rows that select disjoint keys are numbered; 2uv - v^2 is largest at v = u.
        number = {row: float(i) for i, row in enumerate(row_kinds)}
        of_key = {k: next((number[r] for r in row_kinds if r[place_k[k]]), -1.0) for k in keys}
        u = feature(part.queries, lambda q: number.get(rows[q], -3.0))
        square = feature(part.queries, lambda q: number.get(rows[q], -3.0) ** 2)
        v = feature(part.keys, lambda k: of_key[k])
        minus = feature(part.keys, lambda k: -(of_key[k] ** 2))
        total.pairs.append(({name: 2 * x for name, x in u.items()}, v))
        total.pairs.append(({ONE: 1.0}, minus))
        for name, x in square.items():
            total.level[name] = total.level.get(name, 0.0) + x
        return max(stages)
    total.level[ONE] += 1.0
    if len(row_kinds) <= len(column_kinds):
        for kind in row_kinds:
            query = feature(part.queries, lambda q, kind=kind: float(rows[q] == kind))
            key = feature(part.keys, lambda k, kind=kind: float(kind[place_k[k]]))
            total.pairs.append((query, key))
    else:
        for kind in column_kinds:
            query = feature(part.queries, lambda q, kind=kind: float(kind[place_q[q]]))
            key = feature(part.keys, lambda k, kind=kind: float(columns[k] == kind))
            total.pairs.append((query, key))
    return max(stages)


def latest(scores: Score, lowering: "Lowering", first: bool) -> Score:
    """Scores for which the last (or first) selected key is the largest, by at least 1.

    A unit of the old scores becomes n, and a key's position in 0 ... n - 1 is added (subtracted).
    """
    n = float(lowering.domains.n)
    place, _ = lowering.feature(indices, float)
    pairs = [({name: n * x for name, x in query.items()}, key) for query, key in scores.pairs]
    level = {name: n * x for name, x in scores.level.items()}
    if first:
        level[ONE] = level.get(ONE, 0.0) - n + 1
    return Score([*pairs, ({ONE: -1.0 if first else 1.0}, place)], level, scores.sight)
