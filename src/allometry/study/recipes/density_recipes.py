"""Recipes of densities: how each family is asked for."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.study.recipes.density import OF_IMAGES, Vectors, requests
from allometry.targets import Images


@runtime_checkable
class DensityRecipe(Protocol):
    """Requests for one family of each size, number of examples and seed."""

    def __call__(
        self,
        target: Vectors,
        ladder: Iterable[float],
        *,
        tokens: Sequence[float],
        seeds: int,
        batch: int = ...,
        lr: float = ...,
    ) -> list[Spec]:
        """The requests."""
        ...


def _recipe(family: str, usual_batch: int, usual_lr: float, about: str) -> DensityRecipe:
    def recipe(
        target: Vectors,
        ladder: Iterable[float],
        *,
        tokens: Sequence[float],
        seeds: int,
        batch: int = usual_batch,
        lr: float = usual_lr,
    ) -> list[Spec]:
        if family in OF_IMAGES:
            require(isinstance(target, Images), f"{family}.target", "be images", target)
        return requests(family, target, ladder, tokens, seeds, batch, lr)

    recipe.__name__ = recipe.__qualname__ = family
    recipe.__doc__ = f"Requests for {about}"
    return recipe


affine_coupling = _recipe(
    "affine_coupling",
    256,
    0.01,
    """affine couplings (RealNVP) of each size, number of examples and seed.

    References: `dinh2017`.
    """,
)

spline_coupling = _recipe(
    "spline_coupling",
    256,
    0.005,
    """spline couplings of each size, number of examples and seed.

    References: `durkan2019`.
    """,
)

masked_autoregressive = _recipe(
    "masked_autoregressive",
    256,
    0.005,
    """masked autoregressive flows of each size, number of examples and seed.

    References: `papamakarios2017`.
    """,
)

nice = _recipe(
    "nice",
    256,
    0.01,
    """couplings that only shift (NICE), with one scale for each coordinate behind them.

    References: `dinh2015`.
    """,
)

inverse_autoregressive = _recipe(
    "inverse_autoregressive",
    256,
    0.005,
    """inverse autoregressive flows: fast to sample, slow to score.

    References: `kingma2016`.
    """,
)

planar = _recipe(
    "planar",
    256,
    0.01,
    """planar flows, which grow by layers.

    References: `rezende2015`.
    """,
)

radial = _recipe(
    "radial",
    256,
    0.01,
    """radial flows, which grow by layers.

    References: `rezende2015`.
    """,
)

continuous = _recipe(
    "continuous",
    256,
    0.005,
    """continuous flows (neural differential equations) with equal steps.

    References: `chen2018`; `grathwohl2019`.
    """,
)

glow = _recipe(
    "glow",
    128,
    0.002,
    """GLOW of each size, number of images and seed.

    References: `kingma2018`.
    """,
)

variational_splines = _recipe(
    "variational_splines",
    128,
    0.002,
    """spline couplings of images whose dequantisation is learnt: a tighter bound.

    References: `durkan2019`; `ho2019`.
    """,
)

discrete = _recipe(
    "discrete",
    128,
    0.005,
    """discrete flows: modular shifts of whole values, with no noise to fill gaps.

    References: `tran2019`.
    """,
)

vae = _recipe(
    "vae",
    128,
    0.003,
    """variational autoencoders of each size; the loss is the bound, in bits.

    The likelihood is the discretised logistic law, so that the figures stand beside the flows'.

    References: `kingma2014`; `salimans2017`.
    """,
)

beta_vae = _recipe(
    "beta_vae",
    128,
    0.003,
    """VAEs trained with four times the weight on the divergence; the loss is the plain bound.

    References: `higgins2017`.
    """,
)

info_vae = _recipe(
    "info_vae",
    128,
    0.003,
    """InfoVAEs (alpha 0, lambda 10, kernel discrepancy); the loss is the plain bound, in bits.

    References: `zhao2019`.
    """,
)

vqvae = _recipe(
    "vqvae",
    128,
    0.003,
    """vector-quantised autoencoders with a transformer as prior; the loss is the bound, in bits.

    Convolutions and prior grow together; the likelihood is the VAE's.

    References: `vandenoord2017`.
    """,
)

RECIPES = {
    "affine_coupling": affine_coupling,
    "spline_coupling": spline_coupling,
    "masked_autoregressive": masked_autoregressive,
    "nice": nice,
    "inverse_autoregressive": inverse_autoregressive,
    "planar": planar,
    "radial": radial,
    "continuous": continuous,
    "glow": glow,
    "variational_splines": variational_splines,
    "discrete": discrete,
    "vae": vae,
    "beta_vae": beta_vae,
    "info_vae": info_vae,
    "vqvae": vqvae,
}
