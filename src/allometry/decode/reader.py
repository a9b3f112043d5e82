"""Feed tokens to a model and get next-token logits, with or without a cache."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry._core.errors import require

LogitsFunction = Callable[..., Tensor]
"""Maps token ids (b, t) to next-token logits (b, V), or (b, t, V) at each position."""

Prompt = Tensor | Sequence[Any]
"""Token ids: one sequence, a batch of equal lengths, or a list of different lengths."""


@runtime_checkable
class DecodingCache(Protocol):
    """The state of a model with a cache; see `Cached`."""

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder the batch rows."""
        ...


@runtime_checkable
class Cached(Protocol):
    """A model with a cache: `models.Transformer` and every sequence model of `models`.

    `new_cache()` returns an empty cache; `model(tokens, cache=cache, padding=...)` reads only new
    tokens, returns their logits (b, t, V) and extends the cache.
    """

    def new_cache(self) -> DecodingCache:
        """An empty cache."""
        ...

    def __call__(self, tokens: Tensor, *, cache: Any, padding: Tensor | None = None) -> Tensor:
        """Logits at the new tokens."""
        ...


@final
class Reader:
    """A batch of sequences that a model reads token by token.

    Args:
        logits_fn: A function of all tokens so far, or a model with a cache (`Cached`).
        prompts: One 1-D tensor of token ids for each sequence.
        context: Length of the sliding context window. Default: the model's `context`.
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
        # Tokens are drawn on CPU; a model on another device reads them there.
        self._device = _device_of(logits_fn)
        self._rows = [p[-self.context :] if self.context else p for p in prompts]
        cached = hasattr(logits_fn, "new_cache") and (context is None or context == own)
        self._cache: Any = self._call.new_cache() if cached else None

    def _read(self, tokens: Tensor, **more: Tensor) -> Tensor:
        """The model's logits; `more` are further tensors."""
        cache = {} if self._cache is None else {"cache": self._cache}
        if self._device is None:
            return self._call(tokens, **cache, **more)
        moved = {name: tensor.to(self._device) for name, tensor in more.items()}
        return self._call(tokens.to(self._device), **cache, **moved)

    def start(self) -> Float[Tensor, "b V"]:
        """The logits after the prompts."""
        if self._cache is None:
            return self._read_all()
        lengths = torch.tensor([len(row) for row in self._rows])
        require(bool((lengths > 0).all()), "prompt", "have at least one token", "an empty prompt")
        longest = int(lengths.max())
        # Padding is on the left, so that all sequences end at the same position.
        padding = torch.arange(longest) < (longest - lengths)[:, None]
        tokens = torch.zeros(len(self._rows), longest, dtype=torch.int64)
        tokens[~padding] = torch.cat(self._rows)
        if bool(padding.any()):
            return self._host(self._read(tokens, padding=padding)[:, -1])
        return self._host(self._read(tokens)[:, -1])

    def step(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        """The logits after one more token in each sequence."""
        if self._cache is not None:
            return self._host(self._read(tokens[:, None])[:, -1])
        self._rows = [torch.cat([r, t]) for r, t in zip(self._rows, tokens[:, None], strict=True)]
        if self.context is not None:
            self._rows = [row[-self.context :] for row in self._rows]
        return self._read_all()

    def select(self, rows: Int[Tensor, " b"]) -> None:
        """Keep, repeat or reorder the sequences, as a beam does."""
        if self._cache is not None:
            self._cache.select(rows if self._device is None else rows.to(self._device))
        else:
            self._rows = [self._rows[i] for i in rows.tolist()]

    def _host(self, logits: Tensor) -> Tensor:
        """Logits where tokens are drawn."""
        return logits if self._device is None else logits.cpu()

    def _read_all(self) -> Tensor:
        """The logits from all tokens; sequences of equal length form a batch."""
        groups: dict[int, list[int]] = {}
        for i, row in enumerate(self._rows):
            groups.setdefault(len(row), []).append(i)
        out: list[Tensor] = [torch.empty(0)] * len(self._rows)
        for rows in groups.values():
            logits = self._read(torch.stack([self._rows[i] for i in rows]))
            logits = self._host(logits[:, -1] if logits.ndim == 3 else logits)
            require(
                logits.ndim == 2 and len(logits) == len(rows),
                "logits_fn",
                f"return logits of shape ({len(rows)}, V) or ({len(rows)}, t, V)",
                tuple(logits.shape),
            )
            for i, row in zip(rows, logits, strict=True):
                out[i] = row
        return torch.stack(out)


def _device_of(model: object) -> torch.device | None:
    """The device of a module that is not on CPU; `None` for everything else."""
    if not isinstance(model, nn.Module):
        return None
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return None if device.type == "cpu" else device


def as_prompts(prompt: Prompt) -> tuple[list[Tensor], bool]:
    """The prompts as 1-D tensors, and whether a single sequence was given."""
    if isinstance(prompt, Tensor):
        require(prompt.ndim in (1, 2), "prompt", "have one axis or two", tuple(prompt.shape))
        return ([prompt.long()], True) if prompt.ndim == 1 else (list(prompt.long()), False)
    if all(isinstance(p, int) for p in prompt):
        return [torch.tensor(list(prompt), dtype=torch.int64)], True
    rows = [torch.as_tensor(p, dtype=torch.int64) for p in prompt]
    for row in rows:
        require(row.ndim == 1, "prompt", "be a list of sequences of ids", tuple(row.shape))
    return rows, False
