"""Trained twins of the bracket networks: families and depths on the same bounded Dyck language."""

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
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Brackets
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_next_token, count_parameters
from allometry.train.loop import Progress, descend
from allometry.train.objectives import next_token
from allometry.train.optimiser import adamw

BASE_WIDTH = 32
LONGER = 4
"""How many times the trained length the models are asked to go beyond it."""

MEASURED = 128
"""Sequences of a measurement."""

DEPTHS = {"transformer": (1, 2, 3), "lstm": (1, 2), "convolution": (2, 4, 6)}
"""Layers of each family."""

RATES = {"transformer": 0.01, "lstm": 0.01, "convolution": 0.006}

Logits = Callable[[Int[Tensor, "b n"]], Float[Tensor, "b n v"]]


@torch.no_grad()
def score(model: Logits, target: Brackets, *, seed: int, length: int) -> dict[str, Estimate]:
    r"""Loss against the exact law, and how often the bracket that closes is known.

    "loss" is $-\sum_v p(v) \log q(v)$ averaged over places; "closing" the share of places with an
    open bracket at which the likeliest of the k closing brackets is the right one; "recalled"
    the same where the symbol before is not that bracket itself, so that it must be remembered.
    Standard errors are between sequences.

    Args:
        model: Logits of the next symbol.
        target: The job.
        seed: Of the sequences, none of which a training sees.
        length: Symbols of a sequence.
    """
    tokens, law, heights, tops = target.exact(-1 - seed, size=MEASURED, seed=seed, length=length)
    logits = torch.cat([model(part) for part in tokens[:, :-1].split(32)]).double()
    losses = -(law * logits.log_softmax(-1)).sum(-1).mean(1)
    right = logits[..., 1:-1:2].argmax(-1) == tops
    behind = tokens[:, :-1] % 2 == 1  # a closing bracket: the open one lies farther back
    where = {"closing": heights > 0, "recalled": (heights > 0) & behind}
    found = {"loss": _mean(losses)}
    return found | {name: _share(right & there, there) for name, there in where.items()}


def _mean(x: Float[Tensor, " b"]) -> Estimate:
    return Estimate(float(x.mean()), float(x.std() / len(x) ** 0.5), n=len(x))


def _share(good: Tensor, there: Tensor) -> Estimate:
    """A ratio of sums over sequences, its error by the delta method."""
    g, t = good.sum(1).double(), there.sum(1).double()
    if t.sum() == 0:
        return Estimate(float("nan"))
    value = float(g.sum() / t.sum())
    se = float((g - value * t).square().sum().sqrt() / t.sum())
    return Estimate(value, se, n=int(t.sum()))


