"""Size and cost of a run: parameters N, data D, compute C."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from allometry.train.objectives import next_token

SMALL = 3e6
"""Number of parameters above which FLOPs are counted on the meta device.

Meta tensors take no memory, but some operations on them import torch's compiler, which takes
seconds.
"""


@final
@dataclass(frozen=True)
class Budget:
    """The size of one run.

    Args:
        N: Trainable parameters without embeddings. Masked weights do not count, although their
            operations count in C; experts count as far as a token uses them.
        N_embedding: Parameters of token table, position table and readout.
        D: Tokens (or examples) of the training, repeats included.
        C: Floating-point operations of the training, counted.
    """

    N: int
    N_embedding: int
    D: int
    C: float

    @property
    def C_6ND(self) -> float:
        """The usual estimate of compute, $6 N D$ (`kaplan2020` section 2.1).

        References: `kaplan2020` Table 1.
        """
        return 6.0 * self.N * self.D


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters as `(N, N_embedding)`; each shared tensor counts once.

    A model lists its tables and readout by a method `embedding_parameters()`; one without such a
    method has no embeddings. Masked weights (number in the attribute `masked` of a module) do not
    count, nor do parameters that a token does not use (`inactive`, of a mixture of experts).
    """
    everything = {id(p): p.numel() for p in model.parameters()}
    naming = getattr(model, "embedding_parameters", None)
    tables = {id(p): p.numel() for p in naming()} if naming is not None else {}
    embedding = sum(tables.values())
    masked = sum(int(getattr(part, "masked", 0)) for part in model.modules())
    unused = count_inactive(model)
    return sum(everything.values()) - embedding - masked - unused, embedding


def count_inactive(model: nn.Module) -> int:
    """Parameters that a token does not use: those of experts that are not chosen for it."""
    return sum(int(getattr(part, "inactive", 0)) for part in model.modules())


@final
class Flops(TorchDispatchMode):
    """Counts floating-point operations inside the context, operator by operator.

    A multiply and an add are two. The formulas are torch's own (`torch.utils.flop_counter`); its
    counter gives the same numbers, but imports torch's compiler at the first operator.

    Example:
        >>> with Flops() as counter:
        ...     _ = torch.ones(2, 3) @ torch.ones(3, 4)
        >>> counter.total
        48.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0
        self.whole: set[Any] = {torch.ops.prim.device.default}
        """Operators that do not decompose into others."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch would import its compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator or its decomposition, and count."""
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None and func not in self.whole:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
            self.whole.add(func)
        out = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out


def count_cost(
    make: Callable[[], nn.Module],
    loss: Callable[[nn.Module], Tensor],
    about: float | None = None,
) -> tuple[int, int, float]:
    """N, N_embedding and the FLOPs of `loss(model)` with its gradient, for `make()`.

    Both are called under a default device, the meta device for large models. Attention is counted
    in its unfused form, because fused kernels hide the count.

    Args:
        make: Builds the model.
        loss: Its loss on a batch created inside the call.
        about: Approximate number of parameters; default: count on the meta device.
    """
    if about is None:
        with torch.device("meta"):
            about = sum(p.numel() for p in make().parameters())
    threads = torch.get_num_threads()
    # Random draws here must not change those of a run later.
    with torch.random.fork_rng(devices=[]):
        where = contextlib.nullcontext() if about <= SMALL else torch.device("meta")
        try:
            torch.set_num_threads(1)  # more threads do not help with a batch of one
            with where, sdpa_kernel(SDPBackend.MATH):
                model = make()
                with Flops() as counter:
                    loss(model).backward()
        finally:
            torch.set_num_threads(threads)
    return *count_parameters(model), counter.total


def count_flops(model: nn.Module, tokens: Tensor) -> float:
    """FLOPs of one forward and backward pass of the next-token loss on `tokens` (b, n+1).

    Counted by torch's formulas operator by operator (a multiply and an add are two). Attention is
    traced in its unfused form, because fused kernels hide the count.
    """
    with Flops() as counter, sdpa_kernel(SDPBackend.MATH):
        next_token(model, tokens).backward()
    model.zero_grad(set_to_none=True)
    return counter.total


def count_training_flops(model: nn.Module, *, vocabulary: int, context: int, tokens: int) -> float:
    """FLOPs of training on `tokens` tokens in windows of `context`, from one counted window."""
    device = next(model.parameters()).device
    window = torch.randint(
        vocabulary, (1, context + 1), generator=torch.Generator().manual_seed(0)
    ).to(device)
    return count_flops(model, window) * (tokens / context)


def count_next_token(
    make: Callable[[], nn.Module], *, vocabulary: int, context: int, about: float | None = None
) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token of a model that predicts the next one.

    Args:
        make: Builds the model.
        vocabulary: Number of token ids.
        context: Tokens in a window.
        about: As for `count_cost`.
    """

    def loss(model: nn.Module) -> Tensor:
        # On the default device, like every other tensor.
        window = torch.randint(vocabulary, (1, context + 1))
        return next_token(model, window)

    N, N_embedding, flops = count_cost(make, loss, about)
    return N, N_embedding, flops / context
