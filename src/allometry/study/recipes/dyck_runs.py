"""Models trained on bounded Dyck languages, compared with the constructed network."""

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry import construct
from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.construct.export import export
from allometry.models import CausalConvolution, Recurrent, Transformer
from allometry.study.recipes.base import CountedRun, grid, identity, layers
from allometry.study.recipes.run_outcome import journal_columns, outcome
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Brackets
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_next_token, count_parameters
from allometry.train.device import device_of
from allometry.train.loop import Progress
from allometry.train.objectives import next_token
from allometry.train.optimiser import adamw
from allometry.train.training import Training

BASE_WIDTH = 32
LONGER = 4
"""Length of the long test sequences, in training lengths."""

MEASURED = 128
"""Sequences in an evaluation."""

DEPTHS = {"transformer": (1, 2, 3), "lstm": (1, 2), "convolution": (2, 4, 6)}
"""Numbers of layers of each family."""

RATES = {"transformer": 0.01, "lstm": 0.01, "convolution": 0.006}

Logits = Callable[[Int[Tensor, "b n"]], Float[Tensor, "b n v"]]


@torch.no_grad()
def score(model: Logits, target: Brackets, *, seed: int, length: int) -> dict[str, Estimate]:
    r"""Cross entropy with the exact next-token distribution, and accuracy on closing brackets.

    "loss" is $-\sum_v p(v) \log q(v)$ averaged over positions. "closing" is the share of positions
    with an open bracket at which the most probable of the k closing brackets is the right one.
    "recalled" is the same where the previous symbol is not that bracket itself, so that it must
    be remembered. Standard errors are between sequences.

    Args:
        model: Logits of the next symbol.
        target: The language.
        seed: Of the sequences, which are not training data.
        length: Symbols in a sequence.
    """
    tokens, probabilities, heights, tops = target.exact(
        -1 - seed, size=MEASURED, seed=seed, length=length
    )
    device = device_of(model) if isinstance(model, nn.Module) else torch.device("cpu")
    parts = [model(part.to(device)) for part in tokens[:, :-1].split(32)]
    logits = torch.cat(parts).cpu().double()
    losses = -(probabilities * logits.log_softmax(-1)).sum(-1).mean(1)
    right = logits[..., 1:-1:2].argmax(-1) == tops
    after_closing = tokens[:, :-1] % 2 == 1  # the open bracket is farther back
    masks = {"closing": heights > 0, "recalled": (heights > 0) & after_closing}
    scores = {"loss": _mean(losses)}
    return scores | {name: _share(right & mask, mask) for name, mask in masks.items()}


def _mean(x: Float[Tensor, " b"]) -> Estimate:
    return Estimate(float(x.mean()), float(x.std() / len(x) ** 0.5), n=len(x))


def _share(right: Tensor, mask: Tensor) -> Estimate:
    """A ratio of sums over sequences; its standard error by the delta method."""
    g, t = right.sum(1).double(), mask.sum(1).double()
    if t.sum() == 0:
        return Estimate(float("nan"))
    value = float(g.sum() / t.sum())
    se = float((g - value * t).square().sum().sqrt() / t.sum())
    return Estimate(value, se, n=int(t.sum()))


