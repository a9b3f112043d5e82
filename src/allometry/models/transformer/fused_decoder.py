"""Losses of a decoder and their gradients on CPU, a sequence at a time through all layers.

Torch's operations are called one after another over the whole batch. For models of up to some
hundred units a layer these calls cost more than the arithmetic. Here a sequence goes forward and
backward through all layers while it is in the CPU caches. `decoder.cpp` has the arithmetic. Where
it does not apply (other devices, precisions or variants, no compiler) the caller uses torch.

Shapes: M models, b batch, n positions, P parameters of each model.
"""

import contextlib
import contextvars
import ctypes
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.native import load_kernels
from allometry.models.transformer.fused_attention import LONGEST, WIDEST
from allometry.models.transformer.plain_blocks import plain_block

if TYPE_CHECKING:
    from allometry.models.transformer.block import Block
    from allometry.models.transformer.model import Transformer

WIDEST_MODEL = 512
"""Largest width that was measured: 1.6 times as fast as torch's products there."""

SINGLE_THREAD = 1 << 22
"""Multiplications of a pass below which a second thread does not pay."""

ACTIVATIONS = {F.gelu: 0, F.relu: 1, F.silu: 2}
"""Supported activations, with their numbers in `decoder.h`."""

_known_passes: contextvars.ContextVar["dict[int, FusedDecoder | None] | None"] = (
    contextvars.ContextVar("passes of models inside fused_decoder", default=None)
)


@contextlib.contextmanager
def fused_decoder() -> Iterator[None]:
    """Use the fused pass for next-token losses inside this context wherever it applies.

    It is opt-in because building it pays only for trainings, and because gradients of its
    gradients do not exist. Modules of a model must not change inside; weights may.
    """
    token = _known_passes.set({})
    try:
        yield
    finally:
        _known_passes.reset(token)


@functools.cache
def _kernel() -> Any:
    """The kernel; `None` if it can't be built or loaded."""
    source = Path(__file__).parents[1] / "kernels" / "decoder.cpp"
    library = load_kernels(source, symbols=("decoder_losses",))
    return None if library is None else library.decoder_losses


@final
class FusedDecoder:
    """The fused pass of models of one architecture.

    Args:
        model: Any of them; see `fused`.
    """

    def __init__(self, model: "Transformer") -> None:
        block = cast("Block", model.blocks[0])
        attention, feed_forward = block.attention, block.feed_forward
        assert attention is not None
        assert feed_forward is not None
        assert isinstance(block.attention_norm, nn.LayerNorm)
        assert isinstance(model.final_norm, nn.LayerNorm)
        assert model.table is not None
        self.model, self.parameters = model, _parameters(model)
        readout = model.table if model.tied else model.readout
        assert readout is not None
        self.sizes = {
            "width": model.width,
            "heads": attention.heads,
            "size": attention.size,
            "hidden": len(cast("Tensor", feed_forward.inner)),
            "depth": model.depth,
            "outputs": len(readout),
            "tokens": len(model.table),
        }
        self.activation = ACTIVATIONS[feed_forward.activation]
        eps = (block.attention_norm.eps, model.final_norm.eps)
        self.numbers = (ctypes.c_float * 4)(attention.scale, *eps, model.readout_scale)
        sizes = self.sizes
        per_block = 4 * sizes["heads"] * sizes["size"] + 2 * sizes["hidden"]
        self.products = model.width * (model.depth * per_block + sizes["outputs"])
        """Multiplications for one token."""

    def __call__(
        self,
        tokens: Int[Tensor, "M b _n"],
        following: Int[Tensor, "M b n"],
        given: UInt64[np.ndarray, "M count"] | UInt64[np.ndarray, " count"],
        wanted: UInt64[np.ndarray, "M count"] | UInt64[np.ndarray, " count"] | None = None,
    ) -> Float[Tensor, "M b n"]:
        """The losses; gradients of the mean of each model are added to `wanted`.

        Args:
            tokens: Read tokens, at least as many as the following ones.
            following: The next tokens; rows are as far apart as those of `tokens`.
            given: Addresses of the parameters of each model, 0 for those that do not exist.
            wanted: The same for their gradients.
        """
        M, b, n = following.shape
        work = M * b * n * self.products
        threads = torch.get_num_threads() if work >= SINGLE_THREAD else 1
        integers = (M, b, n, *self.sizes.values(), threads, self.activation)
        losses = torch.empty(M, b, n)
        turns = self.rotations(n)
        code = _kernel()(
            (ctypes.c_int64 * len(integers))(*integers),
            self.numbers,
            ctypes.c_void_p(tokens.data_ptr()),
            ctypes.c_void_p(following.data_ptr()),
            ctypes.c_int64(tokens.stride(1)),
            ctypes.c_void_p(None if turns is None else turns.data_ptr()),
            ctypes.c_void_p(given.ctypes.data),
            ctypes.c_void_p(None if wanted is None else wanted.ctypes.data),
            ctypes.c_void_p(losses.data_ptr()),
        )
        if code:
            raise IndexError("index out of range in self")  # as torch's embedding
        return losses

    def rotations(self, n: int) -> Tensor | None:
        """Cosines and sines of the first n positions; `None` without rotary ones."""
        model = self.model
        if model.positions != "rotary":
            return None
        assert model.position_buffer is not None
        return model.position_buffer[:, :n].contiguous()

    def fits(self, n: int) -> bool:
        """Whether it supports windows of n tokens."""
        return n <= min(LONGEST, self.model.context or LONGEST)


