"""Many models of one shape stepped as one: parameters with a leading axis, batched kernels.

Shapes: M members, P parameters of each. Seeds, learning rates and orders of data are members;
anything that is an `nn.Module` can be packed. Every member keeps its own weights, buffers,
learning rate, gradient norm and optimiser state, so it ends where it would have ended alone, up to
the order in which floating-point sums are taken.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from allometry._core.errors import require

Flat = Float[Tensor, "M P"]


@final
class StackedModels:
    """Several modules of one architecture, held as one tensor of parameters (M, P).

    Args:
        models: The members; they are copied and left alone.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> packed = StackedModels([nn.Linear(3, 1) for _ in range(4)])
        >>> packed(torch.zeros(4, 5, 3)).shape
        torch.Size([4, 5, 1])
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        require(len(models) >= 1, "StackedModels.models", "have at least one member", len(models))
        shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in models]
        require(
            all(s == shapes[0] for s in shapes),
            "StackedModels.models",
            "all have one shape",
            "several",
        )
        self.skeleton = copy.deepcopy(models[0])
        named = [dict(m.named_parameters()) for m in models]
        self.names = list(named[0])
        self.shapes = [named[0][k].shape for k in self.names]
        self.sizes = [s.numel() for s in self.shapes]
        rows = [torch.cat([p[k].detach().flatten() for k in self.names]) for p in named]
        self.flat: Flat = torch.stack(rows).requires_grad_(True)
        """All parameters: one leaf, so a gradient is one tensor and a step one kernel a member."""
        self._homes = _homes(self.skeleton)
        held = [dict(m.named_buffers()) for m in models]
        self.buffers = {k: torch.stack([b[k].detach() for b in held]).clone() for k in held[0]}

    def __len__(self) -> int:
        return len(self.flat)

    def __call__(self, *arguments: Any) -> Any:
        """The members' own forward passes; every tensor has the members as its first axis."""
        return self.map(lambda model, *a: model(*a), *arguments)

    def map(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(model, *arguments)` for every member at once; see `together`."""
        return together(function, [self], *arguments)

    def member(self, index: int) -> nn.Module:
        """A copy of one member as the ordinary module it is."""
        model = copy.deepcopy(self.skeleton)
        with torch.no_grad():
            parts = self.flat[index].split(self.sizes)
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.copy_(part.view_as(parameter))
            for name, buffer in model.named_buffers():
                buffer.copy_(self.buffers[name][index])
        return model

    @contextlib.contextmanager
    def lend(self, flat: Float[Tensor, " P"], buffers: dict[str, Tensor]) -> Iterator[nn.Module]:
        """The skeleton with one member's numbers, for as long as the context lasts.

        As `torch.func.functional_call`, at a fraction of its price, and any method can be called.
        """
        parts = flat.split(self.sizes)
        # A bias is a row already: each view costs as much as a small kernel, there and back.
        own = {
            k: p if len(s) == 1 else p.view(s)
            for k, p, s in zip(self.names, parts, self.shapes, strict=True)
        } | buffers
        kept = [
            (place, key, place[key]) for places in self._homes.values() for place, key in places
        ]
        try:
            for name, value in own.items():
                for place, key in self._homes[name]:
                    place[key] = value
            yield self.skeleton
        finally:
            for place, key, value in kept:
                place[key] = value

    def optimiser(
        self,
        make: Callable[..., optim.Optimizer] = optim.AdamW,
        *,
        lr: float | Sequence[float],
        **settings: Any,
    ) -> "StackedStep":
        """An optimiser with its own state and, where `lr` is a sequence, its own rate a member."""
        rates = [float(lr)] * len(self) if isinstance(lr, int | float) else [*map(float, lr)]
        require(
            len(rates) == len(self), "lr", f"have one rate for each of the {len(self)}", len(rates)
        )
        return StackedStep(self, make, rates, settings)


def together(
    function: Callable[..., Any],
    packs: Sequence[StackedModels | tuple[StackedModels, Float[Tensor, "M _"]]],
    *arguments: Any,
) -> Any:
    """`function(*models, *arguments)` for the i-th member of every pack, all i at once.

    Tensors among the arguments have the members as their first axis, and so has what comes back.
    A pack may come with other parameters than its own, `(pack, flat)`: players that look ahead at
    where a rival will go need that.

    Args:
        function: Of plain modules and one member's arguments; may call any method of theirs.
        packs: One pack for each module the function takes.
        arguments: The rest.
    """
    pairs = [(p, p.flat) if isinstance(p, StackedModels) else p for p in packs]

    def one(flats: list[Tensor], buffers: list[dict[str, Tensor]], *rest: Any) -> Any:
        with contextlib.ExitStack() as stack:
            lent = zip(pairs, flats, buffers, strict=True)
            models = [stack.enter_context(p.lend(f, b)) for (p, _), f, b in lent]
            return function(*models, *rest)

    flats, buffers = [f for _, f in pairs], [p.buffers for p, _ in pairs]
    if len(flats[0]) == 1:
        # One member needs no batching rules: a plain call costs what a bare loop does.
        own = [{k: v[0] for k, v in b.items()} for b in buffers]
        rest = [a[0] if isinstance(a, Tensor) else a for a in arguments]
        found = one([f[0] for f in flats], own, *rest)
        if isinstance(found, Tensor):
            return found.unsqueeze(0)
        return tree_map(lambda t: t.unsqueeze(0), found)
    axes = tuple(0 if isinstance(a, Tensor) else None for a in arguments)
    # Fused attention has no batching rule on a CPU and would be looped over the members.
    with sdpa_kernel(SDPBackend.MATH):
        return vmap(one, in_dims=(0, 0, *axes), randomness="different")(flats, buffers, *arguments)


def _homes(model: nn.Module) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Where each parameter and buffer lives: a shared one in several places, under one name."""
    names = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    homes: dict[str, list[tuple[dict[str, Any], str]]] = {name: [] for name in names.values()}
    for module in model.modules():
        for place in (module._parameters, module._buffers):
            for key, value in place.items():
                if value is not None:
                    homes[names[id(value)]].append((cast("dict[str, Any]", place), key))
    return homes


@final
class StackedStep:
    """Torch's own optimiser over rows of a pack, all members in one fused call where it can.

    Rows share memory with the pack, so nothing is copied to or from the optimiser.

    Args:
        pack: Whose parameters.
        make: A torch optimiser's class.
        rates: A rate for each member.
        settings: Its other arguments.
    """

    def __init__(
        self,
        pack: StackedModels,
        make: Callable[..., optim.Optimizer],
        rates: list[float],
        settings: dict[str, Any],
    ) -> None:
        self.pack = pack
        if "fused" not in settings and make in (optim.Adam, optim.AdamW, optim.SGD):
            settings = settings | {"fused": True}
        alike = len(set(rates)) == 1
        with torch.no_grad():
            whole = pack.flat.detach()
            rows = [whole] if alike else [whole[i] for i in range(len(pack))]
        self.rows = [nn.Parameter(r) for r in rows]
        groups = [
            {"params": [r], "lr": rate, "peak_lr": rate}
            for r, rate in zip(self.rows, rates, strict=False)
        ]
        self.inner = make(groups, lr=rates[0], **settings)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The inner optimiser's, for schedules."""
        return self.inner.param_groups

    def step(self, gradient: Flat, *, clip: float | None = None) -> Float[Tensor, " M"]:
        """One step of every member along its own row of `gradient`; the norms before clipping."""
        norms = gradient.norm(dim=1)
        if clip is not None:
            gradient = gradient * (clip / (norms + 1e-6)).clamp(max=1.0)[:, None]
        self.follow(gradient)
        return norms.detach()

    def follow(self, gradient: Flat) -> None:
        """The same for who needs neither clipping nor norms."""
        parts = [gradient] if len(self.rows) == 1 else list(gradient)
        for row, part in zip(self.rows, parts, strict=True):
            row.grad = part.detach().contiguous()
        self.inner.step()

    def descend(
        self, losses: Float[Tensor, " M"], *, clip: float | None = None
    ) -> Float[Tensor, " M"]:
        """Backpropagate each member's loss into its own row and step.

        Members don't touch one another, so the gradient of the sum is all of their gradients.
        """
        (gradient,) = torch.autograd.grad(losses.sum(), self.pack.flat)
        return self.step(gradient, clip=clip)
