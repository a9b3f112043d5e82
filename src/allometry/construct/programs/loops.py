"""Loops by depth: a state that the same layers change several times."""

from collections.abc import Callable, Mapping
from typing import Any

from allometry._core.errors import InputError, require
from allometry.construct.programs.expressions import Loop, SequenceOperator, State
from allometry.construct.programs.operators import parts
from allometry.construct.programs.value_sets import Domains

MOST_VALUES = 1024
"""Largest number of values of a state."""
MOST_TIMES = 10_000
"""Largest number of repetitions."""

States = Mapping[str, SequenceOperator]


def loop(
    start: States,
    step: Callable[[States], States],
    *,
    times: int | None = None,
    result: str | Callable[[States], SequenceOperator] | None = None,
) -> SequenceOperator:
    """A program that changes states several times, each time by the same layers.

    The layers are built once and applied `times` times, so that the number of parameters does not
    depend on `times`. A loop is a whole program for `program` or `generator`.

    Args:
        start: The states by name, and their values before the first repetition: functions of
            `tokens` alone or of `indices` alone.
        step: From the states to those that change, after a repetition.
        times: Number of repetitions. Default: the largest input length.
        result: Name of the state that is the output, or from the states to a function of one of
            them. Default: the first state.

    Example:
        >>> from allometry.construct import program
        >>> from allometry.construct.programs import aggregate, combine, elementwise, indices
        >>> from allometry.construct.programs import loop, select, tokens
        >>> def step(s):  # every position takes the larger of its number and the one before it
        ...     left = aggregate(select(indices, indices - 1), s["top"], default="0")
        ...     return {"top": combine(max, left, s["top"])}
        >>> top = loop({"top": elementwise(str, tokens)}, step)
        >>> made = program(top, alphabet="0123", n=6)
        >>> "".join(made("010321")), len(made.model.blocks), made.model.depth
        ('011333', 1, 6)

    References:
        `shaw2024` for looped layers in a compiler.
    """
    require(len(start) > 0, "loop.start", "have at least one state", start)
    for name, expr in start.items():
        is_operator = isinstance(expr, SequenceOperator)
        require(is_operator, f"loop.start[{name!r}]", "be a sequence operator", expr)
    fine = times is None or 1 <= times <= MOST_TIMES
    require(fine, "loop.times", f"lie between 1 and {MOST_TIMES:,}", times)
    states = {name: State(name, expr) for name, expr in start.items()}
    changed = step(states)
    for name, expr in changed.items():
        require(name in states, "loop.step", f"return states of {', '.join(states)}", name)
        is_operator = isinstance(expr, SequenceOperator)
        require(is_operator, f"loop.step[{name!r}]", "be a sequence operator", expr)
    end = _result(states, result)
    after = {name: changed.get(name, state) for name, state in states.items()}
    used = _used(end, states, after)
    return Loop(
        tuple(states[name] for name in used),
        tuple(start[name] for name in used),
        tuple(after[name] for name in used),
        end,
        times,
    )


def _used(end: SequenceOperator, states: Mapping[str, State], after: States) -> list[str]:
    """The states on which the result depends; the others are not computed."""
    found: set[int] = set()
    open_ends = [end]
    while open_ends:
        for part in parts(open_ends.pop()):
            if isinstance(part, State) and id(part) not in found:
                found.add(id(part))
                open_ends.append(after[part.name])
    return [name for name, state in states.items() if id(state) in found]


def _result(states: Mapping[str, State], result: Any) -> SequenceOperator:
    if result is None:
        return next(iter(states.values()))
    if callable(result):
        found: Any = result(states)
        is_operator = isinstance(found, SequenceOperator)
        require(is_operator, "loop.result", "give a sequence operator", found)
        return found
    require(result in states, "loop.result", f"be one of {', '.join(states)}", result)
    return states[result]


def closed(node: Loop, alphabet: tuple[Any, ...], n: int, causal: bool) -> Domains:
    """The possible values of all expressions; those of the states are closed under the step."""
    first = Domains(alphabet, n, causal)
    known = {s: list(first.listed(x)) for s, x in zip(node.states, node.starts, strict=True)}
    while True:
        domains = Domains(alphabet, n, causal)
        for state, values in known.items():
            domains.assume(state, values)
        grew = False
        for state, after in zip(node.states, node.steps, strict=True):
            values = known[state]
            seen = set(values)
            new = [v for v in domains.listed(after) if v not in seen]
            if new:
                grew = True
                known[state] = [*values, *new]
            if len(known[state]) > MOST_VALUES:
                raise InputError(
                    f"the state {state.name!r} of a loop ({after.origin}) must keep to at most "
                    f"{MOST_VALUES:,} values; it takes more with each repetition. Bound it, as "
                    "with elementwise(lambda v: min(v, 9), ...)."
                )
        if not grew:
            return domains
