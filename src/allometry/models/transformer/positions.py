"""Positions: tables that are added to tokens, and rotations of queries and keys.

Shapes: b batch, n positions, d width, h heads, m head size, c context.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require


def fixed_positions(
    kind: str | None, context: int, width: int, head_size: int
) -> Float[Tensor, "..."] | None:
    """The table or rotations of a kind without parameters; `None` for other kinds."""
    if kind == "rotary":
        return rotations(context, head_size)
    table = {"sinusoidal": sinusoidal, "one_hot": one_hot}.get(kind or "")
    return None if table is None else table(context, width)


def sinusoidal(context: int, width: int) -> Float[Tensor, "c d"]:
    r"""Table of sines and cosines.

    $P_{t,2i} = \sin(t / 10000^{2i/d})$, $P_{t,2i+1} = \cos(t / 10000^{2i/d})$.

    Args:
        context: Number of positions.
        width: Number of coordinates; an odd one drops the last cosine.

    References:
        `vaswani2017` section 3.5.
    """
    angle = _angles(context, (width + 1) // 2, width)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :width]


def one_hot(context: int, width: int) -> Float[Tensor, "c d"]:
    """Table whose row t is 1 in coordinate `width - context + t`, the last `context` coordinates.

    The other coordinates belong to the token, so token and position never mix.

    Args:
        context: Number of positions.
        width: Number of coordinates, at least `context`.
    """
    require(
        width >= context,
        "Transformer.width",
        f"be at least context ({context}) for one-hot positions",
        width,
    )
    return torch.eye(width)[width - context :]


def rotations(context: int, size: int) -> Float[Tensor, "2 c half"]:
    r"""Cosines and sines of the angles $t\,10000^{-2i/m}$ of `rotate`.

    Args:
        context: Number of positions.
        size: Head size m; even.

    References:
        `su2024` section 3.2.2.
    """
    require(size % 2 == 0, "Transformer.head_size", "be even for rotary positions", size)
    angle = _angles(context, size // 2, size)
    return torch.stack([angle.cos(), angle.sin()])


def rotate(
    x: Float[Tensor, "b p q m"], rotation: Float[Tensor, "2 #b #p #q half"]
) -> Float[Tensor, "b p q m"]:
    """`x` with coordinate pairs (i, i + m/2) rotated, the pairing of GPT-NeoX and Llama.

    Differs from the paper, which pairs neighbours (2i, 2i + 1): the same up to a fixed permutation
    of the rows of the query and key weights.

    Args:
        x: Queries or keys; positions may be the second axis or the third.
        rotation: Cosines and sines from `rotations`, their positions along the same axis.
    """
    cos, sin = rotation[0], rotation[1]
    # Whole rows at a time: half rows of a few numbers each do not vectorise.
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * torch.cat([cos, cos], -1), swapped, torch.cat([-sin, sin], -1))


def indices(
    length: int, start: int, padding: Tensor | None, device: torch.device
) -> Int[Tensor, "#b n"]:
    """The position of each of the last `length` tokens, padding not counted.

    Args:
        length: Number of new tokens.
        start: Number of tokens before them.
        padding: True at padding, over all `start + length` tokens; `None` if there is none.
        device: Device of the result.
    """
    if padding is None:
        return torch.arange(start, start + length, device=device)[None]
    return ((~padding).cumsum(-1) - 1).clamp(min=0)[:, start:]


def _angles(context: int, pairs: int, size: int) -> Float[Tensor, "c half"]:
    # On the CPU even for a model on the meta device: arithmetic there imports torch's compiler,
    # which takes seconds.
    options = {"dtype": torch.float64, "device": "cpu"}
    time = torch.arange(context, **options)[:, None]
    angle = time * 10_000.0 ** (-2 * torch.arange(pairs, **options) / size)
    return angle.to(torch.get_default_device(), torch.get_default_dtype())
