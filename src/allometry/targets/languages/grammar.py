"""Context-free languages, defined by a weighted grammar."""

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.user_files import read_text
from allometry.targets.languages.earley import Reader, Rulebook
from allometry.targets.languages.grammar_normal_form import Production, normal_form, totals
from allometry.targets.languages.language import Language, Word, draw, not_a_prefix
from allometry.targets.languages.notation import Rule, read_rules
from allometry.targets.languages.parse_trees import Tree, best_tree

MOST_NAMES = 1000
"""Largest number of nonterminals: the parser uses a square matrix of this size."""


@final
class Grammar(Language):
    r"""The context-free language of a weighted grammar.

    The weights of a nonterminal's rules are normalised. If derivations may not end, `termination`
    is the probability that they do, and all other probabilities are conditional on it. Earley's
    algorithm computes exact next-symbol probabilities for any rules (empty, unit, left- or
    right-recursive, ambiguous).

    Args:
        rules: Text in the notation of `read_rules`, or rules.
        start: Start symbol. Default: the nonterminal of the first rule.

    Example:
        >>> from allometry.targets import Grammar
        >>> g = Grammar("S -> 'a' S 'b' [0.25] | 'a' 'b' [0.75]")
        >>> g.accepts("aabb"), g.accepts("aab")
        (True, False)
        >>> g.next_symbol("a")
        array([0.25, 0.75, 0.  ])
        >>> print(g.parse("aabb"))
        (S a (S a b) b)

    References:
        `stolcke1995` for prefix probabilities; `booth1973` for termination.
    """

    def __init__(self, rules: str | Iterable[Rule], start: str | None = None) -> None:
        listed = read_rules(rules) if isinstance(rules, str) else list(rules)
        require(len(listed) > 0, "Grammar.rules", "have at least one rule", listed)
        start = listed[0].left if start is None else start
        known = {rule.left for rule in listed}
        require(start in known, "Grammar.start", f"be one of {sorted(known)}", start)
        for rule in listed:
            for terminal, name in rule.right:
                if not terminal and name not in known:
                    raise InputError(
                        f"grammar line {rule.line} ({rule}) must use nonterminals that have "
                        f"rules; got {name}. Put it in quotes if it is a terminal."
                    )
        used = _reachable(listed, start)
        self.rules = [rule for rule in listed if rule.left in used]
        self.start = start
        self.alphabet = tuple(sorted({s for r in self.rules for t, s in r.right if t}))
        require(len(self.alphabet) > 0, "Grammar.rules", "have some terminal", str(self.rules[0]))
        self.names = [start, *sorted(used - {start})]
        size = len(self.names)
        require(
            size <= MOST_NAMES, "Grammar.rules", f"have {MOST_NAMES} nonterminals at most", size
        )
        self._normalise()

    @staticmethod
    def from_file(path: str | Path, start: str | None = None) -> "Grammar":
        """Read a grammar from a text file in the notation of `read_rules`."""
        return Grammar(read_text(path), start)

    def _normalise(self) -> None:
        """Normalise the weights and condition them on termination."""
        number = {name: i for i, name in enumerate(self.names)}
        letter = {symbol: ~i for i, symbol in enumerate(self.alphabet)}
        size = len(self.names)
        share = np.zeros(size)
        for rule in self.rules:
            share[number[rule.left]] += rule.weight
        raw: list[Production] = [
            (
                number[rule.left],
                tuple(letter[s] if terminal else number[s] for terminal, s in rule.right),
                rule.weight / share[number[rule.left]],
            )
            for rule in self.rules
        ]
        z = totals(raw, size)
        for i in np.flatnonzero(z <= 0):
            line = next(r.line for r in self.rules if r.left == self.names[i])
            raise InputError(
                f"grammar line {line}: {self.names[i]} must derive some word; all its rules lead "
                "back to themselves. Give it a rule that ends."
            )
        # Near a critical grammar, Newton's method stops about 1e-8 below the solution, which is 1.
        self._raw, self._z = raw, np.where(z > 1 - 1e-7, 1.0, z)
        self._proper: list[Production] = []
        for left, right, weight in raw:
            inside = math.prod(self._z[s] for s in right if s >= 0)
            self._proper.append((left, right, float(weight * inside / self._z[left])))

    @property
    def termination(self) -> Estimate:
        """Probability that a derivation with the given weights ends."""
        return Estimate(float(self._z[0]), exact=True, method="Newton's method, to 1e-12")

    @cached_property
    def _book(self) -> Rulebook:
        return Rulebook(normal_form(self._proper, len(self.names)), self.size)

    def reader(self) -> Reader:
        """A parser before the first symbol; see its `.read(id)` and `.probabilities`."""
        return Reader.start(self._book)

    def _read(self, ids: list[int]) -> tuple[Reader, int | None]:
        reader = self.reader()
        for position, symbol in enumerate(ids):
            after = reader.read(symbol)
            if after is None:
                return reader, position
            reader = after
        return reader, None

    def accepts(self, word: Word) -> bool:
        """Whether the grammar derives `word`."""
        reader, wrong = self._read(self.ids(word))
        return wrong is None and bool(reader.probabilities[-1] > 0)

    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Probabilities of the symbols and of the end after `prefix`."""
        ids = self.ids(prefix)
        reader, wrong = self._read(ids)
        if wrong is not None:
            raise not_a_prefix(wrong, self.alphabet[ids[wrong]])
        return reader.probabilities

    def _distributions(self, ids: list[int]) -> Iterator[Float[ndarray, " v_plus_1"]]:
        reader: Reader | None = self.reader()
        for symbol in [*ids, -1]:
            assert reader is not None
            yield reader.probabilities
            reader = reader.read(symbol) if symbol >= 0 else None

    def prefix_log_prob(self, prefix: Word) -> float:
        """Natural logarithm of the probability that a word starts with `prefix`."""
        total = 0.0
        for symbol, p in zip(ids := self.ids(prefix), self._distributions(ids), strict=False):
            if p[symbol] <= 0:
                return -math.inf
            total += math.log(p[symbol])
        return total

    def parse(self, word: Word) -> Tree | None:
        """The most probable parse with the given rules; `None` outside the language."""
        best = best_tree(self._proper, self.names, self.alphabet, self.ids(word))
        return None if best is None else best[0]

    def count(self, length: int) -> int:
        """Number of distinct words of `length` symbols, by enumeration."""
        return sum(1 for _ in self.words(length))

    def derivations(self, length: int) -> int:
        """Number of parses of all words of `length` symbols.

        Raises:
            InputError: Unit rules form a cycle, so that a word has infinitely many parses.
        """
        self._refuse_cycles()
        memo: dict[tuple[int, int], int] = {}

        def trees(symbol: int, n: int) -> int:
            if symbol < 0:
                return int(n == 1)
            if (symbol, n) not in memo:
                memo[symbol, n] = sum(
                    rest(r, 0, n) for r, p in enumerate(self._raw) if p[0] == symbol
                )
            return memo[symbol, n]

        parts: dict[tuple[int, int, int], int] = {}

        def rest(rule: int, dot: int, n: int) -> int:
            right = self._raw[rule][1]
            if dot == len(right):
                return int(n == 0)
            if (rule, dot, n) not in parts:
                least = sum(self._shortest[s] if s >= 0 else 1 for s in right[dot + 1 :])
                parts[rule, dot, n] = sum(
                    count * rest(rule, dot + 1, n - m)
                    for m in range(
                        self._shortest[right[dot]] if right[dot] >= 0 else 1, n - least + 1
                    )
                    if (count := trees(right[dot], m))
                )
            return parts[rule, dot, n]

        return trees(0, length)

    @cached_property
    def _shortest(self) -> list[int]:
        """Length of the shortest word of each nonterminal."""
        best = [10**9] * len(self.names)
        for _ in self.names:
            for left, right, _ in self._raw:
                best[left] = min(best[left], sum(best[s] if s >= 0 else 1 for s in right))
        return best

    def _refuse_cycles(self) -> None:
        """Raise an error if a nonterminal derives exactly itself: X -> ... -> X."""
        size = len(self.names)
        step = np.zeros((size, size), dtype=bool)
        for left, right, _ in self._raw:
            for at, s in enumerate(right):
                others = right[:at] + right[at + 1 :]
                if s >= 0 and all(o >= 0 and self._shortest[o] == 0 for o in others):
                    step[left, s] = True
        reach = step.copy()
        for _ in range(size):
            reach |= (reach.astype(int) @ step.astype(int)) > 0
        for i in np.flatnonzero(np.diag(reach)):
            raise InputError(
                f"grammar must give a word finitely many parses; {self.names[i]} derives itself."
            )

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word, derived from the start symbol."""
        word: list[int] = []
        stack = [0]
        while stack:
            symbol = stack.pop()
            if symbol < 0:
                word.append(~symbol)
                continue
            choices, shares = self._choices[symbol]
            stack.extend(reversed(choices[draw(shares, rng)]))
        return word

    @cached_property
    def _choices(self) -> list[tuple[list[tuple[int, ...]], ndarray]]:
        """Right sides and weights of the rules of each nonterminal."""
        choices = []
        for i in range(len(self.names)):
            own = [(right, w) for left, right, w in self._proper if left == i]
            choices.append(([r for r, _ in own], np.array([w for _, w in own])))
        return choices

    @cached_property
    def _expected_uses(self) -> Float[ndarray, " nonterminals"] | None:
        """Expected number of expansions of each nonterminal; `None` if infinite."""
        size = len(self.names)
        move = np.zeros((size, size))
        for left, right, weight in self._proper:
            for s in right:
                if s >= 0:
                    move[left, s] += weight
        if np.abs(np.linalg.eigvals(move)).max() >= 1 - 1e-9:
            return None
        return np.linalg.solve(np.eye(size) - move.T, np.eye(size)[0])

    @property
    def mean_length(self) -> Estimate:
        """Expected number of symbols of a word; infinite for a critical grammar."""
        uses = self._expected_uses
        if uses is None:
            return Estimate(math.inf, method="critical grammar")
        letters = np.zeros(len(self.names))
        for left, right, weight in self._proper:
            letters[left] += weight * sum(s < 0 for s in right)
        return Estimate(float(uses @ letters), exact=True, method="linear system")

    @property
    def derivation_entropy(self) -> Estimate:
        """Entropy of a derivation in nats; for unambiguous grammars the entropy of a word."""
        uses = self._expected_uses
        if uses is None:
            return Estimate(math.inf, method="critical grammar")
        each = np.zeros(len(self.names))
        for left, _, weight in self._proper:
            each[left] -= weight * math.log(weight)
        return Estimate(float(uses @ each), exact=True, method="linear system")

    def entropy(self, samples: int, rng: np.random.Generator) -> Estimate:
        """Entropy of a word in nats, estimated by the mean of -log p over `samples` words.

        For unambiguous grammars `derivation_entropy` is exact.
        """
        require(samples >= 2, "entropy.samples", "be at least 2", samples)
        x = np.array([-self.log_prob(self.sample(rng)) for _ in range(samples)])
        se = float(x.std(ddof=1) / math.sqrt(samples))
        return Estimate(float(x.mean()), se=se, n=samples, method="sampled")


def _reachable(rules: list[Rule], start: str) -> set[str]:
    used, new = {start}, [start]
    while new:
        name = new.pop()
        for rule in rules:
            if rule.left == name:
                fresh = {s for terminal, s in rule.right if not terminal} - used
                used |= fresh
                new += fresh
    return used
