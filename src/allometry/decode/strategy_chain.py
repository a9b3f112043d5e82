"""Chains of strategies, some of which have a state."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from allometry._core.errors import InputError
from allometry.decode.strategies import Strategy


@runtime_checkable
class Stateful(Protocol):
    """A strategy with a state. It is pure: the state is passed in and returned."""

    def start(self, prompts: Sequence[Tensor], V: int) -> Any:
        """The state before the first token."""
        ...

    def apply(self, logits: Tensor, state: Any) -> Tensor:
        """The changed logits (b, V)."""
        ...

    def advance(self, state: Any, logits: Tensor, tokens: Tensor) -> Any:
        """The state after `tokens` were sampled; `logits` are the strategy's input."""
        ...


@runtime_checkable
class Ending(Stateful, Protocol):
    """A stateful strategy that determines when a sequence is complete, such as a grammar."""

    def finished(self, state: Any) -> Tensor:
        """Mask (b,) of sequences that no token may follow."""
        ...

    def complete(self, state: Any) -> Tensor:
        """Mask (b,) of sequences that may end here."""
        ...


@final
class Passed(NamedTuple):
    """Logits after every step of a chain; the first are the model's."""

    logits: tuple[Tensor, ...]

    @property
    def last(self) -> Tensor:
        """The logits to sample from."""
        return self.logits[-1]


@final
class Chain:
    """Several strategies applied from left to right.

    The usual order is penalties, temperature, truncations. Truncations before a temperature use
    the model's probabilities.

    Args:
        steps: Functions of logits, or stateful strategies.
    """

    def __init__(self, steps: "Sequence[Strategy | Stateful]") -> None:
        self.steps = tuple(steps)
        # Checked once: isinstance of a protocol costs as much as a small matrix product.
        self._stateful = tuple(s if isinstance(s, Stateful) else None for s in self.steps)
        self.ends = any(isinstance(step, Ending) for step in self.steps)
        """Whether a step determines when a sequence is complete."""

    def __call__(self, logits: Float[Tensor, "*b V"]) -> Float[Tensor, "*b V"]:
        """The logits after all steps, if none of them has a state."""
        for step in self.steps:
            if isinstance(step, Stateful):
                name = type(step).__name__
                raise InputError(f"chain must be started to use {name}, which has a state.")
            logits = step(logits)
        return logits

    def start(self, prompts: Sequence[Tensor], V: int) -> tuple[Any, ...]:
        """The states of the steps before the first token."""
        return tuple(None if s is None else s.start(prompts, V) for s in self._stateful)

    def apply(self, logits: Float[Tensor, "b V"], state: tuple[Any, ...]) -> Passed:
        """The logits after every step."""
        passed = [logits]
        for step, stateful, own in zip(self.steps, self._stateful, state, strict=True):
            given = passed[-1]
            passed.append(step(given) if stateful is None else stateful.apply(given, own))  # type: ignore[operator]
        return Passed(tuple(passed))

    def advance(
        self, state: tuple[Any, ...], passed: Passed, tokens: Int[Tensor, " b"]
    ) -> tuple[Any, ...]:
        """The states of the steps after `tokens` were sampled."""
        return tuple(
            None if s is None else s.advance(own, given, tokens)
            for s, own, given in zip(self._stateful, state, passed.logits[:-1], strict=True)
        )

    def finished(self, state: tuple[Any, ...], b: int) -> Bool[Tensor, " b"]:
        """Mask of sequences that no token may follow."""
        return self._any("finished", state, b)

    def complete(self, state: tuple[Any, ...], b: int) -> Bool[Tensor, " b"]:
        """Mask of sequences that may end here."""
        return self._any("complete", state, b)

    def _any(self, method: str, state: tuple[Any, ...], b: int) -> Tensor:
        out = torch.zeros(b, dtype=torch.bool)
        for step, own in zip(self.steps, state, strict=True):
            if isinstance(step, Ending):
                out |= getattr(step, method)(own)
        return out


def chain(strategies: "Strategy | Stateful | Sequence[Strategy | Stateful]") -> Chain:
    """One or several strategies as a `Chain`."""
    if isinstance(strategies, Chain):
        return strategies
    if isinstance(strategies, Sequence):
        return Chain(strategies)
    return Chain([strategies])
