"""Recipes: how each family is built at a given size and trained."""

from allometry.study.recipes.autoencoder_runs import (
    autoencoder,
    contractive_autoencoder,
    convolutional_autoencoder,
    denoising_autoencoder,
    linear_autoencoder,
    sparse_autoencoder,
)
from allometry.study.recipes.baselines import baseline, moments
from allometry.study.recipes.cooldown import cooled
from allometry.study.recipes.density_recipes import (
    affine_coupling,
    beta_vae,
    continuous,
    diffusion,
    discrete,
    flow_matching,
    glow,
    info_vae,
    inverse_autoregressive,
    masked_autoregressive,
    nice,
    planar,
    radial,
    spline_coupling,
    vae,
    variational_splines,
    vqvae,
)
from allometry.study.recipes.discrete_diffusion_runs import masked_diffusion, uniform_diffusion
from allometry.study.recipes.domain_runs import domains
from allometry.study.recipes.dyck_runs import twins
from allometry.study.recipes.gan_runs import gan
from allometry.study.recipes.ngram_runs import ngram
from allometry.study.recipes.pixel_runs import pixelcnn
from allometry.study.recipes.pretraining_tasks import upstream
from allometry.study.recipes.quantiser_runs import quantiser
from allometry.study.recipes.rate_search import at_rate, carried, checked, tuned
from allometry.study.recipes.retry import retried
from allometry.study.recipes.sequence_runs import convolution, gru, lstm, mlp, rnn
from allometry.study.recipes.state_space_runs import gla, mamba, retnet
from allometry.study.recipes.transduction_runs import transduction
from allometry.study.recipes.transformer_runs import moe, transformer
from allometry.study.recipes.universal_approximation import built, learner

__all__ = [
    "affine_coupling",
    "at_rate",
    "autoencoder",
    "baseline",
    "beta_vae",
    "built",
    "carried",
    "checked",
    "continuous",
    "contractive_autoencoder",
    "convolution",
    "convolutional_autoencoder",
    "cooled",
    "denoising_autoencoder",
    "diffusion",
    "discrete",
    "domains",
    "flow_matching",
    "gan",
    "gla",
    "glow",
    "gru",
    "info_vae",
    "inverse_autoregressive",
    "learner",
    "linear_autoencoder",
    "lstm",
    "mamba",
    "masked_autoregressive",
    "masked_diffusion",
    "mlp",
    "moe",
    "moments",
    "ngram",
    "nice",
    "pixelcnn",
    "planar",
    "quantiser",
    "radial",
    "retnet",
    "retried",
    "rnn",
    "sparse_autoencoder",
    "spline_coupling",
    "transduction",
    "transformer",
    "tuned",
    "twins",
    "uniform_diffusion",
    "upstream",
    "vae",
    "variational_splines",
    "vqvae",
]
