"""Recipes of densities: default batch, learning rate and description of each family."""

from collections.abc import Callable, Iterable, Sequence

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.study.recipes.base import example_recipe, grid, named
from allometry.study.recipes.density_runs import OF_IMAGES, FlowRun, Vectors, grow
from allometry.targets import Images


def _requests(
    family: str,
    target: Vectors,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int,
    lr: float,
) -> list[Spec]:
    """A request for each size, number of examples and seed."""
    if family in OF_IMAGES:
        require(isinstance(target, Images), f"{family}.target", "be images", target)
    require(batch >= 1, f"{family}.batch", "be at least 1", batch)
    sizes = [grow(family, target.shape, target.levels, N) for N in ladder]
    shapes = [dict(zip(("layers", "width"), size, strict=True)) for size in sizes]
    common = {"family": family, "batch": batch, "lr": lr}
    return grid(FlowRun, target, shapes, tokens, seeds, batch, **common)


_FAMILIES: dict[str, tuple[int, float, str, str]] = {
    "affine_coupling": (256, 0.01, "affine couplings (RealNVP).", "`dinh2017`"),
    "spline_coupling": (256, 0.005, "spline couplings.", "`durkan2019`"),
    "masked_autoregressive": (
        256,
        0.02,
        "masked autoregressive flows.",
        "`papamakarios2017`",
    ),
    "nice": (256, 0.01, "additive couplings (NICE) with one scale per coordinate.", "`dinh2015`"),
    "inverse_autoregressive": (
        256,
        0.005,
        "inverse autoregressive flows: fast to sample, slow to score.",
        "`kingma2016`",
    ),
    "planar": (256, 0.01, "planar flows, which grow by layers.", "`rezende2015`"),
    "radial": (256, 0.01, "radial flows, which grow by layers.", "`rezende2015`"),
    "continuous": (
        256,
        0.005,
        "continuous flows (neural differential equations) with equal steps.",
        "`chen2018`; `grathwohl2019`",
    ),
    "glow": (128, 0.002, "GLOW, for images.", "`kingma2018`"),
    "variational_splines": (
        128,
        0.002,
        "spline couplings of images with variational dequantisation: a tighter bound.",
        "`durkan2019`; `ho2019`",
    ),
    "discrete": (
        128,
        0.005,
        "discrete flows: modular shifts of whole values, without dequantisation.",
        "`tran2019`",
    ),
    "vae": (
        128,
        0.003,
        "variational autoencoders with a discretised logistic likelihood; the loss is the bound,\n"
        "in bits, so that it compares with the flows'.",
        "`kingma2014`; `salimans2017`",
    ),
    "beta_vae": (
        128,
        0.003,
        "VAEs trained with four times the weight on the divergence; the loss is the plain bound.",
        "`higgins2017`",
    ),
    "info_vae": (
        128,
        0.003,
        "InfoVAEs (alpha 0, lambda 10, kernel discrepancy); the loss is the plain bound, in bits.",
        "`zhao2019`",
    ),
    "vqvae": (
        128,
        0.003,
        "vector-quantised autoencoders with a transformer as prior; the loss is the bound, in\n"
        "bits. Convolutions and prior grow together; the likelihood is the VAE's.",
        "`vandenoord2017`",
    ),
}
"""Batch, learning rate, description and references by family."""

RECIPES = {name: example_recipe(_requests, name, *about) for name, about in _FAMILIES.items()}
"""Recipes by family."""

affine_coupling = RECIPES["affine_coupling"]
spline_coupling = RECIPES["spline_coupling"]
masked_autoregressive = RECIPES["masked_autoregressive"]
nice = RECIPES["nice"]
inverse_autoregressive = RECIPES["inverse_autoregressive"]
planar = RECIPES["planar"]
radial = RECIPES["radial"]
continuous = RECIPES["continuous"]
glow = RECIPES["glow"]
variational_splines = RECIPES["variational_splines"]
discrete = RECIPES["discrete"]
vae = RECIPES["vae"]
beta_vae = RECIPES["beta_vae"]
info_vae = RECIPES["info_vae"]
vqvae = RECIPES["vqvae"]


def _diffusion_recipe(family: str, summary: str, references: str) -> Callable[..., list[Spec]]:
    """The recipe of a family of diffusion models, whose network depends on the target."""

    def recipe(
        target: Vectors,
        ladder: Iterable[float],
        *,
        tokens: Sequence[float],
        seeds: int,
        batch: int | None = None,
        lr: float | None = None,
    ) -> list[Spec]:
        # A U-Net of images, a dense network of points.
        size, rate = (128, 0.005) if isinstance(target, Images) else (256, 0.02)
        size, rate = size if batch is None else batch, rate if lr is None else lr
        common = {"tokens": tokens, "seeds": seeds, "batch": size, "lr": rate}
        return _requests(family, target, ladder, **common)

    return named(recipe, family, summary, references)


diffusion = _diffusion_recipe(
    "diffusion",
    "diffusion models with the preconditioning of EDM: a dense network of points and tables, a\n"
    "U-Net of images. The loss is the likelihood by the probability flow.",
    "`karras2022`; `song2021score`",
)
flow_matching = _diffusion_recipe(
    "flow_matching",
    "flow matching along straight paths, with the networks of `diffusion`. The loss is the\n"
    "likelihood of the flow.",
    "`lipman2023`",
)
