"""Feeding tokens to a model and getting the logits of the next one, with or without a cache."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require

LogitsFunction = Callable[..., Tensor]
"""Token ids (b, t) to logits (b, V) of the next token, or (b, t, V) of the next at each place."""

Prompt = Tensor | Sequence[Any]
"""Token ids: one sequence, a batch of equal ones, or a list of unequal ones."""


@runtime_checkable
class DecodingCache(Protocol):
    """What a stateful model keeps; see `Cached`."""

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder the batch rows."""
        ...


@runtime_checkable
class Cached(Protocol):
    """A model that remembers: `models.Transformer` and every sequence model of `models`.

    `new_cache()` gives an empty memory; `model(tokens, cache=cache, padding=...)` reads only new
    tokens, returns their logits (b, t, V) and extends the memory.
    """

    def new_cache(self) -> DecodingCache:
        """An empty memory."""
        ...

    def __call__(self, tokens: Tensor, *, cache: Any, padding: Tensor | None = None) -> Tensor:
        """Logits at the new tokens."""
        ...


@final
class Reader:
    """A batch of sequences being read by one model.

    Args:
        logits_fn: A plain function of all tokens so far, or a model with a cache (`Cached`).
        prompts: One 1-D tensor of ids for each sequence.
        context: The most tokens to show at once; the window slides. Taken from the model's own
            `context` unless given.
    """

    def __init__(
        self,
        logits_fn: "LogitsFunction | Cached",
        prompts: Sequence[Int[Tensor, " _"]],
        context: int | None = None,
    ) -> None:
        own = getattr(logits_fn, "context", None)
        self.context = own if context is None and isinstance(own, int) else context
        require(
            self.context is None or self.context >= 1, "context", "be at least 1", self.context
        )
        self._call: Any = logits_fn
        self._rows = [p[-self.context :] if self.context else p for p in prompts]
        cached = hasattr(logits_fn, "new_cache") and (context is None or context == own)
        self._cache: Any = self._call.new_cache() if cached else None

    def start(self) -> Float[Tensor, "b V"]:
        """The logits after the prompts."""
        if self._cache is None:
            return self._whole()
        lengths = torch.tensor([len(row) for row in self._rows])
        require(bool((lengths > 0).all()), "prompt", "have at least one token", "an empty prompt")
        longest = int(lengths.max())
        # Padding stands before a prompt, so that all sequences end, and grow, together.
        padding = torch.arange(longest) < (longest - lengths)[:, None]
        tokens = torch.zeros(len(self._rows), longest, dtype=torch.int64)
        tokens[~padding] = torch.cat(self._rows)
        if bool(padding.any()):
            return self._call(tokens, cache=self._cache, padding=padding)[:, -1]
        return self._call(tokens, cache=self._cache)[:, -1]

    def step(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        """The logits after one more token in each sequence."""
        if self._cache is not None:
            return self._call(tokens[:, None], cache=self._cache)[:, -1]
        self._rows = [torch.cat([r, t]) for r, t in zip(self._rows, tokens[:, None], strict=True)]
        if self.context is not None:
            self._rows = [row[-self.context :] for row in self._rows]
        return self._whole()

    def select(self, rows: Int[Tensor, " b"]) -> None:
        """Keep, repeat or reorder the sequences, as a beam does."""
        if self._cache is not None:
            self._cache.select(rows)
        else:
            self._rows = [self._rows[i] for i in rows.tolist()]

    def _whole(self) -> Tensor:
        """All tokens at once: sequences of one length go together."""
        groups: dict[int, list[int]] = {}
        for i, row in enumerate(self._rows):
            groups.setdefault(len(row), []).append(i)
        out: list[Tensor] = [torch.empty(0)] * len(self._rows)
        for rows in groups.values():
            logits = self._call(torch.stack([self._rows[i] for i in rows]))
            logits = logits[:, -1] if logits.ndim == 3 else logits
            require(
                logits.ndim == 2 and len(logits) == len(rows),
                "logits_fn",
                f"return logits of shape ({len(rows)}, V) or ({len(rows)}, t, V)",
                tuple(logits.shape),
            )
            for i, row in zip(rows, logits, strict=True):
                out[i] = row
        return torch.stack(out)


def as_prompts(prompt: Prompt) -> tuple[list[Tensor], bool]:
    """The prompts as 1-D tensors, and whether there was just one, given bare."""
    if isinstance(prompt, Tensor):
        require(prompt.ndim in (1, 2), "prompt", "have one axis or two", tuple(prompt.shape))
        return ([prompt.long()], True) if prompt.ndim == 1 else (list(prompt.long()), False)
    if all(isinstance(p, int) for p in prompt):
        return [torch.tensor(list(prompt), dtype=torch.int64)], True
    rows = [torch.as_tensor(p, dtype=torch.int64) for p in prompt]
    for row in rows:
        require(row.ndim == 1, "prompt", "be a list of sequences of ids", tuple(row.shape))
    return rows, False
