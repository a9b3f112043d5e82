"""Plain autoencoders of any size: squared error of the copy against parameters.

Letters: d numbers of an example, k of its code.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models import autoencoders as ae
from allometry.study.recipes.density import BASE_WIDTH, Vectors, nearest_width
from allometry.study.recipes.quantiser import UNIT, rows
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images
from allometry.train import checkpoint, objectives
from allometry.train.budget import Budget, count_cost, count_parameters
from allometry.train.loop import descend
from allometry.train.optimiser import adamw

CODE, NOISE, SPARSITY, CONTRACTION = 8, 0.1, 0.01, 0.01
"""Numbers in the code (fewer where an example has fewer than twice as many), and what the families
add: noise of this deviation, weights of the code's and of the Jacobian's size."""

FAMILIES = (
    "autoencoder",
    "linear_autoencoder",
    "convolutional_autoencoder",
    "sparse_autoencoder",
    "denoising_autoencoder",
    "contractive_autoencoder",
)


@final
@dataclass(frozen=True)
class AutoencoderRun(Request):
    """One autoencoder on one target under one budget and seed.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
        family: Of `FAMILIES`.
        width: Of its networks (of the code, for the linear one).
        batch: Examples in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH`.
        seed: Of weights, data order and noise.
        rung: Which size of the ladder this is, from 0.
    """

    target: Vectors
    fingerprint: str
    family: str
    width: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        return {
            "family": self.family.replace("_", " "),
            "target": self.target.name,
            "shape": f"width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def shape(self) -> Spec:
        """The model without its numbers."""
        return Spec(made, family=self.family, shape=list(self.target.shape), width=self.width)

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, each = _cost(self.shape)
        D = self.steps * self.batch
        return Budget(N, 0, D, each * D)

    def work(self) -> float:
        """A fixed price per step, and the arithmetic at a modest rate."""
        price = 8e-3 if self.family == "contractive_autoencoder" else 2e-3
        return self.steps * price + self.budget().C / 2e10

    def __call__(self, place: RunContext) -> Outcome:
        """Train, measure on validation and test, keep the weights."""
        if self.target.fingerprint != self.fingerprint:
            raise InputError(
                f"{self.target.name} must not change while its study goes on. "
                "Start a new study folder."
            )
        torch.set_default_dtype(torch.float32)
        rng = torch.Generator().manual_seed(self.seed)
        model = made(self.family, self.target.shape, self.width, rng)
        trained = descend(
            model,
            adamw(model, lr=self.lr, width=self.width, base_width=BASE_WIDTH),
            self._objective(model),
            lambda: self._error(model, "validation"),
            steps=self.steps,
            seen=self.batch,
            clip=10.0 * math.sqrt(self.target.dim),
            save_to=place.checkpoint,
            watch=place.watch,
            stop=place.stop,
        )
        test = self._error(model, "test")
        about = {"family": self.family, "target": self.target.name, "unit": UNIT}
        checkpoint.save_weights(place.weights, model, about)
        budget = self.budget()
        each = budget.C / budget.D
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": 0,
                "D": budget.D,
                "D_unique": min(self.target.D_unique, budget.D),
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": trained.loss.value,
                "loss_se": trained.loss.se,
                "test_loss": test.value,
                "test_loss_se": test.se,
                "seconds": trained.seconds,
                "dtype": trained.precision,
            },
            curve={
                "step": [float(s) for s in trained.curve.step],
                "tokens": [float(t) for t in trained.curve.tokens],
                "flops": [t * each for t in trained.curve.tokens],
                "loss": trained.curve.loss,
            },
        )

    def _shaped(self, x: Tensor) -> Tensor:
        return rows(self.target, x).unflatten(1, self.target.shape)

    def _objective(self, model: ae.Autoencoder) -> Callable[[int], Tensor]:
        def loss(step: int) -> Tensor:
            x = self._shaped(self.target.batch(step, size=self.batch, seed=self.seed))
            if self.family == "sparse_autoencoder":
                return objectives.sparse(model, x, SPARSITY)
            if self.family == "contractive_autoencoder":
                return objectives.contractive(model, x, CONTRACTION)
            if self.family == "denoising_autoencoder":
                rng = torch.Generator().manual_seed(1_000_003 * self.seed + step)
                return objectives.denoising(model, x, NOISE * torch.randn(x.shape, generator=rng))
            return objectives.reconstruction(model, x)

        return loss

    @torch.no_grad()
    def _error(self, model: ae.Autoencoder, split: str) -> Estimate:
        """Of the copies of clean held-out examples, whatever the training added."""
        x = self._shaped(self.target.split(split))
        squares = (model(x) - x).square().flatten(1).mean(1).double()
        se = squares.std().item() / len(x) ** 0.5
        return Estimate(squares.mean().item(), se, n=len(x), method="independent rows")


def made(
    family: str, shape: Sequence[int], width: int, rng: torch.Generator | None = None
) -> ae.Autoencoder:
    """The autoencoder of a family for examples of one shape.

    Args:
        family: Of `FAMILIES`.
        shape: Of an example; images for the convolutional one.
        width: Of two hidden layers or of the convolutions; the code's, for the linear one.
        rng: Source of the initial weights; `None` means seed 0.
    """
    require(family in FAMILIES, "family", f"be one of {FAMILIES}", family)
    d = math.prod(shape)
    code = min(CODE, max(1, d // 2))
    if family == "linear_autoencoder":
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        code = min(width, d)
        return ae.Autoencoder(ae.Dense(shape, (code,), rng=rng), ae.Dense((code,), shape, rng=rng))
    if family == "convolutional_autoencoder":
        require(len(shape) == 3, family, "be given images", tuple(shape))
        halvings = 2 if shape[1] % 4 == 0 and shape[2] % 4 == 0 else 1
        grid = math.prod(shape[1:]) // 4**halvings
        return ae.convolutional(shape, max(1, code // grid), width, halvings, rng)
    return ae.deep(shape, code, (width, width), rng)


@functools.cache
def _cost(shape: Spec) -> tuple[int, float]:
    """N and training FLOPs per example of the plain objective."""

    def loss(model: Any) -> Tensor:
        return objectives.reconstruction(model, torch.zeros(2, *shape.arguments["shape"]))

    N, _, flops = count_cost(shape, loss)
    return N, flops / 2


def grow(family: str, shape: Sequence[int], N: float) -> int:
    """The width of an autoencoder with about `N` parameters."""

    @functools.cache
    def size(width: int) -> int:
        with torch.device("meta"):
            return count_parameters(made(family, shape, width))[0]

    most = math.prod(shape) if family == "linear_autoencoder" else 4096
    return nearest_width(size, N, most)


def _recipe(family: str, about: str) -> Callable[..., list[Spec]]:
    def recipe(
        target: Vectors,
        ladder: Iterable[float],
        *,
        tokens: Sequence[float],
        seeds: int,
        batch: int = 128,
        lr: float = 0.003,
    ) -> list[Spec]:
        require(batch >= 1, f"{family}.batch", "be at least 1", batch)
        if family == "convolutional_autoencoder":
            require(isinstance(target, Images), f"{family}.target", "be images", target)
        widths = list(dict.fromkeys(grow(family, target.shape, N) for N in ladder))
        return [
            Spec(
                AutoencoderRun,
                target=target.spec,
                fingerprint=target.fingerprint,
                family=family,
                width=width,
                batch=batch,
                steps=max(1, round(D / batch)),
                lr=lr,
                seed=seed,
                rung=rung,
            )
            for rung, width in enumerate(widths)
            for D in sorted(set(tokens))
            for seed in range(seeds)
        ]

    recipe.__name__ = recipe.__qualname__ = family
    recipe.__doc__ = f"Requests for {about}"
    return recipe


autoencoder = _recipe(
    "autoencoder",
    """undercomplete autoencoders of two hidden layers either way, of each size.

    References: `goodfellow2016` section 14.1.
    """,
)
linear_autoencoder = _recipe(
    "linear_autoencoder",
    """linear autoencoders, whose code grows: the best is the principal subspace.

    References: `baldi1989`.
    """,
)
convolutional_autoencoder = _recipe(
    "convolutional_autoencoder",
    """convolutional autoencoders of images, of each size.

    References: `goodfellow2016` section 14.3.
    """,
)
sparse_autoencoder = _recipe(
    "sparse_autoencoder",
    """autoencoders that pay for the size of their code.

    References: `ng2011`.
    """,
)
denoising_autoencoder = _recipe(
    "denoising_autoencoder",
    """autoencoders that are shown noisy examples and judged on clean ones.

    References: `vincent2008`.
    """,
)
contractive_autoencoder = _recipe(
    "contractive_autoencoder",
    """autoencoders that pay for their encoder's Jacobian.

    References: `rifai2011`.
    """,
)

PLAIN = {
    "autoencoder": autoencoder,
    "linear_autoencoder": linear_autoencoder,
    "convolutional_autoencoder": convolutional_autoencoder,
    "sparse_autoencoder": sparse_autoencoder,
    "denoising_autoencoder": denoising_autoencoder,
    "contractive_autoencoder": contractive_autoencoder,
}