@final
@dataclass(frozen=True, kw_only=True)
class TwinRun(CountedRun):
    """One trained model of one family and depth.

    Further arguments: see `CountedRun`.

    Args:
        target: The language, as a stream.
        family: In `DEPTHS`.
        width: Of the model.
        depth: Layers.
        batch: Sequences in a batch.
        lr: Peak learning rate at `BASE_WIDTH`.
    """

    target: Brackets
    family: str
    width: int
    depth: int

    @property
    def family_name(self) -> str:
        """The family with the depth of the language."""
        return f"{self.family}, nesting {self.target.depth}"

    @property
    def shape_name(self) -> str:
        """Layers and width."""
        return layers(self.depth, self.width)

    @property
    def columns(self) -> dict[str, Any]:
        """Family with the language's depth, target, shape, rung and seed."""
        own = {"kind": self.family, "nesting": self.target.depth, "layers": self.depth}
        return super().columns | own

    def model(self, rng: torch.Generator | None) -> nn.Module:
        """An untrained model of this shape."""
        v, w = self.target.size, self.width
        if self.family == "convolution":
            return CausalConvolution(v, w, self.depth, rng=rng)
        if self.family == "lstm":
            return Recurrent(v, w, self.depth, cell="lstm", rng=rng)
        # A decoder without positional encoding can still count, and has no unseen positions.
        return Transformer(v, w, self.depth, 4, positions=None, rng=rng)

    @property
    def per_row(self) -> int:
        """Symbols in a sequence."""
        return self.target.length

    def cost(self) -> tuple[int, int, float]:
        """N, N_embedding and training FLOPs per symbol."""
        sizes = (self.width, self.depth, self.target.size, self.target.length)
        return _cost(self.family, *sizes)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs at a modest rate."""
        return self.steps * (0.004 + 0.004 * self.depth) + self.budget().C / 2e10

    def __call__(self, context: RunContext) -> Outcome:
        """Train, evaluate at the training length and beyond it, save the weights."""
        model, target = self.model(torch.Generator().manual_seed(self.seed)), self.target

        def measure(model: nn.Module, seed: int, length: int) -> dict[str, Estimate]:
            model.eval()
            scores = score(model, target, seed=seed, length=length)
            model.train()
            return scores

        training = Training(
            model=model,
            optimiser=adamw(model, lr=self.lr, width=self.width, base_width=BASE_WIDTH),
            objective=next_token,
            batch=lambda step: (target.batch(step, size=self.batch, seed=self.seed),),
            measure=lambda model: measure(model, 1, target.length)["loss"],
            steps=self.steps,
            seen=self.batch * target.length,
        )
        trained = context.train(training)
        lengths = {2: target.length, 3: LONGER * target.length}
        short, long = (measure(model, seed, length) for seed, length in lengths.items())
        checkpoint.save_weights(context.weights, model, {"family": self.family})
        D = self.budget().D
        return outcome(self, trained, short["loss"], D_unique=D, **_accuracies(short, long))


@final
@dataclass(frozen=True)
class GeneratorRun(Request):
    """The construction: two soft-attention layers with the exact distribution, whatever D.

    Args:
        target: The language, as a stream.
        rung: Always 0.
    """

    target: Brackets
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family with the language's depth, target, shape, rung; a construction has no seed."""
        D = self.target.depth
        about = identity(f"construction, nesting {D}", self.target.name, "2 layers", self.rung)
        return about | {"kind": "construction", "nesting": D, "layers": 2}

    def budget(self) -> Budget:
        """The number of weights that are not 0; nothing is trained."""
        return Budget(_generator(self.target)[1], 0, 1, 0.0)

    def work(self) -> float:
        """Evaluation dominates."""
        return 2.0

    def __call__(self, context: RunContext) -> Outcome:
        """Build, and evaluate as the trained models are."""
        started, target = time.monotonic(), self.target
        construction, N = _generator(target)

        def logits(tokens: Tensor) -> Tensor:
            return torch.stack([_stream(construction, row) for row in tokens])

        short = score(logits, target, seed=2, length=target.length)
        long = score(logits, target, seed=3, length=LONGER * target.length)
        export(construction, context.weights, "safetensors")
        context.watch(Progress(1, 1, short["loss"].value))
        columns = journal_columns(
            Budget(N, 0, 1, 0.0),
            short["loss"],
            short["loss"],
            D_unique=1,
            seconds=time.monotonic() - started,
            counted=False,
        )
        return Outcome(columns=self.columns | columns | _accuracies(short, long))


def _generator(target: Brackets) -> tuple[Any, int]:
    """The construction for a language, and its number of weights that are not 0."""
    k, depth = target.k, target.depth
    made = construct.dyck(k, depth, LONGER * target.length, "generate", p=target.p)
    return made, sum(int((w != 0).sum()) for w in made.model.parameters())


@torch.no_grad()
def _stream(construction: Any, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n v"]:
    """Logits along a stream of words: the network starts anew after every end symbol."""
    end = 2 * construction.k
    starts = [*(tokens == end).nonzero().flatten().tolist(), len(tokens)]
    parts = itertools.pairwise(starts)
    return torch.cat([construction.model(tokens[None, i:j])[0] for i, j in parts])


def _accuracies(short: dict[str, Estimate], long: dict[str, Estimate]) -> dict[str, Any]:
    """Columns of both accuracies, at the training length and beyond it."""
    columns: dict[str, Any] = {}
    for name in ("closing", "recalled"):
        for suffix, scores in (("", short), ("_longer", long)):
            # At D = 1 no bracket is ever recalled: the value is undefined.
            value, se = scores[name].value, scores[name].se
            defined = math.isfinite(value)
            columns |= {f"{name}{suffix}": value if defined else None}
            columns |= {f"{name}{suffix}_se": se if defined else None}
    return columns


@functools.cache
def _cost(family: str, width: int, depth: int, v: int, length: int) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per symbol."""
    target = Brackets((v - 1) // 2, 1, length)
    sizes = {"family": family, "width": width, "depth": depth}
    run = TwinRun(target=target, **sizes, batch=1, steps=1, lr=1e-3, seed=0, rung=0)
    make = functools.partial(run.model, None)
    if family == "lstm":
        N, N_embedding = count_parameters(make())
        return N, N_embedding, 6.0 * (N + v * width)
    about = 12 * depth * width**2
    return count_next_token(make, vocabulary=v, context=length, about=about)


def twins(
    target: Brackets,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    nestings: Sequence[int] = (2, 4, 8),
    width: int = 32,
    batch: int = 32,
) -> list[Spec]:
    """Requests for every family, depth and nesting, and for the construction at each nesting.

    Args:
        target: The language; its D is replaced by `nestings`.
        ladder: Not used: depth grows here.
        tokens: Symbols seen in training.
        seeds: Repetitions.
        nestings: Values of D.
        width: Of every model.
        batch: Sequences in a batch.

    References: `yao2021` section 5 for trained transformers on such languages.
    """
    require(len(nestings) > 0, "twins.nestings", "name at least one depth", nestings)
    specs = []
    for D in nestings:
        language = Brackets(k=target.k, depth=D, length=target.length, p=target.p)
        specs.append(Spec(GeneratorRun, target=language.spec, rung=0))
        for family, depths in DEPTHS.items():
            shapes = [{"depth": depth} for depth in depths]
            common = {"family": family, "width": width, "batch": batch, "lr": RATES[family]}
            per_step = batch * target.length
            specs += grid(TwinRun, language, shapes, tokens, seeds, per_step, **common)
    return specs
