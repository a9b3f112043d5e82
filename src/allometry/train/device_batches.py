"""Batches on the device of the model, and losses read back from it, without a wait in each step.

A GPU works while Python prepares the next steps, as long as nothing asks for a value. So the
batches of several steps are copied to the device at once, and their losses are read at once.
"""

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

READ_EVERY = 32
"""Steps whose batches are copied to a GPU at once, and whose losses are read at once."""

BLOCK_BYTES = 64 << 20
"""Largest size of the batches that are copied at once."""

Batch = tuple[Tensor, ...]


def is_host(device: torch.device | str) -> bool:
    """Whether tensors of this device are in the memory of the CPU, so that reading is free."""
    return torch.device(device).type == "cpu"


@final
class DeviceBatches:
    """The batches of a training on its device; on CPU, those of `batch`.

    Args:
        batch: The tensors of a step, on CPU: a pure function of the step.
        device: Of the model.
        steps: Number of steps of the training: later batches are not made.
        block: Steps whose batches are copied at once.

    Example:
        >>> import torch
        >>> batches = DeviceBatches(lambda step: (torch.full((2,), step),), torch.device("cpu"), 9)
        >>> batches(3)
        (tensor([3, 3]),)
    """

    def __init__(
        self,
        batch: Callable[[int], Batch],
        device: torch.device,
        steps: int,
        block: int = READ_EVERY,
    ) -> None:
        self.batch, self.device, self.steps, self.block = batch, device, steps, block
        self.first, self.ready = 0, list[Batch]()

    def __call__(self, step: int) -> Batch:
        """The batch of a step."""
        if is_host(self.device):
            return self.batch(step)
        if not 0 <= step - self.first < len(self.ready):
            self.first, self.ready = step, self._copied(step)
        return self.ready[step - self.first]

    def _copied(self, step: int) -> list[Batch]:
        """The batches from `step` on, on the device."""
        made = [self.batch(step)]
        size = sum(part.numel() * part.element_size() for part in made[0])
        number = max(1, min(self.block, self.steps - step, BLOCK_BYTES // max(1, size)))
        made += [self.batch(step + i) for i in range(1, number)]
        columns = list(zip(*made, strict=True))
        if any(len({part.shape for part in column}) > 1 for column in columns):
            return [tuple(to_device(part, self.device) for part in batch) for batch in made]
        copied = [to_device(torch.stack(column), self.device).unbind() for column in columns]
        return list(zip(*copied, strict=True))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on `device`; to CUDA without waiting, from pinned memory."""
    if device.type == "cuda" and torch.cuda.is_available():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def read_all(tensors: Sequence[Tensor]) -> list[list[float]]:
    """The values of several tensors on one device, each as a flat list, in one transfer."""
    if is_host(tensors[0].device):
        return [tensor.detach().reshape(-1).tolist() for tensor in tensors]
    flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors]).tolist()
    ends, values = 0, []
    for tensor in tensors:
        values.append(flat[ends : ends + tensor.numel()])
        ends += tensor.numel()
    return values


@final
class LossReadings:
    """Losses and gradient norms of steps, read at every step on CPU and in blocks elsewhere.

    Args:
        device: Of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self.every = 1 if is_host(device) else READ_EVERY
        self.unread: list[tuple[int, Tensor, Tensor]] = []

    def add(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Record the values of a step, counted from 0."""
        self.unread.append((step, loss.detach(), norm.detach()))

    @property
    def due(self) -> bool:
        """Whether a block is complete."""
        return len(self.unread) >= self.every

    def read(self) -> list[tuple[int, float, float]]:
        """Step, loss and gradient norm of all steps since the last reading."""
        unread, self.unread = self.unread, []
        if self.every == 1 or not unread:
            return [(step, loss.item(), norm.item()) for step, loss, norm in unread]
        losses, norms = read_all([torch.stack(c) for c in list(zip(*unread, strict=True))[1:]])
        return [(s, a, b) for (s, _, _), a, b in zip(unread, losses, norms, strict=True)]
