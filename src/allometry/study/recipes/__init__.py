"""How each family is grown to a wanted size and trained."""

from allometry.study.recipes.baseline import baseline
from allometry.study.recipes.brackets import twins
from allometry.study.recipes.flows import (
    affine_coupling,
    glow,
    masked_autoregressive,
    spline_coupling,
    vae,
)
from allometry.study.recipes.gan import gan
from allometry.study.recipes.ngram import ngram
from allometry.study.recipes.sequence import convolution, gru, lstm, mlp, rnn
from allometry.study.recipes.transformer import transformer
from allometry.study.recipes.universal import built, learner

__all__ = [
    "affine_coupling",
    "baseline",
    "built",
    "convolution",
    "gan",
    "glow",
    "gru",
    "learner",
    "lstm",
    "masked_autoregressive",
    "mlp",
    "ngram",
    "rnn",
    "spline_coupling",
    "transformer",
    "twins",
    "vae",
]
