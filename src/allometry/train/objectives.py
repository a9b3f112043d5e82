"""What training minimises. Shapes: b batch, n positions, v vocabulary."""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional


def next_token(model: nn.Module, tokens: Int[Tensor, "b n_plus_1"]) -> Float[Tensor, ""]:
    r"""Mean negative log-likelihood of each token given those before it, in nats.

    $-\frac{1}{bn}\sum_{i,t} \log p(x_{i,t+1} \mid x_{i,\le t})$.
    """
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
