"""Models of one architecture vectorised along a leading axis, with batched kernels.

Shapes: M models, P parameters of each. Models may differ in seed, learning rate and data order;
any `nn.Module` can be stacked. Every model has its own weights, buffers, learning rate, gradient
norm and optimiser state, so it ends as it would alone, up to the order of floating-point sums.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from allometry._core.errors import require
from allometry.train.packed import fused_adamw

Flat = Float[Tensor, "M P"]


@final
class StackedModels:
    """Several modules of one architecture, stored as one tensor of parameters (M, P).

    Args:
        models: The modules; they are copied, not changed.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> models = StackedModels([nn.Linear(3, 1) for _ in range(4)])
        >>> models(torch.zeros(4, 5, 3)).shape
        torch.Size([4, 5, 1])
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        require(len(models) >= 1, "StackedModels.models", "have at least one model", len(models))
        shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in models]
        require(
            all(s == shapes[0] for s in shapes),
            "StackedModels.models",
            "have the same parameter shapes",
            "different shapes",
        )
        self.skeleton = copy.deepcopy(models[0])
        named = [dict(m.named_parameters()) for m in models]
        self.names = list(named[0])
        self.shapes = [named[0][k].shape for k in self.names]
        self.sizes = [s.numel() for s in self.shapes]
        rows = [torch.cat([p[k].detach().flatten() for k in self.names]) for p in named]
        self.flat: Flat = torch.stack(rows).requires_grad_(True)
        """All parameters as one leaf: a gradient is one tensor and a step one kernel per model."""
        self._slots = _slots(self.skeleton)
        named = [dict(m.named_buffers()) for m in models]
        self.buffers = {k: torch.stack([b[k].detach() for b in named]).clone() for k in named[0]}

    def __len__(self) -> int:
        return len(self.flat)

    def __call__(self, *arguments: Any) -> Any:
        """The forward passes of all models; the first axis of every tensor is the model."""
        return self.map(lambda model, *a: model(*a), *arguments)

    def map(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(model, *arguments)` vectorised over the models; see `together`."""
        return together(function, [self], *arguments)

    def member(self, index: int) -> nn.Module:
        """A copy of one model as an ordinary module."""
        model = copy.deepcopy(self.skeleton)
        with torch.no_grad():
            parts = self.flat[index].split(self.sizes)
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.copy_(part.view_as(parameter))
            for name, buffer in model.named_buffers():
                buffer.copy_(self.buffers[name][index])
        return model

    @contextlib.contextmanager
    def bind(self, flat: Float[Tensor, " P"], buffers: dict[str, Tensor]) -> Iterator[nn.Module]:
        """The skeleton with the parameters and buffers of one model, inside the context.

        Like `torch.func.functional_call` at a fraction of its cost, and any method can be called.
        """
        parts = flat.split(self.sizes)
        # A bias needs no view, and each view costs as much as a small kernel in both passes.
        own = {
            k: p if len(s) == 1 else p.view(s)
            for k, p, s in zip(self.names, parts, self.shapes, strict=True)
        } | buffers
        before = [(d, key, d[key]) for slots in self._slots.values() for d, key in slots]
        try:
            for name, value in own.items():
                for d, key in self._slots[name]:
                    d[key] = value
            yield self.skeleton
        finally:
            for d, key, value in before:
                d[key] = value

    def optimiser(
        self,
        make: Callable[..., optim.Optimizer] = optim.AdamW,
        *,
        lr: float | Sequence[float],
        **settings: Any,
    ) -> "StackedStep":
        """An optimiser with a separate state and, if `lr` is a sequence, rate for each model."""
        rates = [float(lr)] * len(self) if isinstance(lr, int | float) else [*map(float, lr)]
        require(
            len(rates) == len(self), "lr", f"have one rate for each of the {len(self)}", len(rates)
        )
        return StackedStep(self, make, rates, settings)


def together(
    function: Callable[..., Any],
    stacks: Sequence[StackedModels | tuple[StackedModels, Float[Tensor, "M _"]]],
    *arguments: Any,
) -> Any:
    """`function(*models, *arguments)` for the i-th model of every stack, vectorised over i.

    The first axis of tensor arguments and results is the model. A stack may be given with other
    parameters than its own, `(stack, flat)`, as unrolled GANs need.

    Args:
        function: Function of plain modules and the arguments of one model.
        stacks: One stack for each module of the function.
        arguments: Further arguments.
    """
    pairs = [(s, s.flat) if isinstance(s, StackedModels) else s for s in stacks]

    def one(flats: list[Tensor], buffers: list[dict[str, Tensor]], *rest: Any) -> Any:
        with contextlib.ExitStack() as stack:
            each = zip(pairs, flats, buffers, strict=True)
            models = [stack.enter_context(s.bind(f, b)) for (s, _), f, b in each]
            return function(*models, *rest)

    flats, buffers = [f for _, f in pairs], [p.buffers for p, _ in pairs]
    if len(flats[0]) == 1:
        # One model needs no batching rules: a plain call has no overhead.
        own = [{k: v[0] for k, v in b.items()} for b in buffers]
        rest = [a[0] if isinstance(a, Tensor) else a for a in arguments]
        out = one([f[0] for f in flats], own, *rest)
        if isinstance(out, Tensor):
            return out.unsqueeze(0)
        return tree_map(lambda t: t.unsqueeze(0), out)
    axes = tuple(0 if isinstance(a, Tensor) else None for a in arguments)
    # Torch's fused attention has no batching rule on CPU and would loop over the models.
    with sdpa_kernel(SDPBackend.MATH):
        return vmap(one, in_dims=(0, 0, *axes), randomness="different")(flats, buffers, *arguments)


def _slots(model: nn.Module) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Dictionary and key of each parameter and buffer; a shared one has several."""
    names = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    slots: dict[str, list[tuple[dict[str, Any], str]]] = {name: [] for name in names.values()}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for key, value in tensors.items():
                if value is not None:
                    slots[names[id(value)]].append((cast("dict[str, Any]", tensors), key))
    return slots


@final
class StackedStep:
    """A torch optimiser over stacked models, in one fused call where all rates are equal.

    Its parameters share memory with the stack, so nothing is copied.

    Args:
        models: The stacked models.
        make: A torch optimiser class.
        rates: Learning rate of each model.
        settings: Further arguments of the optimiser.
    """

    def __init__(
        self,
        models: StackedModels,
        make: Callable[..., optim.Optimizer],
        rates: list[float],
        settings: dict[str, Any],
    ) -> None:
        self.models = models
        if "fused" not in settings and make in (optim.Adam, optim.AdamW, optim.SGD):
            settings = settings | {"fused": True}
        alike = len(set(rates)) == 1
        with torch.no_grad():
            whole = models.flat.detach()
            rows = [whole] if alike else [whole[i] for i in range(len(models))]
        self.rows = [nn.Parameter(r) for r in rows]
        groups = [
            {"params": [r], "lr": rate, "peak_lr": rate}
            for r, rate in zip(self.rows, rates, strict=False)
        ]
        self.inner = make(groups, lr=rates[0], **settings)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the torch optimiser, for schedules."""
        return self.inner.param_groups

    def step(self, gradient: Flat, *, clip: float | None = None) -> Float[Tensor, " M"]:
        """One step of every model along its row of `gradient`; returns norms before clipping."""
        norms = gradient.norm(dim=1)
        if clip is not None:
            gradient = gradient * (clip / (norms + 1e-6)).clamp(max=1.0)[:, None]
        self.apply(gradient)
        return norms.detach()

    def apply(self, gradient: Flat) -> None:
        """One step of every model, without clipping and norms."""
        if self._fused(gradient):
            return
        parts = [gradient] if len(self.rows) == 1 else list(gradient)
        for row, part in zip(self.rows, parts, strict=True):
            row.grad = part.detach().contiguous()
        self.inner.step()

    @torch.no_grad()
    def _fused(self, gradient: Flat) -> bool:
        """Adam's step by our kernel where it applies: torch's call costs more than its work."""
        (row, *others), group = self.rows, self.inner.param_groups[0]
        state = self.inner.state.get(row)  # torch fills it in the first step
        plain = type(self.inner) is optim.Adam and not (
            group["weight_decay"] or group["amsgrad"] or group["maximize"]
        )
        if others or not state or not plain or not fused_adamw.applies(row, gradient):
            return False
        state["step"] += 1
        t, (b1, b2) = float(state["step"]), group["betas"]
        root = math.sqrt(1 - b2**t)
        rows = [(1.0, 1.0, group["lr"] * root / (1 - b1**t))] * len(row)
        moments, eps = (state["exp_avg"], state["exp_avg_sq"]), group["eps"] * root
        fused_adamw.update(row, moments, gradient, None, None, rows, betas=(b1, b2), eps=eps)
        return True

    def descend(
        self, losses: Float[Tensor, " M"], *, clip: float | None = None
    ) -> Float[Tensor, " M"]:
        """Backpropagate the loss of each model and step.

        Models are independent, so the gradient of the sum contains all their gradients.
        """
        (gradient,) = torch.autograd.grad(losses.sum(), self.models.flat)
        return self.step(gradient, clip=clip)
