"""How each family is grown to a wanted size and trained."""

from allometry.study.recipes.brackets import twins
from allometry.study.recipes.gan import gan
from allometry.study.recipes.ngram import ngram
from allometry.study.recipes.sequence import convolution, gru, lstm, mlp, rnn
from allometry.study.recipes.transformer import transformer
from allometry.study.recipes.universal import built, learner

__all__ = [
    "built",
    "convolution",
    "gan",
    "gru",
    "learner",
    "lstm",
    "mlp",
    "ngram",
    "rnn",
    "transformer",
    "twins",
]
