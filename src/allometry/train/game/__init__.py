"""Games: normal form, differentiable games, GAN training."""

from allometry._core.deprecation import moved
from allometry.train.game.differentiable import (
    Game,
    LocalNash,
    alternating,
    extragradient,
    jacobian,
    local_nash,
    optimistic,
    simultaneous,
    unrolled,
)
from allometry.train.game.dirac import dirac
from allometry.train.game.gan import GANSettings, GANTraining, History
from allometry.train.game.normal_form import (
    NormalForm,
    lemke_howson,
    minimax,
    support_enumeration,
)

__all__ = [
    "GANSettings",
    "GANTraining",
    "Game",
    "History",
    "LocalNash",
    "NormalForm",
    "alternating",
    "dirac",
    "extragradient",
    "jacobian",
    "lemke_howson",
    "local_nash",
    "minimax",
    "optimistic",
    "simultaneous",
    "support_enumeration",
    "unrolled",
]

__getattr__ = moved(__name__, {"Contest": "GANTraining", "Rules": "GANSettings"})
