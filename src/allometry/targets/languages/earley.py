r"""Earley's algorithm with probabilities: next-symbol distributions of a weighted grammar.

A state has a forward probability $\alpha$ (of the prefix and this state) and an inner probability
$\gamma$ (of the part that the state covers). Both are divided by the probability of each symbol as
it is read, so nothing underflows, and the $\alpha$ before a symbol sum to its probability.
"""

from collections import defaultdict
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.targets.languages.grammar_normal_form import Normal


@final
class Rulebook:
    """The rules of a normal form, indexed by their first symbol.

    Args:
        normal: The grammar.
        terminals: Number of terminals.
    """

    def __init__(self, normal: Normal, terminals: int) -> None:
        self.normal, self.terminals = normal, terminals
        self.single: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.double: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
        # expect[Y, t]: weight of t as the first symbol of rules of Y.
        self.expect = np.zeros((normal.size, terminals))
        for left, right, weight in normal.rules:
            if len(right) == 1:
                self.single[right[0]].append((left, weight))
            else:
                self.double[right[0]].append((left, right[1], weight))
            if right[0] < 0:
                self.expect[left, ~right[0]] += weight


@final
class Reader:
    """The parser's state after a prefix. Immutable: `read` returns the next one.

    Args:
        rules: The grammar.
        columns: Columns of the chart so far.
        ended: Probability that the word ends here, given the prefix.

    Attributes:
        probabilities: Next-symbol distribution; the last entry is the end.

    References:
        `earley1970`; `stolcke1995` sections 4.4 to 4.6 for the probabilities.
    """

    def __init__(self, rules: Rulebook, columns: "list[Column]", ended: float) -> None:
        self.rules, self.columns = rules, columns
        column = columns[-1]
        symbols = column.predicted @ rules.expect
        for (awaited, _, _), (alpha, _) in column.waiting.items():
            if awaited < 0:
                symbols[~awaited] += alpha
        self.probabilities: Float[ndarray, " v_plus_1"] = np.append(symbols, ended)

    @staticmethod
    def start(rules: Rulebook) -> "Reader":
        """The state before the first symbol."""
        root = {(0, -1, 0): (1 - rules.normal.empty, 1.0)}
        return Reader(rules, [Column(root, rules)], rules.normal.empty)

    def read(self, symbol: int) -> "Reader | None":
        """The state after one more symbol; `None` if no word continues with it."""
        share = float(self.probabilities[symbol])
        if share <= 0:
            return None
        here = len(self.columns)
        rules, last = self.rules, self.columns[-1]
        waiting: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        # gamma of completed nonterminals by their start, processed from the latest start on.
        finished: list[dict[int, float]] = [defaultdict(float) for _ in range(here)]
        for (awaited, left, begin), (_, gamma) in last.waiting.items():
            if awaited == ~symbol:
                finished[begin][left] += gamma / share
        self._advance(~symbol, 1 / share, here - 1, finished, waiting)
        for begin in range(here - 1, -1, -1):
            column = self.columns[begin]
            for name, inner in finished[begin].items():
                for left, origin, alpha, gamma in column.awaiting(name):
                    if left >= 0:
                        finished[origin][left] += gamma * inner
                    else:
                        waiting[-1, -1, -1][0] += alpha * inner
                self._advance(name, inner, begin, finished, waiting)
        ended = waiting.pop((-1, -1, -1), [0.0])[0]
        kept = {key: (a, g) for key, (a, g) in waiting.items()}
        return Reader(rules, [*self.columns, Column(kept, rules)], ended)

    def _advance(
        self,
        symbol: int,
        inner: float,
        begin: int,
        finished: list[dict[int, float]],
        waiting: dict[tuple[int, int, int], list[float]],
    ) -> None:
        """Move the dot over `symbol` in the rules that were predicted at `begin`."""
        predicted = self.columns[begin].predicted
        for left, weight in self.rules.single.get(symbol, ()):
            if predicted[left] > 0:
                finished[begin][left] += weight * inner
        for left, second, weight in self.rules.double.get(symbol, ()):
            if predicted[left] > 0:
                state = waiting[second, left, begin]
                state[0] += predicted[left] * weight * inner
                state[1] += weight * inner


@final
class Column:
    """A column of the chart: states whose first symbol has been read, and predicted rules.

    Args:
        waiting: Maps (awaited symbol, left side, begin) to alpha and gamma.
        rules: The grammar.
    """

    def __init__(
        self, waiting: dict[tuple[int, int, int], tuple[float, float]], rules: Rulebook
    ) -> None:
        self.waiting = waiting
        forward = np.zeros(rules.normal.size)
        self._awaiting: dict[int, list[tuple[int, int, float, float]]] = defaultdict(list)
        for (awaited, left, begin), (alpha, gamma) in waiting.items():
            if awaited >= 0:
                forward[awaited] += alpha
                self._awaiting[awaited].append((left, begin, alpha, gamma))
        self.predicted: Float[ndarray, " nonterminals"] = forward @ rules.normal.corner

    def awaiting(self, name: int) -> list[tuple[int, int, float, float]]:
        """States that await the nonterminal `name`: left side, begin, alpha, gamma."""
        return self._awaiting.get(name, [])
