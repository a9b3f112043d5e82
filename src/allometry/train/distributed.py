"""Data-parallel training: several processes train one model, each on a part of every batch.

With `shard=False` the model is replicated and gradients are averaged (DDP); with `shard=True`
weights, gradients and optimiser state are sharded (FSDP2). The loop and the checkpoint are those
of one process: whole tensors, written by the first process.

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
"""Environment variable with the rendezvous file of one machine; default: torch's TCP server."""


@final
class HelperFinished(Exception):  # noqa: N818 - not an error: its part is done
    """The training is finished, and this process is not the first of its group."""


@final
@dataclass(frozen=True)
class Group:
    """A group of processes that train one model, as seen by this process.

    Args:
        rank: From 0; the first process measures, writes and reports.
        size: Number of processes.
        shard: Whether the model is sharded instead of replicated.
    """

    rank: int
    size: int
    shard: bool = False

    def share(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """This process's rows of a batch; scalars are shared."""
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
        """The mean over all processes."""
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total) / self.size

    def agree(self, stopping: bool, saving: bool) -> tuple[bool, bool]:
        """Whether any process wants to stop, and whether the first one wants to save."""
        flags = torch.tensor([float(stopping), float(saving and self.rank == 0)])
        distributed.all_reduce(flags)
        return bool(flags[0] > 0), bool(flags[1] > 0)

    def spread(
        self, model: nn.Module, optimiser: optim.Optimizer, objective: Callable[..., Tensor]
    ) -> tuple[nn.Module, optim.Optimizer, Callable[..., Tensor]]:
        """The replicated or sharded model that the loop trains in this process.

        Returns:
            The model, its optimiser, and the loss of this process's part of a batch.
        """
        if not self.shard:
            together = nn.parallel.DistributedDataParallel(WithObjective(model, objective))
            return model, optimiser, together
        whole_matrices = any(group.get("orthogonal") for group in optimiser.param_groups)
        fix = "Use torchrun without shard, or AdamW."
        require(not whole_matrices, "optimizer", "be adamw for a sharded model", "muon", fix)
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
    """A sharded copy of `model`; blocks are gathered one by one."""
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
    """The same optimiser over the corresponding parameters of `twin`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = dict(twin.named_parameters())
    groups = [
        group | {"params": [own[names[id(p)]] for p in group["params"]]}
        for group in optimiser.param_groups
    ]
    return type(optimiser)(groups)  # pyright: ignore[reportCallIssue]


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor of a shard; all processes must call this."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def like(tensor: Tensor, other: Any) -> Tensor:
    """A whole tensor sharded like `other`."""
    if not hasattr(other, "placements") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements)


@contextmanager
def joined(*, shard: bool) -> Iterator[Group]:
    """The torchrun process group of this process, inside the context."""
    from datetime import timedelta

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    met: dict[str, Any] = {}
    if MEETING in os.environ:
        rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
        store = distributed.FileStore(os.environ[MEETING], size)  # pyright: ignore[reportPrivateImportUsage]
        met = {"store": store, "rank": rank, "world_size": size}
    # Helpers wait while the first process measures, and between runs.
    distributed.init_process_group(backend, timeout=timedelta(days=1), **met)
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size(), shard)
    finally:
        distributed.destroy_process_group()


def lost_another(error: BaseException) -> bool:
    """Whether an error means that another process of the group has ended."""
    if isinstance(error, distributed.DistError):
        return True
    signs = ("gloo", "nccl", "connection", "peer")
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)


def announce(words: str, group: Group) -> str:
    """The first process's value, in all processes."""
    data = torch.tensor(list(words.encode()), dtype=torch.uint8)
    length = torch.tensor([len(data)])
    distributed.broadcast(length, 0)
    if group.rank > 0:
        data = torch.empty(int(length), dtype=torch.uint8)
    distributed.broadcast(data, 0)
    return bytes(data.tolist()).decode()
