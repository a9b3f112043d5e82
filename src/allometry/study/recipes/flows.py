"""Recipes of densities: how each family is asked for."""

from collections.abc import Iterable, Sequence

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.study.recipes.density import Vectors, requests
from allometry.targets import Images


def affine_coupling(
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 256,
    lr: float = 0.01,
) -> list[Spec]:
    """Requests for affine couplings (RealNVP) of each size, number of examples and seed.

    References: `dinh2017`.
    """
    return requests("affine_coupling", target, ladder, tokens, seeds, batch, lr)


def spline_coupling(
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 256,
    lr: float = 0.005,
) -> list[Spec]:
    """Requests for spline couplings of each size, number of examples and seed.

    References: `durkan2019`.
    """
    return requests("spline_coupling", target, ladder, tokens, seeds, batch, lr)


def masked_autoregressive(
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 256,
    lr: float = 0.005,
) -> list[Spec]:
    """Requests for masked autoregressive flows of each size, number of examples and seed.

    References: `papamakarios2017`.
    """
    return requests("masked_autoregressive", target, ladder, tokens, seeds, batch, lr)


def glow(
    target: Images,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 128,
    lr: float = 0.002,
) -> list[Spec]:
    """Requests for GLOW of each size, number of images and seed.

    References: `kingma2018`.
    """
    require(isinstance(target, Images), "glow.target", "be images", target)
    return requests("glow", target, ladder, tokens, seeds, batch, lr)


def vae(
    target: Images,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 128,
    lr: float = 0.003,
) -> list[Spec]:
    """Requests for variational autoencoders of each size; the loss is the bound, in bits.

    The likelihood is the discretised logistic law, so that the figures stand beside the flows'.

    References: `kingma2014`; `salimans2017`.
    """
    require(isinstance(target, Images), "vae.target", "be images", target)
    return requests("vae", target, ladder, tokens, seeds, batch, lr)
