"""Regular languages, defined by a finite automaton."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.targets.languages.language import Language, Word, draw, not_a_prefix

Transitions = Mapping[tuple[str, str], str | Iterable[str]]


@final
class Automaton(Language):
    """The regular language of a finite automaton, deterministic or not.

    A nondeterministic automaton is converted to a deterministic one; states that can't reach an
    accepting state are removed. By default, all possible next symbols, and the end if the prefix
    is a word, are equally likely; `weights` change that.

    Args:
        transitions: Maps (state, symbol) to the next state or states.
        start: Start state or states.
        accepting: Accepting states.
        weights: Relative weights of (state, symbol), and of (state, "") for the end. Default: 1.
            Only for deterministic automata.

    Example:
        >>> from allometry.targets import Automaton
        >>> even = Automaton.from_text('''
        ...     start: even
        ...     accept: even
        ...     even 0 even
        ...     even 1 odd
        ...     odd 0 odd
        ...     odd 1 even''')
        >>> even.accepts("1001"), even.count(10)
        (True, 512)
    """

    def __init__(
        self,
        transitions: Transitions,
        start: str | Iterable[str],
        accepting: Iterable[str],
        weights: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        moves = {k: {v} if isinstance(v, str) else set(v) for k, v in transitions.items()}
        self.alphabet = tuple(sorted({symbol for _, symbol in moves}))
        known = {state for state, _ in moves} | {s for to in moves.values() for s in to}
        first = frozenset({start} if isinstance(start, str) else start)
        final_states = {accepting} if isinstance(accepting, str) else set(accepting)
        known |= first | final_states
        require(len(first) > 0, "Automaton.start", "name a state", start)
        require(len(final_states) > 0, "Automaton.accepting", "name a state", accepting)
        single = len(first) == 1 and all(len(to) == 1 for to in moves.values())
        valid = weights is None or single
        constraint = "be left out for a nondeterministic automaton"
        require(valid, "Automaton.weights", constraint, weights)
        self._build(moves, first, final_states, dict(weights or {}))

    def _build(
        self,
        moves: dict[tuple[str, str], set[str]],
        first: frozenset[str],
        final_states: set[str],
        weights: dict[tuple[str, str], float],
    ) -> None:
        subsets = [first]
        number = {first: 0}
        table: list[list[int]] = []
        for subset in subsets:  # grows during the iteration
            row = []
            for symbol in self.alphabet:
                to = frozenset(s for q in subset for s in moves.get((q, symbol), ()))
                if to and to not in number:
                    number[to] = len(subsets)
                    subsets.append(to)
                row.append(number[to] if to else -1)
            table.append(row)
        ends = np.array([bool(s & final_states) for s in subsets])
        arcs = np.array(table, dtype=np.int64).reshape(len(subsets), len(self.alphabet))
        live = ends.copy()
        for _ in subsets:
            live |= ((arcs >= 0) & live[arcs]).any(axis=1)
        if not live[0]:
            raise InputError(
                "Automaton must accept some word; no accepting state can be reached from "
                f"{' or '.join(sorted(first))}."
            )
        self.states = tuple("+".join(sorted(s)) for s in subsets)
        self._arcs = np.where((arcs >= 0) & live[arcs], arcs, -1)
        self._ends = ends
        self._live = live
        share = np.zeros((len(subsets), self.size + 1))
        for i, name in enumerate(self.states):
            for j, symbol in enumerate((*self.alphabet, "")):
                possible = ends[i] if j == self.size else self._arcs[i, j] >= 0
                weight = weights.pop((name, symbol), 1.0) if possible else 0.0
                require(weight >= 0, f"weights[{name!r}, {symbol!r}]", "be at least 0", weight)
                share[i, j] = weight
        require(
            not weights, "Automaton.weights", "belong to existing arcs", next(iter(weights), "")
        )
        total = share.sum(axis=1, keepdims=True)
        for i in np.flatnonzero(live & (total[:, 0] == 0)):
            raise InputError(f"weights of {self.states[i]} must not all be 0; got 0.")
        self._share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)

    @staticmethod
    def from_text(text: str) -> "Automaton":
        """Parse lines `state symbol state`, `start: state` and `accept: states`.

        An arc may have a weight in brackets, `q a q [0.3]`; `q [0.7]` is the weight of the end in
        q. `#` starts a comment.

        Raises:
            InputError: A line is invalid; the message names it.
        """
        moves: dict[tuple[str, str], set[str]] = {}
        weights: dict[tuple[str, str], float] = {}
        start: list[str] = []
        accept: list[str] = []
        for number, line in enumerate(text.splitlines(), 1):
            parts = line.split("#")[0].split()
            if not parts:
                continue
            weight, parts = _bracket(parts, number, line)
            if parts[0] in ("start:", "accept:"):
                (start if parts[0] == "start:" else accept).extend(parts[1:])
            elif len(parts) == 3:
                state, symbol, to = parts
                moves.setdefault((state, symbol), set()).add(to)
                if weight is not None:
                    weights[state, symbol] = weight
            elif len(parts) == 1 and weight is not None:
                weights[parts[0], ""] = weight
            else:
                raise InputError(
                    f"line {number} must be 'state symbol state', 'start: state' or "
                    f"'accept: states'; got {line.strip()!r}."
                )
        require(bool(start), "the automaton's text", "have a line 'start: state'", text[:40])
        require(bool(accept), "the automaton's text", "have a line 'accept: states'", text[:40])
        return Automaton(moves, start, accept, weights or None)

    def _state(self, ids: Sequence[int]) -> tuple[int, int | None]:
        state = 0
        for position, symbol in enumerate(ids):
            to = int(self._arcs[state, symbol])
            if to < 0:
                return state, position
            state = to
        return state, None

    def accepts(self, word: Word) -> bool:
        """Whether `word` leads to an accepting state."""
        state, wrong = self._state(self.ids(word))
        return wrong is None and bool(self._ends[state])

    def next_symbol(self, prefix: Word) -> Float[ndarray, " v_plus_1"]:
        """Probabilities of the symbols and of the end after `prefix`."""
        ids = self.ids(prefix)
        state, wrong = self._state(ids)
        if wrong is not None:
            raise not_a_prefix(wrong, self.alphabet[ids[wrong]])
        return self._share[state].copy()

    def _distributions(self, ids: list[int]) -> Iterator[Float[ndarray, " v_plus_1"]]:
        state = 0
        for symbol in [*ids, -1]:
            yield self._share[state]
            state = int(self._arcs[state, symbol])
            if state < 0:
                return

    def count(self, length: int) -> int:
        """Number of words of `length` symbols: paths of the automaton, counted exactly."""
        require(length >= 0, "length", "be at least 0", length)
        paths = [1] + [0] * (len(self.states) - 1)
        for _ in range(length):
            after = [0] * len(self.states)
            for i, j in zip(*np.nonzero(self._arcs >= 0), strict=True):
                after[int(self._arcs[i, j])] += paths[i]
            paths = after
        return sum(n for n, ends in zip(paths, self._ends, strict=True) if ends)

    def sample(self, rng: np.random.Generator) -> list[int]:
        """A random word."""
        word: list[int] = []
        state = 0
        while (symbol := draw(self._share[state], rng)) < self.size:
            word.append(symbol)
            state = int(self._arcs[state, symbol])
        return word

    @cached_property
    def _visits(self) -> Float[ndarray, " states"]:
        m = len(self.states)
        move = np.zeros((m, m))
        for i, j in zip(*np.nonzero(self._arcs >= 0), strict=True):
            move[i, self._arcs[i, j]] += self._share[i, j]
        start = np.zeros(m)
        start[0] = 1
        dead = ~self._live
        move[dead] = 0
        return np.linalg.solve(np.eye(m) - move.T, start)

    @property
    def mean_length(self) -> Estimate:
        """Expected number of symbols of a word."""
        return Estimate(float(self._visits.sum() - 1), exact=True, method="linear system")

    @property
    def entropy(self) -> Estimate:
        """Entropy of a word in nats."""
        p = self._share
        each = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1)
        return Estimate(float(self._visits @ each), exact=True, method="linear system")


def _bracket(parts: list[str], number: int, line: str) -> tuple[float | None, list[str]]:
    """The weight in brackets at the end of a line, if any, and the rest."""
    if not (parts[-1].startswith("[") and parts[-1].endswith("]") and len(parts) > 1):
        return None, parts
    try:
        return float(parts[-1][1:-1]), parts[:-1]
    except ValueError:
        # Not a number: a bracket may be a symbol of the language.
        if len(parts) == 3:
            return None, parts
        raise InputError(
            f"line {number} must have a number in brackets; got {line.strip()!r}."
        ) from None