@final
@dataclass(frozen=True)
class TwinRun(Request):
    """One trained model of one family and depth.

    Args:
        target: The language, as a stream.
        family: In `DEPTHS`.
        width: Of the model.
        depth: Layers.
        batch: Sequences in a batch.
        steps: Updates.
        lr: Peak rate at `BASE_WIDTH`.
        seed: Of weights and data.
        rung: Which depth this is, from 0.
    """

    target: Brackets
    family: str
    width: int
    depth: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family with the language's depth, target, shape, rung and seed."""
        plural = "s" if self.depth > 1 else ""
        return _about(self.family, self.target) | {
            "shape": f"{self.depth} layer{plural}, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
            "layers": self.depth,
        }

    def model(self) -> nn.Module:
        """The untrained model."""
        return self.drawn(torch.Generator().manual_seed(self.seed))

    def drawn(self, rng: torch.Generator | None) -> nn.Module:
        """A model of this shape."""
        v, w = self.target.size, self.width
        if self.family == "convolution":
            return CausalConvolution(v, w, self.depth, rng=rng)
        if self.family == "lstm":
            return Recurrent(v, w, self.depth, cell="lstm", rng=rng)
        # Without positions a decoder can still count, and nothing is unknown beyond the length.
        return Transformer(v, w, self.depth, 4, positions=None, rng=rng)

    def budget(self) -> Budget:
        """Counted on a model of this shape."""
        N, ends, per_token = _cost(
            self.family, self.width, self.depth, self.target.size, self.target.length
        )
        D = self.steps * self.batch * self.target.length
        return Budget(N, ends, D, per_token * D)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic at a modest rate."""
        return self.steps * (0.004 + 0.004 * self.depth) + self.budget().C / 2e10

    def __call__(self, place: RunContext) -> Outcome:
        """Train, measure at the trained length and beyond it, keep the weights."""
        torch.set_default_dtype(torch.float32)
        model, target = self.model(), self.target

        def measure(seed: int, length: int) -> dict[str, Estimate]:
            model.eval()
            found = score(model, target, seed=seed, length=length)
            model.train()
            return found

        trained = descend(
            model,
            adamw(model, lr=self.lr, width=self.width, base_width=BASE_WIDTH),
            lambda step: next_token(model, target.batch(step, size=self.batch, seed=self.seed)),
            lambda: measure(1, target.length)["loss"],
            steps=self.steps,
            seen=self.batch * target.length,
            save_to=place.checkpoint,
            watch=place.watch,
            stop=place.stop,
        )
        near, far = measure(2, target.length), measure(3, LONGER * target.length)
        checkpoint.save_weights(place.weights, model, {"family": self.family})
        budget = self.budget()
        each = budget.C / budget.D
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": budget.N_embedding,
                "D": budget.D,
                "D_unique": budget.D,
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": trained.loss.value,
                "loss_se": trained.loss.se,
                "seconds": trained.seconds,
                "dtype": trained.precision,
            }
            | _measured(near, far),
            curve={
                "step": [float(s) for s in trained.curve.step],
                "tokens": [float(t) for t in trained.curve.tokens],
                "flops": [t * each for t in trained.curve.tokens],
                "loss": trained.curve.loss,
            },
        )


@final
@dataclass(frozen=True)
class GeneratorRun(Request):
    """The construction: two layers of soft attention with the exact law, whatever D.

    Args:
        target: The language, as a stream.
        rung: Always 0.
    """

    target: Brackets
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family with the language's depth, target, shape, rung; a construction has no seed."""
        about = {"shape": "2 layers", "rung": self.rung, "seed": 0, "layers": 2}
        return _about("construction", self.target) | about

    def budget(self) -> Budget:
        """Its size does not depend on the weights; nothing is trained."""
        return Budget(_generator(self.target)[1], 0, 1, 0.0)

    def work(self) -> float:
        """Building takes no time; measuring some."""
        return 2.0

    def __call__(self, place: RunContext) -> Outcome:
        """Build and measure as the trained are."""
        started, t = time.monotonic(), self.target
        made, N = _generator(t)

        def logits(tokens: Tensor) -> Tensor:
            return torch.stack([_stream(made, row) for row in tokens])

        near = score(logits, t, seed=2, length=t.length)
        far = score(logits, t, seed=3, length=LONGER * t.length)
        export(made, place.weights, "safetensors")
        place.watch(Progress(1, 1, near["loss"].value))
        cost = {"N": N, "N_embedding": 0, "D": 1, "D_unique": 1, "C": None, "C_6ND": None}
        loss = {"loss": near["loss"].value, "loss_se": near["loss"].se}
        seconds = {"seconds": time.monotonic() - started}
        return Outcome(columns=self.columns | cost | loss | seconds | _measured(near, far))


def _generator(t: Brackets) -> tuple[Any, int]:
    made = construct.dyck(t.k, t.depth, LONGER * t.length, "generate", p=t.p)
    return made, sum(int((w != 0).sum()) for w in made.model.parameters())


@torch.no_grad()
def _stream(made: Any, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n v"]:
    """Logits along a stream of words: the network begins anew behind every end symbol."""
    end = 2 * made.k
    starts = [*(tokens == end).nonzero().flatten().tolist(), len(tokens)]
    parts = itertools.pairwise(starts)
    return torch.cat([made.model(tokens[None, i:j])[0] for i, j in parts])


def _about(family: str, target: Brackets) -> dict[str, Any]:
    name = f"{family}, nesting {target.depth}"
    return {"family": name, "target": target.name, "kind": family, "nesting": target.depth}


def _measured(near: dict[str, Estimate], far: dict[str, Estimate]) -> dict[str, Any]:
    found: dict[str, Any] = {"test_loss": near["loss"].value, "test_loss_se": near["loss"].se}
    for name in ("closing", "recalled"):
        for when, values in (("", near), ("_longer", far)):
            value, se = values[name].value, values[name].se
            # At D = 1 nothing is ever to be recalled.
            known = math.isfinite(value)
            found |= {f"{name}{when}": value if known else None}
            found |= {f"{name}{when}_se": se if known else None}
    return found


@functools.cache
def _cost(family: str, width: int, depth: int, v: int, length: int) -> tuple[int, int, float]:
    """N, N_embedding and training FLOPs per symbol."""
    target = Brackets((v - 1) // 2, 1, length)
    run = TwinRun(target, family, width, depth, 1, 1, 1e-3, 0, 0)
    make = functools.partial(run.drawn, None)
    if family == "lstm":
        N, ends = count_parameters(make())
        return N, ends, 6.0 * (N + v * width)
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
        target: The language; its D is set aside for `nestings`.
        ladder: Not used: what grows here is depth.
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
        job = Spec(Brackets, k=target.k, depth=D, length=target.length, p=target.p)
        specs.append(Spec(GeneratorRun, target=job, rung=0))
        specs += [
            Spec(
                TwinRun,
                target=job,
                family=family,
                width=width,
                depth=depth,
                batch=batch,
                steps=max(1, round(n / (batch * target.length))),
                lr=RATES[family],
                seed=seed,
                rung=rung,
            )
            for family, depths in DEPTHS.items()
            for rung, depth in enumerate(depths)
            for n in sorted(set(tokens))
            for seed in range(seeds)
        ]
    return specs
