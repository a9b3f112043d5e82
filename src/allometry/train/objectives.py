"""Training objectives. Shapes: b batch, n positions, v vocabulary."""

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.deprecation import moved
from allometry.models.transformer import fused_decoder
from allometry.models.transformer.experts import balance_losses
from allometry.train.autoencoder_objectives import (
    adversarial,
    contractive,
    critic_loss,
    denoising,
    info_vae,
    negative_elbo,
    negative_iwae,
    quantised_bound,
    reconstruction,
    sparse,
    vector_quantised,
)
from allometry.train.pretraining import cloze, next_sentence

__all__ = [
    "adversarial",
    "balanced_next_token",
    "cloze",
    "contractive",
    "critic_loss",
    "denoising",
    "info_vae",
    "negative_elbo",
    "negative_iwae",
    "negative_log_likelihood",
    "next_sentence",
    "next_token",
    "quantised_bound",
    "reconstruction",
    "sparse",
    "squared_error",
    "vector_quantised",
]


BALANCE = 0.01
"""Weight of the balance loss of mixtures of experts."""


def next_token(model: nn.Module, tokens: Int[Tensor, "b n_plus_1"]) -> Float[Tensor, ""]:
    r"""Mean negative log-likelihood of each token given those before it, in nats.

    $-\frac{1}{bn}\sum_{i,t} \log p(x_{i,t+1} \mid x_{i,\le t})$.
    """
    fused = fused_decoder.mean_loss(model, tokens)
    if fused is not None:
        return fused
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def balanced_next_token(
    model: nn.Module, tokens: Int[Tensor, "b n_plus_1"], weight: float = BALANCE
) -> Float[Tensor, ""]:
    """`next_token` plus `weight` times the mean balance loss of the mixtures of experts.

    References: `fedus2022` Eq. (4).
    """
    with balance_losses(model) as losses:
        loss = next_token(model, tokens)
    return loss + weight * sum(losses) / max(1, len(losses))


def negative_log_likelihood(
    model: nn.Module, x: Shaped[Tensor, "b *event"], *given: Tensor
) -> Float[Tensor, ""]:
    r"""Mean of $-\log p(x)$ in nats, of any model with a `log_prob`.

    Args:
        model: A density, or a bound on one.
        x: Points or images.
        given: Further arguments of its `log_prob`: a context, or dequantisation noise.
    """
    return -model.log_prob(x, *given).mean()  # pyright: ignore[reportCallIssue]


def squared_error(
    model: nn.Module, x: Float[Tensor, "b *in_shape"], y: Float[Tensor, "b *out_shape"]
) -> Float[Tensor, ""]:
    r"""Mean over inputs of $\|g(X) - Y\|_2^2$, whose root estimates the distance $d_2$."""
    return (model(x) - y).square().flatten(1).sum(1).mean()


__getattr__ = moved(__name__, {"next_passage": "next_sentence"})
