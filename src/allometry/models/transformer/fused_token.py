"""One more token through a decoder with a cache, in one call; see `fused_decoder`.

Shapes: b batch, V vocabulary.
"""

import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.native import load_kernels
from allometry.models.transformer.cache import Cache
from allometry.models.transformer.fused_decoder import FusedDecoder, addresses, fused
from allometry.models.transformer.positions import indices

if TYPE_CHECKING:
    from allometry.models.transformer.model import Transformer

WIDEST_STEP = 256
"""Largest width: beyond, a step only waits for weights from memory, on one thread."""


@functools.cache
def _kernels() -> tuple[Any, Any] | None:
    """`decoder_lay` and `decoder_token`; `None` if they can't be built or loaded."""
    source = Path(__file__).parents[1] / "kernels" / "decoder.cpp"
    names = ("decoder_lay", "decoder_token")
    library = load_kernels(source, symbols=names)
    return None if library is None else (library.decoder_lay, library.decoder_token)


@final
class FusedStep:
    """One decoding step for every row of a batch.

    Args:
        decoder: Of the model, whose weights are copied. Later changes of them are ignored.
    """

    def __init__(self, decoder: FusedDecoder) -> None:
        kernels = _kernels()
        assert kernels is not None
        lay, self.kernel = kernels
        self.decoder, model = decoder, decoder.model
        tables = model.positions not in (None, "rotary")
        self.context = model.context or 1
        self.places = self.context if tables else 1
        given, size = addresses(decoder.parameters), ctypes.c_int64(0)
        arguments = (self._integers(1), ctypes.c_void_p(given.ctypes.data), ctypes.byref(size))
        lay(*arguments, None)
        # New memory is zero, and padding must be.
        self.weights = torch.zeros(size.value, dtype=torch.float32)
        lay(*arguments, ctypes.c_void_p(self.weights.data_ptr()))
        self.turns = decoder.rotations(self.context)
        self.integers: dict[int, Any] = {}

    def _integers(self, rows: int) -> Any:
        sizes = self.decoder.sizes.values()
        integers = (1, rows, self.places, *sizes, 1, self.decoder.activation)
        return (ctypes.c_int64 * len(integers))(*integers)

    def __call__(
        self, tokens: Int[Tensor, "b 1"], cache: Cache, start: int
    ) -> Float[Tensor, "b 1 V"]:
        """Logits after `tokens`, which `cache` has read at index `start`."""
        rows, tokens, padding = len(tokens), tokens.long().contiguous(), cache.padding
        if padding is None:
            places = (ctypes.c_int64 * rows)(*[start] * rows)
            place = ctypes.addressof(places)
        else:
            places = indices(1, start, padding, tokens.device).contiguous()
            padding, place = padding.contiguous(), places.data_ptr()
        if rows not in self.integers:
            self.integers[rows] = self._integers(rows)
        buffer, filled = cache.reserve_one()
        logits = torch.empty(rows, self.decoder.sizes["outputs"], dtype=torch.float32)
        turns, void = self.turns, ctypes.c_void_p
        code = self.kernel(
            self.integers[rows],
            self.decoder.numbers,
            void(self.weights.data_ptr()),
            void(tokens.data_ptr()),
            void(place),
            void(None if turns is None else turns.data_ptr()),
            void(None if padding is None else padding.data_ptr()),
            (ctypes.c_int64 * 3)(buffer.shape[4], filled, self.context),
            void(buffer.data_ptr()),
            void(logits.data_ptr()),
        )
        if code:
            raise IndexError("index out of range in self")  # as torch's embedding
        return logits[:, None]


def fused_step(model: "Transformer") -> FusedStep | None:
    """The step of `model`; `None` if the fused pass does not apply."""
    decoder = fused(model) if model.width <= WIDEST_STEP else None
    return None if decoder is None or _kernels() is None else FusedStep(decoder)
