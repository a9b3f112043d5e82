"""Compile a loop: one group of blocks whose neurons write the states of the next repetition."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from allometry._core.errors import InputError, require
from allometry.construct.named_weights import ONE
from allometry.construct.programs.assembly import SCALE, Assembled, Assembly, Repeated
from allometry.construct.programs.expressions import (
    Indices,
    Loop,
    SequenceOperator,
    State,
    Tokens,
)
from allometry.construct.programs.linear_forms import Form
from allometry.construct.programs.loops import MOST_TIMES, closed
from allometry.construct.programs.lowering import Lowering
from allometry.construct.programs.operators import parts
from allometry.construct.programs.readouts import Readout, next_token, readout
from allometry.construct.programs.schedule import Schedule

ALWAYS = 10**9


def compile_loop(
    node: Loop,
    alphabet: tuple[Any, ...],
    n: int,
    causal: bool,
    words: Sequence[Any] | None,
) -> tuple[Readout, Assembled]:
    """The output of a loop, and its network.

    Args:
        node: The loop.
        alphabet: The tokens.
        n: Largest input length.
        causal: Whether the network is a decoder.
        words: The tokens that are generated; `None` if the result is not the next token.
    """
    lowering = Lowering(closed(node, alphabet, n, causal))
    if words is None:
        made = readout("output", node.result, lowering, 0)
    else:
        made = next_token(node.result, words, lowering)
    if any(lowering.coordinates[c].birth for row in made.rows for c in row if c != ONE):
        raise InputError(
            f"the result of a loop ({node.result.origin}) must be a function of one state, of "
            "tokens or of indices; got a function of several. Make it a state of the loop."
        )
    updates = _updates(node, lowering)
    for part in {id(p): p for step in node.steps for p in parts(step)}.values():
        lowering.check(part)
    if lowering.checked:
        name = next(iter(lowering.checked.values()))[0].origin
        raise InputError(
            f"aggregate ({name}) must select at most one position in a loop, unless it averages "
            "numbers. Use latest(...) or earliest(...)."
        )
    operations = [*lowering.heads, *lowering.tables]
    blocks = max([(op.stage + 1) // 2 for op in operations], default=1)
    times = node.times or n
    fits = times * blocks <= MOST_TIMES
    require(fits, "loop.times", f"give at most {MOST_TIMES:,} blocks", times * blocks)
    kept = _write_late(lowering, updates, 2 * blocks)
    for name, known in lowering.coordinates.items():
        if known.birth == 0:
            known.last = ALWAYS
        lowering.use(kept.get(name, {}), 2 * blocks)
    starts = [_start(s, x, lowering) for s, x in zip(node.states, node.starts, strict=True)]
    assembly = Assembly(lowering, True, Repeated(times, kept, starts))
    model = assembly.network(made.rows, SCALE)
    schedule = Schedule(times * blocks, model.width, False, 1, times)
    head = f"blocks 0 to {blocks - 1}, applied {times} times"
    listing = "\n".join([head, *assembly.legend(), *assembly.notes])
    return replace(made, expr=node), Assembled(model, schedule, listing)


def _updates(node: Loop, lowering: Lowering) -> dict[str, Form]:
    """The form that each coordinate of a state must have after a repetition."""
    found: dict[str, Form] = {}
    while True:
        missing = [
            (state, after, vector, name)
            for state, after in zip(node.states, node.steps, strict=True)
            for vector, name in lowering.by_state.get(id(state), {}).items()
            if name not in found
        ]
        if not missing:
            return found
        for state, after, vector, name in missing:
            number = dict(zip(lowering.domains.values(state), vector, strict=True))
            found[name], _ = lowering.feature(after, lambda v, number=number: number[v])


def _write_late(lowering: Lowering, updates: dict[str, Form], last: int) -> dict[str, Form]:
    """Let the tables of the last stage write to the states; return what else is to be added."""
    tables = [table for table in lowering.tables if table.stage == last]
    late = {name: table for table in tables for name in table.outputs}
    written = [(table, dict(table.outputs)) for table in tables]
    for table in tables:
        table.outputs = {}
    kept = {}
    for name, form in updates.items():
        rest = {c: x for c, x in form.items() if c not in late}
        for table, outputs in written:
            terms = [(x, outputs[c]) for c, x in form.items() if c in outputs]
            if terms:
                cases = range(len(table.levels))
                table.outputs[name] = [sum(x * numbers[i] for x, numbers in terms) for i in cases]
        rest[name] = rest.get(name, 0.0) - 1.0
        rest = {c: x for c, x in rest.items() if x}
        if rest:
            kept[name] = rest
    for name in late:
        del lowering.coordinates[name]
    return kept


def _start(
    state: State, expr: SequenceOperator, lowering: Lowering
) -> tuple[str, list[dict[str, float]]]:
    """Whether a state starts as a function of tokens or of indices, and its rows."""
    atoms, f = lowering.domains.view(expr)
    if len(atoms) != 1 or not isinstance(atoms[0], Tokens | Indices):
        raise InputError(
            f"the state {state.name!r} of a loop ({expr.origin}) must start as a function of "
            "tokens alone or of indices alone. Compute it in the step."
        )
    place: dict[Any, int] = {v: i for i, v in enumerate(lowering.domains.values(state))}
    known = lowering.by_state.get(id(state), {})
    rows = [
        {name: vector[place[f((v,))]] for vector, name in known.items()}
        for v in lowering.domains.values(atoms[0])
    ]
    return ("token" if isinstance(atoms[0], Tokens) else "index"), rows
