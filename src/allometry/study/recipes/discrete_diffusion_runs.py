"""Discrete diffusion of text: masked and uniform, at any size."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.measure.likelihood import block_mean
from allometry.models.diffusion import DiscreteDiffusion, even_levels
from allometry.study.recipes.base import require_unchanged
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import (
    CURVE_TOKENS,
    SAMPLE,
    TokenRun,
    text_metrics,
    text_recipe,
    weights_metadata,
)
from allometry.study.recipes.transformer_runs import decoder_shapes
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Sources, Text
from allometry.train import checkpoint
from allometry.train.budget import count_cost
from allometry.train.evaluate import some_windows
from allometry.train.loop import Trained
from allometry.train.training import Training

DRAWS = 4
"""Draws of the bound for each window of the evaluation at the end."""


@final
@dataclass(frozen=True, kw_only=True)
class DiscreteDiffusionRun(TokenRun, TrainingRequest):
    """One discrete diffusion model on one text, for one budget and seed.

    Further arguments: see `TokenRun`.

    Args:
        noise: `"masked"` or `"uniform"`.
        heads: Attention heads of a block.
    """

    target: Text | Sources
    noise: str
    heads: int

    @property
    def family_name(self) -> str:
        """The family as the journal names it."""
        return f"{self.noise}_diffusion"

    @property
    def splits(self) -> bool:
        """The loss is a mean over windows."""
        return True

    @property
    def _sizes(self) -> dict[str, Any]:
        sizes = {"width": self.width, "depth": self.depth, "heads": self.heads}
        V = self.target.vocabulary.size
        return {"vocabulary": V, **sizes, "context": self.context, "noise": self.noise}

    @property
    def shape(self) -> Spec:
        """The model without its weights."""
        return Spec(DiscreteDiffusion, **self._sizes)

    def model(self) -> DiscreteDiffusion:
        """The untrained model."""
        return DiscreteDiffusion(**self._sizes, rng=torch.Generator().manual_seed(self.seed))

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per token."""
        return _cost(self.shape)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10

    def training(self) -> Training:
        """By the bound, with the learning rate scaled to the shape."""
        require_unchanged(self.target, self.fingerprint)
        model = self.model()
        return Training(
            model=model,
            optimiser=self.optimiser(model),
            objective=_objective,
            batch=self._batch,
            measure=lambda model: bound_on(
                model, self.target, "validation", most=CURVE_TOKENS, repeats=1
            ),
            steps=self.steps,
            seen=self.batch * self.context,
        )

    def _batch(self, step: int) -> tuple[Tensor, ...]:
        window = {"size": self.batch, "context": self.context, "seed": self.seed}
        tokens = self.target.batch(step, **window)[:, 1:]
        rng = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        return tokens, even_levels(self.batch, rng), torch.rand(*tokens.shape, 2, generator=rng)

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate on validation and test data, save the weights, generate text."""
        assert isinstance(model, DiscreteDiffusion)
        loss, test = (bound_on(model, self.target, name) for name in ("validation", "test"))
        metadata = weights_metadata(self.family_name, self.shape, self.target)
        checkpoint.save_weights(context.weights, model, metadata)
        rng = torch.Generator().manual_seed(self.seed)
        windows = model.sample(-(-SAMPLE // self.context), rng=rng)
        return outcome(
            self,
            trained,
            test,
            D_unique=self.target.D_unique,
            loss=loss,
            sample="\n".join(self.target.vocabulary.decode(row) for row in windows.tolist()),
            measures=text_metrics(model, self.target, self.seed, model.sample),
        )


def _objective(model: nn.Module, tokens: Tensor, u: Tensor, draws: Tensor) -> Tensor:
    bound: Any = model.bound
    return bound(tokens, u, draws).mean() / tokens.shape[1]


@torch.no_grad()
def bound_on(
    model: nn.Module,
    target: Text | Sources,
    split: str,
    *,
    batch: int = 256,
    most: int | None = None,
    repeats: int = DRAWS,
) -> Estimate:
    """The bound in nats per token on the whole windows of a split, with fixed draws.

    Args:
        model: A discrete diffusion model.
        target: Has the split.
        split: Its name.
        batch: Windows evaluated at once.
        most: Only so many tokens, rounded up to windows at even distances. Default: all.
        repeats: Draws for each window.
    """
    assert isinstance(model, DiscreteDiffusion)
    _, windows, counts = target.blocks(split, model.window)
    windows = windows[counts.all(1)].long()
    fix = "Give a longer text or a smaller context."
    require(len(windows) >= 1, f"the {split} split", "have a whole window", len(windows), fix)
    windows = windows[some_windows(len(windows), model.window, most)]
    rng = torch.Generator().manual_seed(0)
    device = model.device
    total = torch.zeros(len(windows), dtype=torch.float64)
    for _ in range(repeats):
        u = even_levels(len(windows), rng)
        for start in range(0, len(windows), batch):
            rows = windows[start : start + batch]
            draws = torch.rand(*rows.shape, 2, generator=rng)
            given = (rows, u[start : start + batch], draws)
            bounds = model.bound(*(each.to(device) for each in given)).cpu()
            total[start : start + batch] += bounds.double() / (repeats * model.window)
    return block_mean(total.numpy())


@functools.cache
def _cost(shape: Spec) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per token: the same for every seed and budget."""

    def loss(model: Any) -> Tensor:
        tokens = torch.zeros(1, model.window, dtype=torch.int64)
        return model.bound(
            tokens, torch.full((1,), 0.5), torch.full((1, model.window, 2), 0.5)
        ).sum()

    N, N_embedding, flops = count_cost(shape, loss)
    return N, N_embedding, flops / shape.arguments["context"]


def _recipe(family: str, noise: str, lr: float, references: str) -> Callable[..., list[Spec]]:
    summary = f"{noise} discrete diffusion of text; the loss is a bound, in nats per token."
    return text_recipe(
        DiscreteDiffusionRun, decoder_shapes, family, lr, summary, references, {"noise": noise}
    )


masked_diffusion = _recipe("masked_diffusion", "masked", 0.008, "`sahoo2024`")
uniform_diffusion = _recipe("uniform_diffusion", "uniform", 0.008, "`lou2024`")
