"""A small classifier for the metrics that train one; convolutional on images."""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require
from allometry.measure.pair_blocks import spans
from allometry.measure.sample_inputs import (
    Array,
    as_tensor,
    class_labels,
    generator,
    tensor,
    whole_seed,
)


@final
class Classifier(nn.Module):
    """Standardised inputs, a feature network of `width` outputs, one logit for each class.

    Args:
        shape: Shape of one input: (d,) or (c, h, w).
        classes: Number of classes.
        width: Number of features before the logits.
    """

    centre: Tensor  # both in float64, so that an offset does not reduce the precision
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        self.shape, self.classes, self.width = shape, classes, width
        self.standardise(torch.zeros(shape), torch.ones(shape))
        if len(shape) == 3 and min(shape[1:]) >= 4:
            down = [(size + 1) // 2 for size in shape[1:]]
            down = [(size + 1) // 2 for size in down]
            self.body = nn.Sequential(
                nn.Conv2d(shape[0], 16, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(32 * down[0] * down[1], width),
                nn.ReLU(),
            )
        else:
            inputs = int(torch.tensor(shape).prod())
            self.body = nn.Sequential(
                nn.Flatten(),
                nn.Linear(inputs, width),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.ReLU(),
            )
        self.head = nn.Linear(width, classes)

    def standardise(self, centre: Tensor, scale: Tensor) -> None:
        """Set the mean and scale of the inputs."""
        for name, value in (("centre", centre), ("scale", scale)):
            self.register_buffer(name, value.double().expand(self.shape).clone())

    def embed(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n w"]:
        """The features before the logits."""
        x = (x.reshape(len(x), *self.shape).double() - self.centre) / self.scale
        return self.body(x.to(self.head.weight.dtype))

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Logits."""
        return self.head(self.embed(x))

    @torch.no_grad()
    def probabilities(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """p(y | x) in float64, a batch at a time."""
        out = [self(x[i]).double().softmax(-1) for i in spans(len(x))]
        return torch.cat(out)

    def correct(self, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """1 where the most likely class is y."""
        return (self.probabilities(x).argmax(1) == y).double()


def fit_classifier(
    data: Array,
    labels: Array,
    *,
    classes: int | None = None,
    width: int = 64,
    steps: int = 300,
    decay: float = 1e-3,
    rng: torch.Generator | None = None,
) -> Classifier:
    """A classifier trained on `data` with AdamW and a linearly decreasing rate.

    Args:
        data: Rows or images.
        labels: A class index from 0 for each.
        classes: Number of classes. Default: those in `labels`.
        width: Width of the hidden layers.
        steps: Training steps.
        decay: Weight decay.
        rng: Random generator for weights and batches.
    """
    x = tensor(data, "data").double()
    x = x[:, None] if x.ndim == 3 else x
    y = as_tensor(labels).long().reshape(-1)
    y = class_labels(y, len(x)) if classes is None else y
    require(len(y) == len(x), "labels", f"have one entry for each of the {len(x)} rows", len(y))
    rng = generator(rng)
    count = int(y.max()) + 1 if classes is None else classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(whole_seed(rng))
        model = Classifier(tuple(x.shape[1:]), count, width).float()
    # A nearly constant pixel must not be amplified: its scale is at least 5 % of the typical one.
    spread = x.std(0)
    typical = float(spread.pow(2).mean().sqrt())
    model.standardise(x.mean(0), spread.clamp(min=0.05 * typical if typical > 0 else 1.0))
    train(model, x, y, steps=steps, decay=decay, rng=rng)
    return model


def train(
    model: Classifier,
    x: Float[Tensor, "n ..."],
    y: Int[Tensor, " n"],
    *,
    steps: int,
    batch: int = 128,
    lr: float = 3e-3,
    decay: float = 1e-3,
    rng: torch.Generator,
) -> None:
    """Train in place for some steps."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < min(batch, len(x)):
            order = torch.cat([order, torch.randperm(len(x), generator=rng)])
        rows, order = order[:batch], order[batch:]
        loss = functional.cross_entropy(model(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
