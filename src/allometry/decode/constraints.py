"""Constraints on sequences: which tokens may follow, and when a sequence is complete."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry._core.errors import require


@runtime_checkable
class Constraint(Protocol):
    """A set of sequences, read from left to right."""

    def start(self) -> Any:
        """The state before the first token."""
        ...

    def allowed(self, state: Any) -> Bool[Tensor, " V"]:
        """Tokens that may follow such that the sequence can still be completed."""
        ...

    def advance(self, state: Any, token: int) -> Any:
        """The state after an allowed token."""
        ...

    def complete(self, state: Any) -> bool:
        """Whether the sequence may end here."""
        ...


@final
class Automaton:
    """A deterministic finite automaton over tokens; states without accepting paths are removed.

    Args:
        moves: For each state, the next state of each token.
        start: The first state.
        accepting: States in which a sequence is complete.
        V: The number of tokens.
    """

    def __init__(
        self,
        moves: Mapping[Any, Mapping[int, Any]],
        start: Hashable,
        accepting: Sequence[Any],
        V: int,
    ) -> None:
        self._start = start
        self._accepting = set(accepting)
        # A state is alive if an accepting state can be reached from it.
        alive, size = set(self._accepting), -1
        while size != len(alive):
            size = len(alive)
            alive |= {s for s, go in moves.items() if any(t in alive for t in go.values())}
        require(start in alive, "Automaton.start", "lead to an accepting state", start)
        self._moves = {
            s: {k: t for k, t in go.items() if t in alive} for s, go in moves.items() if s in alive
        }
        tokens = [k for go in self._moves.values() for k in go]
        require(all(0 <= k < V for k in tokens), "Automaton.moves", f"be over 0..{V - 1}", tokens)
        self._masks = {s: torch.zeros(V, dtype=torch.bool) for s in alive}
        for s, go in self._moves.items():
            self._masks[s][list(go)] = True

    def start(self) -> Any:
        """The first state."""
        return self._start

    def allowed(self, state: Any) -> Bool[Tensor, " V"]:
        """Tokens after which an accepting state can still be reached."""
        return self._masks[state]

    def advance(self, state: Any, token: int) -> Any:
        """The next state after `token`."""
        return self._moves[state][token]

    def complete(self, state: Any) -> bool:
        """Whether `state` is accepting."""
        return state in self._accepting


@final
class Constrained:
    """A strategy that masks forbidden tokens.

    A sequence ends when no token may follow. If the number of tokens runs out, it is truncated to
    where it was last complete. Masking does not sample from the model given the constraint; use
    `posterior` for that.

    Args:
        constraint: The constraint.
        end: End-of-sequence token of the model; allowed exactly where a sequence is complete.
    """

    def __init__(self, constraint: Constraint, end: int | None = None) -> None:
        self.constraint = constraint
        self.end = end

    def start(self, prompts: Sequence[Tensor], V: int) -> list[Any]:
        """The constraint's state of every sequence; the prompt is not part of it."""
        return [self.constraint.start() for _ in prompts]

    def masks(self, state: Sequence[Any]) -> Bool[Tensor, "b V"]:
        """Allowed tokens of every sequence."""
        masks = torch.stack([self.constraint.allowed(s) for s in state])
        if self.end is not None:
            masks = masks.clone()
            masks[:, self.end] = torch.tensor([self.constraint.complete(s) for s in state])
        return masks

    def apply(self, logits: Float[Tensor, "b V"], state: list[Any]) -> Float[Tensor, "b V"]:
        """The logits of allowed tokens."""
        ended = torch.tensor([s is _ENDED for s in state])
        out = torch.zeros_like(logits)
        going = (~ended).nonzero()[:, 0]
        if len(going) == 0:
            return out
        masks = self.masks([s for s in state if s is not _ENDED])
        blocked = ~masks & masks.any(-1, keepdim=True)
        out[going] = logits[going].masked_fill(blocked, -torch.inf)
        return out

    def advance(
        self, state: list[Any], logits: Float[Tensor, "b V"], tokens: Int[Tensor, " b"]
    ) -> list[Any]:
        """The states after the sampled tokens."""
        return [
            _ENDED
            if token < 0 or token == self.end or s is _ENDED
            else self.constraint.advance(s, token)
            for s, token in zip(state, tokens.tolist(), strict=True)
        ]

    def finished(self, state: list[Any]) -> Bool[Tensor, " b"]:
        """Sequences that no token may follow."""
        return torch.tensor(
            [s is _ENDED or not bool(self.constraint.allowed(s).any()) for s in state]
        )

    def complete(self, state: list[Any]) -> Bool[Tensor, " b"]:
        """Sequences that may end here."""
        return torch.tensor([s is _ENDED or self.constraint.complete(s) for s in state])


_ENDED = object()


def constrained(constraint: Constraint, end: int | None = None) -> Constrained:
    """The strategy `Constrained`."""
    return Constrained(constraint, end)
