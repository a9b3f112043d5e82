"""Autoencoders: plain, variational and vector-quantised."""

from allometry.models.autoencoders.autoencoder import Autoencoder, convolutional, deep, linear
from allometry.models.autoencoders.code_prior import GenerativeVQVAE, generative_vqvae
from allometry.models.autoencoders.collapse import (
    active_units,
    gradient_variances,
    kl_split,
    mutual_information,
)
from allometry.models.autoencoders.encoders import Dense, Down, Up
from allometry.models.autoencoders.likelihoods import (
    Bernoulli,
    Categorical,
    DiscretisedLogistic,
    Gaussian,
    Likelihood,
)
from allometry.models.autoencoders.linear_gaussian import LinearGaussian, fit_linear_gaussian
from allometry.models.autoencoders.vae import VAE, annealed_importance, dense_vae
from allometry.models.autoencoders.vqvae import VQVAE, Codebook, convolutional_vqvae, perplexity

__all__ = [
    "VAE",
    "VQVAE",
    "Autoencoder",
    "Bernoulli",
    "Categorical",
    "Codebook",
    "Dense",
    "DiscretisedLogistic",
    "Down",
    "Gaussian",
    "GenerativeVQVAE",
    "Likelihood",
    "LinearGaussian",
    "Up",
    "active_units",
    "annealed_importance",
    "convolutional",
    "convolutional_vqvae",
    "deep",
    "dense_vae",
    "fit_linear_gaussian",
    "generative_vqvae",
    "gradient_variances",
    "kl_split",
    "linear",
    "mutual_information",
    "perplexity",
]
