"""The most probable parse of a word with the original rules."""

import heapq
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import final

from allometry.targets.languages.grammar_normal_form import Production


@final
@dataclass(frozen=True)
class Tree:
    """A parse tree: a nonterminal and its children. Leaves are symbols.

    Args:
        label: The nonterminal.
        children: Trees and symbols, in order.
    """

    label: str
    children: "tuple[Tree | str, ...]"

    def leaves(self) -> list[str]:
        """The symbols from left to right."""
        leaves: list[str] = []
        for child in self.children:
            leaves += child.leaves() if isinstance(child, Tree) else [child]
        return leaves

    def __str__(self) -> str:
        inside = " ".join(c if isinstance(c, str) else str(c) for c in self.children)
        return f"({self.label} {inside})" if inside else f"({self.label})"


Item = tuple[int, int, int, int]
"""Rule, position of the dot, begin, end; a completed nonterminal is (-1 - X, 0, begin, end)."""


def best_tree(
    rules: list[Production], names: list[str], alphabet: tuple[str, ...], word: list[int]
) -> tuple[Tree, float] | None:
    """The most probable tree of `word` and its log-probability; `None` if there is no tree.

    Knuth's generalisation of Dijkstra's algorithm: probabilities are at most one, so items are
    completed in order of falling probability, and the first derivation of an item is its best.
    Cycles of unit rules and empty rules need no special treatment.

    References:
        `knuth1977`.
    """
    done: dict[Item, float] = {}
    back: dict[Item, tuple[Item | None, Item | None]] = {}
    queue: list[tuple[float, int, Item, Item | None, Item | None]] = []
    tick = itertools.count()  # breaks ties by age: items can't always be compared
    waits: dict[tuple[int, int], list[Item]] = defaultdict(list)  # (symbol, place) -> items
    ends: dict[tuple[int, int], list[Item]] = defaultdict(list)  # (symbol, begin) -> finished

    def offer(cost: float, item: Item, before: Item | None, child: Item | None) -> None:
        heapq.heappush(queue, (cost, next(tick), item, before, child))

    for place in range(len(word) + 1):
        for i, (_, _, weight) in enumerate(rules):
            offer(-math.log(weight), (i, 0, place, place), None, None)
    goal = (-1, 0, 0, len(word))
    while queue:
        cost, _, item, before, child = heapq.heappop(queue)
        if item in done:
            continue
        done[item] = cost
        back[item] = (before, child)
        if item == goal:
            return _grow(item, back, rules, names, alphabet), -cost
        rule, dot, begin, end = item
        if rule < 0:
            symbol = -1 - rule
            ends[symbol, begin].append(item)
            for other in list(waits[symbol, begin]):
                r, d, b, _ = other
                offer(cost + done[other], (r, d + 1, b, end), other, item)
        elif dot == len(rules[rule][1]):
            offer(cost, (-1 - rules[rule][0], 0, begin, end), item, None)
        elif (symbol := rules[rule][1][dot]) < 0:
            if end < len(word) and word[end] == ~symbol:
                offer(cost, (rule, dot + 1, begin, end + 1), item, None)
        else:
            waits[symbol, end].append(item)
            for other in list(ends[symbol, end]):
                offer(cost + done[other], (rule, dot + 1, begin, other[3]), item, other)
    return None


def _grow(
    item: Item,
    back: dict[Item, tuple[Item | None, Item | None]],
    rules: list[Production],
    names: list[str],
    alphabet: tuple[str, ...],
) -> Tree:
    at = back[item][0]
    assert at is not None
    rule = at[0]
    children: list[Tree | str] = []
    while at is not None and at[1] > 0:
        symbol = rules[rule][1][at[1] - 1]
        before, child = back[at]
        if symbol < 0:
            children.append(alphabet[~symbol])
        else:
            assert child is not None
            children.append(_grow(child, back, rules, names, alphabet))
        at = before
    return Tree(names[rules[rule][0]], tuple(reversed(children)))
