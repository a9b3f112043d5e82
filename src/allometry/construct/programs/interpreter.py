"""The reference interpreter of programs, written for clarity instead of speed."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from allometry._core.errors import InputError
from allometry.construct.programs.expressions import (
    Aggregate,
    Both,
    Combine,
    Either,
    Elementwise,
    Indices,
    Latest,
    Linear,
    Loop,
    Neither,
    Select,
    Selector,
    SequenceOperator,
    State,
    Steps,
    Tokens,
    Width,
)

Memory = tuple[dict[int, list[Any]], dict[int, list[list[bool]]]]
"""Values of expressions, and the positions that selectors select."""


def interpret(
    program: SequenceOperator,
    tokens: Sequence[Any],
    *,
    causal: bool = False,
    longest: int | None = None,
) -> list[Any]:
    """The program's output on `tokens`, in exact arithmetic.

    Args:
        program: The expression.
        tokens: The input.
        causal: Whether positions select only themselves and earlier ones.
        longest: Number of repetitions of a loop that has none of its own. Default: the length of
            the input.

    Raises:
        InputError: An aggregate selects different values that are not numeric.
    """
    if not isinstance(program, Loop):
        return [plain(x) for x in _evaluate([program], tokens, causal, {})[0]]
    times = program.times or longest or len(tokens)
    found = _evaluate(program.starts, tokens, causal, {})

    def named(values: list[list[Any]]) -> dict[int, list[Any]]:
        return {id(s): x for s, x in zip(program.states, values, strict=True)}

    varying = _varying(program)
    memory: Memory = {}, {}
    for _ in range(times):
        found = _evaluate(program.steps, tokens, causal, named(found), memory)
        for part in memory:
            for key in varying & part.keys():
                del part[key]
    return [plain(x) for x in _evaluate([program.result], tokens, causal, named(found))[0]]


def _varying(program: Loop) -> set[int]:
    """What depends on a state of the loop."""
    known: dict[int, bool] = {}

    def depends(node: SequenceOperator | Selector) -> bool:
        if id(node) not in known:
            known[id(node)] = isinstance(node, State)
            for inner in vars(node).values():
                for part in inner if isinstance(inner, tuple) else (inner,):
                    part = part[1] if isinstance(part, tuple) else part
                    if isinstance(part, SequenceOperator | Selector) and depends(part):
                        known[id(node)] = True
        return known[id(node)]

    for step in program.steps:
        depends(step)
    return {node for node, yes in known.items() if yes}


def _evaluate(
    programs: Sequence[SequenceOperator],
    tokens: Sequence[Any],
    causal: bool,
    bound: Mapping[int, list[Any]],
    memory: Memory | None = None,
) -> list[list[Any]]:
    """Values of several expressions, with those of the states in `bound`.

    Args:
        programs: The expressions.
        tokens: The input.
        causal: Whether positions select only themselves and earlier ones.
        bound: Values of states.
        memory: Values and selected positions that are known; those found are added.
    """
    memo, chosen = ({}, {}) if memory is None else memory
    n = len(tokens)

    def run(node: SequenceOperator) -> list[Any]:
        if id(node) not in memo:
            memo[id(node)] = compute(node)
        return memo[id(node)]

    def compute(node: SequenceOperator) -> list[Any]:
        match node:
            case State():
                return bound[id(node)]
            case Tokens():
                return list(tokens)
            case Indices():
                return list(range(n))
            case Elementwise():
                return [node.f(x) for x in run(node.inner)]
            case Combine():
                pairs = zip(run(node.first), run(node.second), strict=True)
                return [node.f(x, y) for x, y in pairs]
            case Linear():
                columns = [(c, run(term)) for c, term in node.terms]
                return [node.constant + sum(c * x[i] for c, x in columns) for i in range(n)]
            case Steps():
                return [node.f(int(x)) for x in run(node.inner)]
            case Width():
                return [sum(row) for row in look(node.selector)]
            case Aggregate():
                values = run(node.values)
                rows = look(node.selector)
                return [
                    _pick(node, [v for v, s in zip(values, r, strict=True) if s]) for r in rows
                ]
        raise AssertionError(node)

    def look(selector: Selector) -> list[list[bool]]:
        if id(selector) not in chosen:
            rows = matrix(selector)
            if causal:
                rows = [[x and j <= i for j, x in enumerate(r)] for i, r in enumerate(rows)]
            chosen[id(selector)] = rows
        return chosen[id(selector)]

    def matrix(selector: Selector) -> list[list[bool]]:
        match selector:
            case Select():
                keys, queries = run(selector.keys), run(selector.queries)
                return [[bool(selector.predicate(k, q)) for k in keys] for q in queries]
            case Both():
                a, b = look(selector.first), look(selector.second)
                return [
                    [x and y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)
                ]
            case Either():
                a, b = look(selector.first), look(selector.second)
                return [
                    [x or y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)
                ]
            case Neither():
                return [[not x for x in row] for row in look(selector.inner)]
            case Latest():
                end = 1 if selector.first else -1
                rows = []
                for row in look(selector.inner):
                    chosen_at = next((j for j in range(n)[::end] if row[j]), None)
                    rows.append([j == chosen_at for j in range(n)])
                return rows
        raise AssertionError(selector)

    return [run(program) for program in programs]


def _pick(node: Aggregate, selected: list[Any]) -> Any:
    if not selected:
        return node.default
    if node.numeric:
        return Fraction(sum(Fraction(v) for v in selected)) / len(selected)
    if any(v != selected[0] for v in selected):
        raise undefined(node)
    return selected[0]


def undefined(node: Aggregate) -> InputError:
    """The error of an aggregate that selects different values that are not numeric."""
    return InputError(
        f"aggregate ({node.origin}) must select equal values; got different ones. Select fewer, "
        "or average with numerical(...)."
    )


def plain(value: Any) -> Any:
    """Convert integer fractions to `int`."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return int(value)
    return value
