"""Several processes that train one model: each takes its share of every batch.

With `shard=False` every process holds the whole model and gradients are averaged (DDP); with
`shard=True` weights, gradients and optimiser lie in shares too (FSDP2). The loop is the same as
for one process, and so is the checkpoint: whole tensors, written by the first process.

References: `zhao2023`.
"""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, distributed, nn, optim

from allometry._core.errors import require

MEETING = "ALLOMETRY_MEETING"
"""Names the file in which processes of one machine find one another; else torch's own server."""


@final
class HelperFinished(Exception):  # noqa: N818 - not an error: its part is done
    """This process was one of the helpers, and the training is over."""


@final
@dataclass(frozen=True)
class Group:
    """This process's place among those that train one model together.

    Args:
        rank: From 0; the first one measures, writes and tells.
        size: How many there are.
        shard: Whether each holds a share of the model, instead of all of it.
    """

    rank: int
    size: int
    shard: bool = False

    def share(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """This process's rows of a batch; what has no rows is everybody's."""
        made = []
        for part in batch:
            if part.ndim == 0:
                made.append(part)
                continue
            require(
                len(part) % self.size == 0,
                "batch",
                f"be a multiple of the {self.size} processes",
                len(part),
            )
            made.append(part.chunk(self.size)[self.rank])
        return tuple(made)

    def mean(self, value: float) -> float:
        """Of all processes' values."""
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total) / self.size

    def agree(self, stopping: bool, saving: bool) -> tuple[bool, bool]:
        """Whether anyone wants to stop, and whether the first one wants to save."""
        flags = torch.tensor([float(stopping), float(saving and self.rank == 0)])
        distributed.all_reduce(flags)
        return bool(flags[0] > 0), bool(flags[1] > 0)

    def spread(
        self, model: nn.Module, optimiser: optim.Optimizer, objective: Callable[..., Tensor]
    ) -> tuple[nn.Module, optim.Optimizer, Callable[..., Tensor]]:
        """What the loop is to step in this process in place of `model` and its optimiser.

        Returns:
            The model, its optimiser, and the loss of this process's share of a batch.
        """
        if not self.shard:
            together = nn.parallel.DistributedDataParallel(WithObjective(model, objective))
            return model, optimiser, together
        twin = sharded(model, self.size)
        return twin, rebuilt(optimiser, model, twin), lambda *batch: objective(twin, *batch)


@final
class WithObjective(nn.Module):
    """A model together with its objective, so that calling it gives the loss."""

    def __init__(self, model: nn.Module, objective: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss."""
        return self.objective(self.model, *batch)


def sharded(model: nn.Module, size: int) -> nn.Module:
    """A copy of `model` of which every process holds a share; blocks are gathered one by one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    twin = copy.deepcopy(model)
    mesh = init_device_mesh(next(twin.parameters()).device.type, (size,))
    for part in twin.modules():
        if isinstance(part, nn.ModuleList):
            for block in part:
                fully_shard(block, mesh=mesh)
    fully_shard(twin, mesh=mesh)
    for name in ("log_prob", "sample"):
        if hasattr(twin, name):
            register_fsdp_forward_method(twin, name)
    return twin


def rebuilt(optimiser: optim.Optimizer, model: nn.Module, twin: nn.Module) -> optim.Optimizer:
    """The same optimiser over the parameters that `twin` has in place of `model`'s."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = dict(twin.named_parameters())
    groups = [
        group | {"params": [own[names[id(p)]] for p in group["params"]]}
        for group in optimiser.param_groups
    ]
    return type(optimiser)(groups)  # pyright: ignore[reportCallIssue]


def whole(tensor: Tensor) -> Tensor:
    """The tensor of which this process may hold a share; all of them must ask."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def like(tensor: Tensor, other: Any) -> Tensor:
    """A whole tensor laid out among the processes as `other` is."""
    if not hasattr(other, "placements") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements)


@contextmanager
def joined(*, shard: bool) -> Iterator[Group]:
    """The group that torchrun has started this process in, for as long as the context lasts."""
    from datetime import timedelta

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    met: dict[str, Any] = {}
    if MEETING in os.environ:
        rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        store = distributed.FileStore(os.environ[MEETING], size)  # pyright: ignore[reportPrivateImportUsage]
        met = {"store": store, "rank": rank, "world_size": size}
    # Helpers wait while the first process measures, and for the next run.
    distributed.init_process_group(backend, timeout=timedelta(days=1), **met)
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size(), shard)
    finally:
        distributed.destroy_process_group()


def lost_another(error: BaseException) -> bool:
    """Whether an error says that another process of the group is gone."""
    if isinstance(error, distributed.DistError):
        return True
    signs = ("gloo", "nccl", "connection", "peer")
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)


def announce(words: str, group: Group) -> str:
    """What the first process says, in all of them."""
    data = torch.tensor(list(words.encode()), dtype=torch.uint8)
    length = torch.tensor([len(data)])
    distributed.broadcast(length, 0)
    if group.rank > 0:
        data = torch.empty(int(length), dtype=torch.uint8)
    distributed.broadcast(data, 0)
    return bytes(data.tolist()).decode()
