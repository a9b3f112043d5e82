"""The key-value cache of decoding.

Shapes: l layers, b batch rows, h heads, n positions, m head size.
"""

from typing import TYPE_CHECKING, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require

if TYPE_CHECKING:
    from allometry.models.transformer.fast_decode import Step
    from allometry.models.transformer.fused_token import FusedStep

SPARE = 32
"""Entries allocated in advance for new tokens."""


@final
class Cache:
    """Key-value cache: keys and values of every layer for the tokens read so far.

    Made by `Transformer.new_cache` and filled by `model(tokens, cache=cache)`. When more than
    `context` tokens have been read the window slides: the oldest are dropped and the rest are
    read again at their new positions, which costs a full pass.

    Keys and values of all layers share one buffer that is longer than needed, so a new token is
    appended without a copy. Those of one head are contiguous, which is how they are read. A cache
    is valid for one set of weights: create a new one after a training step.

    Args:
        depth: Number of layers.
        stride: Number of tokens dropped at once when the window slides. With 1 every logit equals
            that of a full pass over the last `context` tokens. With more, the window after a slide
            is shorter, and a full pass is needed only once in `stride` tokens.

    Attributes:
        tokens: The cached tokens.
        padding: True at padding tokens; `None` if there never was any.
        step: The fast decoding step of the model, once one was used.
        without_step: Whether the model is known to have none.
    """

    def __init__(self, depth: int, stride: int = 1) -> None:
        self.depth = depth
        self.stride = stride
        self.tokens: Tensor | None = None
        self.padding: Tensor | None = None
        self.memory: Tensor | None = None
        self.memory_padding: Tensor | None = None
        self.cross: list[tuple[Tensor, Tensor] | None] = [None] * depth
        self.step: Step | FusedStep | None = None
        self.without_step = False
        self._buffer: Tensor | None = None  # l b h 2 n m
        # Views of the buffer for the fast step: all, keys as columns, values as rows.
        self._views: tuple[Tensor, Tensor, Tensor] | None = None
        self._context: int | None = None
        # Tensors in a gradient graph are separate: they must not be overwritten.
        self._graph: list[Tensor | None] = [None] * depth
        self._filled = [0] * depth
        # Length of the common prefix of two rows, which `select` need not copy.
        self._common: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of cached tokens, padding included."""
        return 0 if self.tokens is None else self.tokens.shape[1]

    def extend(
        self, layer: int, k: Float[Tensor, "b h n m"], v: Float[Tensor, "b h n m"]
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of `layer`, the new ones appended to the cached ones."""
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            both = torch.stack([k, v])
            start = self._filled[layer]
            if start:
                both = torch.cat([self._layer(layer)[:, :, :, :start], both], 3)
            self._graph[layer], self._filled[layer] = both, both.shape[3]
            return both[0], both[1]
        return self.write(layer, torch.stack([k, v]))

    def write(self, layer: int, both: Float[Tensor, "2 b h n m"]) -> tuple[Tensor, Tensor]:
        """`extend` with stacked keys and values, without gradients."""
        start = self._filled[layer]
        end = start + both.shape[3]
        if self._buffer is None or self._buffer.shape[4] < end:
            self._grow(both, end)
        assert self._buffer is not None
        entry, old = self._buffer[layer], self._graph[layer]
        if old is not None:
            entry[:, :, :, :start] = old.detach().permute(1, 2, 0, 3, 4)
            self._graph[layer] = None
        entry[:, :, :, start:end] = both.permute(1, 2, 0, 3, 4)
        self._filled[layer] = end
        return entry[:, :, 0, :end], entry[:, :, 1, :end]

    def append_one(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """For each layer the entry of one more token (b h, 2, m), which the caller must fill.

        Also all keys (b h, m, n) and all values (b h, n, m), including that token's.
        """
        _, start = self.reserve_one()
        assert self._views is not None
        entries, keys, values = self._views
        return (
            entries.select(3, start).unbind(0),
            keys.narrow(3, 0, start + 1).unbind(0),
            values.narrow(2, 0, start + 1).unbind(0),
        )

    def reserve_one(self) -> tuple[Float[Tensor, "l b h 2 n m"], int]:
        """The buffer, long enough for one more token, and the index where it must be written.

        The first dimension after the heads has keys, then values.
        """
        start = self._filled[0]
        if self._views is None or self._views[0].shape[3] <= start or self._graph[0] is not None:
            self._reserve(start + 1)
        assert self._buffer is not None
        self._filled = [start + 1] * self.depth
        return self._buffer, start

    def _reserve(self, end: int) -> None:
        """Make the buffer at least `end` long, move everything into it and renew the views."""
        for layer, old in enumerate(self._graph):
            if old is not None:
                self._filled[layer] = 0
                self._graph[layer] = None
                self.write(layer, old.detach())
        assert self._buffer is not None
        if self._buffer.shape[4] < end:
            self._grow(self._buffer[0].permute(2, 0, 1, 3, 4), end)
        self._buffer = self._buffer.contiguous()
        flat = self._buffer.flatten(1, 2)
        self._views = (flat, flat.select(2, 0).transpose(2, 3), flat.select(2, 1))

    def _layer(self, layer: int) -> Tensor:
        old = self._graph[layer]
        if old is not None:
            return old
        assert self._buffer is not None
        return self._buffer[layer].permute(2, 0, 1, 3, 4)

    def _grow(self, both: Tensor, end: int) -> None:
        _, b, h, _, m = both.shape
        # Small growth: widely spaced entries would share fewer sets of the CPU cache.
        size = end + max(SPARE, end // 8)
        size = size if self._context is None else max(end, min(size, self._context))
        longer = both.new_empty(self.depth, b, h, 2, size, m)
        if self._buffer is not None:
            longer[:, :, :, :, : self._buffer.shape[4]] = self._buffer
        self._buffer, self._views = longer, None

    def read(self, tokens: Tensor, padding: Tensor | None, context: int | None) -> int:
        """Append `tokens`; returns how many tokens before them have valid keys and values.

        Args:
            tokens: The new tokens.
            padding: True where they are padding.
            context: Largest number of cached tokens.
        """
        self._context = context
        if self.tokens is None:
            self.tokens, self.padding = tokens, padding
            return 0
        require(
            self.tokens.shape[0] == tokens.shape[0],
            "tokens",
            f"have the batch size of the cache ({self.tokens.shape[0]})",
            tokens.shape[0],
        )
        if padding is not None or self.padding is not None:
            old = self.tokens.new_zeros(self.tokens.shape[:2], dtype=torch.bool)
            new = tokens.new_zeros(tokens.shape[:2], dtype=torch.bool)
            old = old if self.padding is None else self.padding
            self.padding = torch.cat([old, new if padding is None else padding], 1)
        start = self.length
        self.tokens = torch.cat([self.tokens, tokens], 1)
        if context is None or self.length <= context:
            return start
        self._slide(start, context)
        return 0

    def _slide(self, start: int, context: int) -> None:
        assert self.tokens is not None
        if self.padding is not None:
            # Old padding moves to the front of its row, so that it is dropped first.
            order = (~self.padding[:, :start]).to(torch.uint8).argsort(dim=1, stable=True)
            rows = torch.arange(len(order), device=order.device)[:, None]
            self.tokens = torch.cat([self.tokens[rows, order], self.tokens[:, start:]], 1)
            old = self.padding[rows, order]
            self.padding = torch.cat([old, self.padding[:, start:]], 1)
        new = self.length - start
        keep = max(new, context - self.stride + 1)
        self.tokens = self.tokens[:, -keep:]
        self.padding = None if self.padding is None else self.padding[:, -keep:]
        self._filled = [0] * self.depth
        self._common = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep (or repeat) the batch rows given, as beam search does.

        Only the part behind the common prefix of two rows is copied.

        Args:
            rows: Indices of rows, in their new order.
        """

        def pick(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows]

        first, end = self._first_difference(rows), max(self._filled, default=0)
        if self._buffer is not None and first is None:
            self._buffer, self._views = self._buffer[:, rows], None
        elif self._buffer is not None and first is not None and first < end:
            self._buffer[:, :, :, :, first:end] = self._buffer[:, rows, :, :, first:end]
        self._graph = [None if x is None else x[:, rows] for x in self._graph]
        self.tokens, self.padding = pick(self.tokens), pick(self.padding)
        self.memory, self.memory_padding = pick(self.memory), pick(self.memory_padding)
        self.cross = [None if x is None else (x[0][rows], x[1][rows]) for x in self.cross]

    def _first_difference(self, rows: Tensor) -> int | None:
        """The first index at which a row changes under `select`; `None` if all must be copied."""
        if self.tokens is None:
            return None
        b = len(self.tokens)
        common = self._common
        if common is None:
            common = torch.zeros(b, b, dtype=torch.int64, device=rows.device)
        common.fill_diagonal_(self.length)
        first: int | None = None
        if len(rows) == b:
            first = int(common[torch.arange(b, device=rows.device), rows].min())
        self._common = common[rows][:, rows]
        return first