def _parameters(model: "Transformer") -> list[Tensor | None]:
    """The parameters in the order of the kernel; shared ones are listed repeatedly."""
    final = cast("nn.LayerNorm", model.final_norm)
    added = model.position_buffer if model.position_table is None else model.position_table
    places = None if model.positions == "rotary" else added
    found = [model.table, places, model.table if model.tied else model.readout]
    found += [model.readout_bias, final.weight, final.bias]
    for layer in range(model.depth):
        block = cast("Block", model.blocks[layer % len(model.blocks)])
        a, f = block.attention, block.feed_forward
        first, second = block.attention_norm, block.feed_forward_norm
        assert a is not None
        assert f is not None
        assert isinstance(first, nn.LayerNorm)
        assert isinstance(second, nn.LayerNorm)
        found += [first.weight, first.bias, a.query, a.key, a.value]
        found += [a.query_bias, a.key_bias, a.value_bias, a.output, a.output_bias]
        found += [second.weight, second.bias]
        found += cast("list[Tensor | None]", [f.inner, f.inner_bias, f.outer, f.outer_bias])
    return found


def fused(model: nn.Module) -> FusedDecoder | None:
    """The fused pass of `model` (its class of architectures); `None` if it does not apply.

    It applies to decoders of token ids with softmax attention, LayerNorm before each part and
    plain feed-forward layers, in float32 on CPU, without forward hooks on any module.
    """
    from allometry.models.transformer.model import Transformer

    if type(model) is not Transformer or not _supported(model):
        return None
    return FusedDecoder(model) if _kernel() is not None else None


def _supported(model: "Transformer") -> bool:
    """Whether the architecture and the tensors of a model are those of the kernel."""
    if model.kind != "decoder" or model.table is None or model.width > WIDEST_MODEL:
        return False
    if model.input is not None or model.columns or (model.readout is None and not model.tied):
        return False
    blocks = [cast("Block", block) for block in model.blocks]
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    if hooked or not isinstance(model.final_norm, nn.LayerNorm):
        return False
    if not all(plain_block(block) and _known(block) for block in blocks):
        return False
    alike = {_architecture(block) for block in blocks}
    tensors = [t for t in _parameters(model) if t is not None]
    float32 = all(
        t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors
    )
    return len(alike) == 1 and float32


def _architecture(block: "Block") -> Any:
    """What all blocks must have in common."""
    attention, feed_forward = block.attention, block.feed_forward
    assert attention is not None
    assert feed_forward is not None
    assert isinstance(block.attention_norm, nn.LayerNorm)
    numbers = (attention.heads, attention.size, attention.scale, block.attention_norm.eps)
    return numbers, feed_forward.activation, feed_forward.inner.shape


def _known(block: "Block") -> bool:
    """Whether the activation, the size of the heads and the norms are supported."""
    attention, feed_forward = block.attention, block.feed_forward
    assert attention is not None
    assert feed_forward is not None
    norms = (block.attention_norm, block.feed_forward_norm)
    one_eps = len({norm.eps for norm in norms if isinstance(norm, nn.LayerNorm)}) == 1
    affine = all(norm is not None and norm.weight is not None for norm in norms)
    known = feed_forward.activation in ACTIVATIONS
    return attention.size <= WIDEST and known and one_eps and affine


def addresses(tensors: Sequence[Tensor | None]) -> UInt64[np.ndarray, " count"]:
    """Addresses of tensors, 0 for `None`."""
    found = [0 if t is None else t.data_ptr() for t in tensors]
    return np.array(found, dtype=np.uint64)


@final
class _MeanLoss(torch.autograd.Function):
    """The mean loss; its gradient is computed with it."""

    @staticmethod
    def forward(ctx: Any, pass_: FusedDecoder, tokens: Tensor, *unique: Tensor) -> Tensor:
        gradients = {id(p): torch.zeros_like(p) for p in unique}
        wanted = [None if p is None else gradients.get(id(p)) for p in pass_.parameters]
        whole = tokens.unsqueeze(0).contiguous()
        given = addresses(pass_.parameters)
        losses = pass_(whole, whole[:, :, 1:], given, addresses(wanted))
        ctx.save_for_backward(*gradients.values())
        return losses.mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, *(slope * gradient for gradient in ctx.saved_tensors)


def mean_loss(model: nn.Module, tokens: Int[Tensor, "b n_plus_1"]) -> Float[Tensor, ""] | None:
    """Mean loss of the next tokens with its gradient; `None` if the fused pass does not apply.

    It applies inside `fused_decoder`, to float32 outside of autocast.
    """
    known = _known_passes.get()
    if known is None or torch.is_autocast_enabled("cpu") or tokens.dtype != torch.int64:
        return None
    if id(model) not in known:
        known[id(model)] = fused(model)
    pass_ = known[id(model)]
    if pass_ is None or not pass_.fits(tokens.shape[1] - 1):
        return None
    trained = {id(p): p for p in model.parameters() if p.requires_grad}
    return cast("Tensor", _MeanLoss.apply(pass_, tokens, *trained.values()))


@torch.no_grad()
def losses(
    model: nn.Module, tokens: Int[Tensor, "b n"], following: Int[Tensor, "b n"]
) -> Float[Tensor, "b n"] | None:
    """Loss of every following token; `None` if the fused pass does not apply."""
    pass_ = None if torch.is_autocast_enabled("cpu") else fused(model)
    if pass_ is None or not pass_.fits(tokens.shape[1]):
        return None
    tokens, following = (t.long().contiguous().unsqueeze(0) for t in (tokens, following))
    return pass_(tokens, following, addresses(pass_.parameters))[0]
