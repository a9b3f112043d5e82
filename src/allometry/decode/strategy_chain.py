"""Strategies in a row, with what some of them remember from token to token."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry._core.errors import InputError
from allometry.decode.strategies import Strategy


@runtime_checkable
class Stateful(Protocol):
    """A strategy that remembers. It is pure: what it remembers is handed to it and handed back."""

    def start(self, prompts: Sequence[Tensor], V: int) -> Any:
        """What it remembers before the first token."""
        ...

    def apply(self, logits: Tensor, state: Any) -> Tensor:
        """The logits (b, V) as it leaves them."""
        ...

    def advance(self, state: Any, logits: Tensor, tokens: Tensor) -> Any:
        """What it remembers once `tokens` were drawn from what it made of `logits`."""
        ...


@runtime_checkable
class Ending(Stateful, Protocol):
    """A stateful strategy that says when a sequence is complete, as a grammar does."""

    def finished(self, state: Any) -> Tensor:
        """Which sequences (b,) can have no further token."""
        ...

    def complete(self, state: Any) -> Tensor:
        """Which sequences (b,) may end here."""
        ...


@final
class Passed(NamedTuple):
    """Logits after every step of a chain; the first are the model's own."""

    logits: tuple[Tensor, ...]

    @property
    def last(self) -> Tensor:
        """What is drawn from."""
        return self.logits[-1]


@final
class Chain:
    """Several strategies as one, from left to right: each sees what the one before left.

    The usual order is penalties, temperature, then truncations; truncations before a temperature
    are measured on the model's own probabilities.

    Args:
        steps: Functions of logits, or stateful strategies.
    """

    def __init__(self, steps: "Sequence[Strategy | Stateful]") -> None:
        self.steps = tuple(steps)
        # Asked once: a structural check costs as much as a small matrix product.
        self._memory = tuple(s if isinstance(s, Stateful) else None for s in self.steps)
        self.ends = any(isinstance(step, Ending) for step in self.steps)
        """Whether some step says when a sequence is complete."""

    def __call__(self, logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        """The logits after every step, if none of them remembers."""
        for step in self.steps:
            if isinstance(step, Stateful):
                name = type(step).__name__
                raise InputError(f"chain must be started to use {name}, which remembers.")
            logits = step(logits)
        return logits

    def start(self, prompts: Sequence[Tensor], V: int) -> tuple[Any, ...]:
        """What the steps remember before the first token."""
        return tuple(None if m is None else m.start(prompts, V) for m in self._memory)

    def apply(self, logits: Float[Tensor, "b V"], state: tuple[Any, ...]) -> Passed:
        """The logits after every step."""
        passed = [logits]
        for step, memory, own in zip(self.steps, self._memory, state, strict=True):
            given = passed[-1]
            passed.append(step(given) if memory is None else memory.apply(given, own))  # type: ignore[operator]
        return Passed(tuple(passed))

    def advance(
        self, state: tuple[Any, ...], passed: Passed, tokens: Int[Tensor, " b"]
    ) -> tuple[Any, ...]:
        """What the steps remember once `tokens` were drawn."""
        return tuple(
            None if m is None else m.advance(own, seen, tokens)
            for m, own, seen in zip(self._memory, state, passed.logits[:-1], strict=True)
        )

    def finished(self, state: tuple[Any, ...], b: int) -> Bool[Tensor, " b"]:
        """Which sequences can have no further token."""
        return self._any("finished", state, b)

    def complete(self, state: tuple[Any, ...], b: int) -> Bool[Tensor, " b"]:
        """Which sequences may end here."""
        return self._any("complete", state, b)

    def _any(self, question: str, state: tuple[Any, ...], b: int) -> Tensor:
        out = torch.zeros(b, dtype=torch.bool)
        for step, own in zip(self.steps, state, strict=True):
            if isinstance(step, Ending):
                out |= getattr(step, question)(own)
        return out


def chain(strategies: "Strategy | Stateful | Sequence[Strategy | Stateful]") -> Chain:
    """One strategy, or several in a row, as a `Chain`."""
    if isinstance(strategies, Chain):
        return strategies
    if isinstance(strategies, Sequence):
        return Chain(strategies)
    return Chain([strategies])
