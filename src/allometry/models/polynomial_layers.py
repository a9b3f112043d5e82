r"""Layers that multiply linear forms, of integer and real degree.

$P_d(x) = \prod_{k=1}^d (W_k x + b_k)$, entry by entry. Polynomial layers take `reduce`, applied
after each product, so that they can be evaluated modulo a prime (see `measure.Field`).

Shapes: b batch, i inputs, w width, d degree.
"""

import math
from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require

Reduce = Callable[[Tensor], Tensor]


def exactly(x: Tensor) -> Tensor:
    """The identity: ordinary arithmetic."""
    return x


def normal(*shape: int, std: float, rng: torch.Generator) -> nn.Parameter:
    """A parameter of independent normal numbers."""
    return nn.Parameter(std * torch.randn(*shape, generator=rng))


@final
class Product(nn.Module):
    r"""$P_d(x) = \prod_{k=1}^d (W_k x + b_k)$, entry by entry.

    Biases start at one and weights small, so that a product of many factors starts near one plus a
    linear map. With zero biases deep products vanish or explode.

    Args:
        inputs: i.
        width: w.
        degree: d.
        bias: Whether there are $b_k$.
        rng: Generator of the weights.
    """

    def __init__(
        self, inputs: int, width: int, degree: int, bias: bool, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.degree = degree
        std = 1 / math.sqrt(inputs * (degree if bias else 1))
        self.weight = normal(degree, width, inputs, std=std, rng=rng)
        self.bias = nn.Parameter(torch.ones(degree, width)) if bias else None

    def forward(self, x: Float[Tensor, "*b i"], reduce: Reduce = exactly) -> Float[Tensor, "*b w"]:
        """The products."""
        # One matrix product for all forms: small layers are bound by the number of calls.
        bias = None if self.bias is None else self.bias.flatten()
        forms = reduce(F.linear(x, self.weight.flatten(0, 1), bias))
        first, *others = forms.unflatten(-1, (self.degree, -1)).unbind(-2)
        for form in others:
            first = reduce(first * form)
        return first


@final
class Tied(nn.Module):
    r"""$(W x + b)^d$, entry by entry: degree d at the cost of one form.

    Args:
        inputs: i.
        width: w.
        degree: d.
        rng: Generator of the weights.
    """

    def __init__(self, inputs: int, width: int, degree: int, rng: torch.Generator) -> None:
        super().__init__()
        self.degree = degree
        self.form = Product(inputs, width, 1, True, rng)

    def forward(self, x: Float[Tensor, "*b i"], reduce: Reduce = exactly) -> Float[Tensor, "*b w"]:
        """The powers."""
        form = self.form(x, reduce)
        y = form
        for _ in range(self.degree - 1):
            y = reduce(y * form)
        return y


@final
class Fractional(nn.Module):
    r"""A layer of real degree $2 < d \le 3$: $(W_1 x + b_1)(W_2 x + b_2)\,s(W_3 x + b_3)$.

    $s(z) = \mathrm{sign}(z)\,|z|^{d-2}$ is not a polynomial, so only epsilon-ranks are defined. To
    cost d forms and not 3, the third form of each unit reads a fraction d - 2 of the inputs,
    starting at the unit's index and wrapping around; d = 3 is a `Product`. `Mixed` has degree d at
    cost d and is a polynomial.

    Args:
        inputs: i.
        width: w.
        degree: d.
        rng: Generator of the weights.
    """

    def __init__(self, inputs: int, width: int, degree: float, rng: torch.Generator) -> None:
        super().__init__()
        require(2 < degree <= 3, "Fractional.degree", "lie above 2 and at most at 3", degree)
        self.degree = degree
        self.forms = Product(inputs, width, 2, True, rng)
        self.read = max(1, round((degree - 2) * inputs))
        std = 1 / math.sqrt(3 * self.read)
        self.third = normal(width, self.read, std=std, rng=rng)
        self.third_bias = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*b i"], reduce: Reduce = exactly) -> Float[Tensor, "*b w"]:
        """The products."""
        require(reduce is exactly, "reduce", "be omitted: this is not a polynomial", "a field")
        units = torch.arange(len(self.third), device=x.device)[:, None]
        seen = (units + torch.arange(self.read, device=x.device)) % x.shape[-1]
        z = (x[..., seen] * self.third).sum(-1) + self.third_bias
        # The root has no derivative at 0; the offset keeps the gradient finite.
        return self.forms(x) * z.sign() * (z.abs() + 1e-6) ** (self.degree - 2)


@final
class Mixed(nn.Module):
    r"""A layer of mean degree d: the first $(d - \lfloor d\rfloor)\,w$ units one degree higher.

    A polynomial at the cost of d forms per unit.

    Args:
        inputs: i.
        width: w.
        degree: d, at least 1.
        rng: Generator of the weights.
    """

    def __init__(self, inputs: int, width: int, degree: float, rng: torch.Generator) -> None:
        super().__init__()
        low = math.floor(degree)
        upper = round((degree - low) * width)
        self.degree = low + upper / width
        more = Product(inputs, upper, low + 1, True, rng) if upper else None
        less = Product(inputs, width - upper, low, True, rng) if upper < width else None
        self.parts = nn.ModuleList(p for p in (more, less) if p is not None)

    def forward(self, x: Float[Tensor, "*b i"], reduce: Reduce = exactly) -> Float[Tensor, "*b w"]:
        """The products."""
        return torch.cat([part(x, reduce) for part in self.parts], -1)
