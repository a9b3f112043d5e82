"""Recurrent networks: RNN, LSTM, GRU.

Shapes: b batch, n positions, d width, v vocabulary.
"""

from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from allometry._core.errors import require
from allometry.models.convolution_cache import initialise

_CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {
    "rnn": nn.RNN,
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}


@final
class State:
    """State of a recurrent network: a tuple of tensors (depth, b, d), or `None` at the start."""

    def __init__(self) -> None:
        self.hidden: tuple[Tensor, ...] | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep, repeat or reorder the batch rows."""
        if self.hidden is not None:
            self.hidden = tuple(h[:, rows] for h in self.hidden)


@final
class Recurrent(nn.Module):
    r"""A recurrent language model: table, `depth` layers of one cell, readout.

    `"rnn"` is Elman's $h_t = \tanh(W x_t + U h_{t-1} + b)$; `"lstm"` and `"gru"` gate it. The
    state carries all past tokens, so there is no `context`.

    Args:
        vocabulary: v.
        width: d, of the embedding and of every layer.
        depth: Number of layers.
        cell: `"rnn"`, `"lstm"` or `"gru"`.
        rng: Generator of the initial weights; default: seed 0.

    References: `elman1990`; `hochreiter1997`; `cho2014`.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int = 1,
        cell: str = "lstm",
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(cell in _CELLS, "Recurrent.cell", "be rnn, lstm or gru", cell)
        require(min(vocabulary, width, depth) >= 1, "Recurrent sizes", "be at least 1", width)
        self.vocabulary, self.width, self.depth, self.cell = vocabulary, width, depth, cell
        self.table = nn.Embedding(vocabulary, width)
        self.layers = _CELLS[cell](width, width, depth, batch_first=True)
        self.readout = nn.Linear(width, vocabulary)
        initialise(self, rng)
        if cell == "lstm" and self.readout.weight.device.type != "meta":
            with torch.no_grad():
                for name, bias in self.layers.named_parameters():
                    if name.startswith("bias_ih"):
                        # Gates are input, forget, cell, output; forget bias 1 keeps the state.
                        bias[width : 2 * width] = 1.0

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        cache: State | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n v"]:
        """Logits of the token after each.

        Args:
            tokens: Token ids.
            cache: From `new_cache`; `tokens` are then only those not yet read.
            padding: True where `tokens` are padding, on either side. The cell skips them; a row of
                padding only leaves the state empty. Only for the first tokens of a cache.
        """
        x = self.table(tokens)
        if padding is not None:
            return self._padded(x, padding, cache)
        out, hidden = self.layers(x, self._packed(cache))
        if cache is not None:
            cache.hidden = hidden if isinstance(hidden, tuple) else (hidden,)
        return self.readout(out)

    def _packed(self, cache: State | None) -> Tensor | tuple[Tensor, ...] | None:
        if cache is None or cache.hidden is None:
            return None
        return cache.hidden if self.cell == "lstm" else cache.hidden[0]

    def _padded(self, x: Tensor, padding: Tensor, cache: State | None) -> Tensor:
        require(
            cache is None or cache.hidden is None, "padding", "come with the first tokens", "later"
        )
        n, lengths = x.shape[1], (~padding).sum(1)
        # Padding moves to the end of its row for the cell, and back afterwards.
        place = padding.long().argsort(dim=1, stable=True)
        moved = x.gather(1, place[:, :, None].expand_as(x))
        # A row of padding only gets one step, which is masked afterwards.
        steps = lengths.clamp(min=1).cpu()
        packed = pack_padded_sequence(moved, steps, batch_first=True, enforce_sorted=False)
        out, hidden = self.layers(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=n)
        read = (lengths > 0).to(out.dtype)[:, None]
        if cache is not None:
            kept = hidden if isinstance(hidden, tuple) else (hidden,)
            cache.hidden = tuple(h * read for h in kept)
        back = place.argsort(1)[:, :, None].expand_as(out)
        return self.readout((out * read[:, None]).gather(1, back))

    def new_cache(self) -> State:
        """An empty cache for `model(tokens, cache=cache)`."""
        return State()

    def embedding_parameters(self) -> Iterator[Tensor]:
        """Parameters of input and output: table and readout."""
        yield self.table.weight
        yield self.readout.weight
        yield self.readout.bias
