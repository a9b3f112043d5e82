"""Short descriptions of expressions, for listings."""

from fractions import Fraction

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
    Steps,
    Tokens,
    Width,
)

DEEPEST = 3
"""Levels of an expression that are written out; deeper ones are shown as "..."."""


def name(node: SequenceOperator, depth: int = DEEPEST) -> str:
    """An expression in words; its `label` if it has one."""
    if node.label:
        return node.label
    if depth == 0 and not isinstance(node, Tokens | Indices):
        return "..."
    match node:
        case Tokens() | Indices():
            return node.origin
        case Elementwise():
            return f"{node.name}({name(node.inner, depth - 1)})"
        case Combine():
            return f"{node.name}({name(node.first, depth - 1)}, {name(node.second, depth - 1)})"
        case Steps():
            return f"{node.name} of {name(node.inner, depth - 1)}"
        case Width():
            return f"number of {selector_name(node.selector, depth - 1)}"
        case Aggregate():
            kind = "mean of " if node.numeric and not isinstance(node.selector, Latest) else ""
            values = name(node.values, depth - 1)
            return f"{kind}{values} at {selector_name(node.selector, depth - 1)}"
        case Linear():
            return _sum(node, depth)
        case Loop():
            return f"loop of {', '.join(s.name for s in node.states)}"
    raise AssertionError(node)


def _sum(node: Linear, depth: int) -> str:
    terms = []
    for factor, term in node.terms:
        size = "" if abs(factor) == 1 else f"{abs(factor)} "
        terms.append(f"{'-' if factor < 0 else '+'} {size}{name(term, depth - 1)}")
    if node.constant or not terms:
        constant = Fraction(node.constant)
        terms.append(f"{'-' if constant < 0 else '+'} {abs(constant)}")
    return " ".join(terms).removeprefix("+ ")


def selector_name(selector: Selector, depth: int = DEEPEST) -> str:
    """A selector in words."""
    if depth == 0:
        return "..."
    match selector:
        case Select():
            keys, queries = name(selector.keys, depth - 1), name(selector.queries, depth - 1)
            return f"[key {keys} {selector.name} query {queries}]"
        case Both() | Either():
            word = "and" if isinstance(selector, Both) else "or"
            first = selector_name(selector.first, depth)
            return f"{first} {word} {selector_name(selector.second, depth)}"
        case Neither():
            return f"not {selector_name(selector.inner, depth)}"
        case Latest():
            which = "first" if selector.first else "latest"
            return f"the {which} of {selector_name(selector.inner, depth)}"
    raise AssertionError(selector)
