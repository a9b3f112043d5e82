"""One transformer on many kinds of data: text, pictures, tunes, series.

Letters: H_0 the entropy of single symbols.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.decode import plain, sample
from allometry.measure.likelihood import scaled
from allometry.models import Transformer
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.text_run import text_training
from allometry.study.recipes.transformer import BASE_WIDTH, cost, decoder, grow
from allometry.study.request import Outcome, RunContext, TrainingRequest
from allometry.targets import Symbols, Text, music
from allometry.train import checkpoint
from allometry.train.budget import Budget
from allometry.train.evaluate import evaluate
from allometry.train.loop import Trained
from allometry.train.optimiser import adamw
from allometry.train.training import Training


@final
@dataclass(frozen=True)
class DomainRun(TrainingRequest):
    r"""The transformer of `TransformerRun` on any sequences of symbols.

    Its loss is told in shares of $H_0$, the nats of a single symbol of the training part, so that
    domains of different alphabets stand on one scale: 1 is what counting symbols reaches.

    Args:
        target: A text, or rows of symbols.
        fingerprint: Of its content.
        width: Of the residual stream.
        depth: Blocks.
        heads: Attention heads of a block.
        context: Symbols the model sees.
        batch: Sequences in a batch.
        steps: Updates.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.
        seed: Of weights and data order.
        rung: Which size of the ladder this is, from 0.
        weight_decay: Decoupled, on hidden matrices.
    """

    target: Text | Symbols
    fingerprint: str
    width: int
    depth: int
    heads: int
    context: int
    batch: int
    steps: int
    lr: float
    seed: int
    rung: int
    weight_decay: float = 0.1

    @property
    def columns(self) -> dict[str, Any]:
        """The domain stands for the family: what is compared is data, not models."""
        plural = "s" if self.depth > 1 else ""
        return {
            "family": domain(self.target),
            "target": self.target.name,
            "shape": f"{self.depth} layer{plural}, width {self.width}",
            "rung": self.rung,
            "seed": self.seed,
        }

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.width, self.depth, self.heads, self.context

    def model(self) -> Transformer:
        """The untrained model."""
        rng = torch.Generator().manual_seed(self.seed)
        return decoder(alphabet(self.target), *self._shape, rng=rng)

    def budget(self) -> Budget:
        """Counted on the model's shapes, without its numbers."""
        N, N_embedding, per_token = cost(alphabet(self.target), *self._shape)
        D = self.steps * self.batch * self.context
        return Budget(N, N_embedding, D, per_token * D)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic at a modest rate."""
        return self.steps * (0.002 + 0.0015 * self.depth) + self.budget().C / 5e10

    def training(self) -> Training:
        """By next symbols, with the rate scaled to width and depth."""
        if self.target.fingerprint != self.fingerprint:
            name = self.target.name
            raise InputError(f"{name} must not change while its study goes on; it has.")
        torch.set_default_dtype(torch.float32)
        model = self.model()
        optimiser = adamw(
            model,
            lr=self.lr / math.sqrt(self.depth),
            width=self.width,
            base_width=BASE_WIDTH,
            weight_decay=self.weight_decay,
        )
        return text_training(self, model, optimiser)

    def finish(
        self, place: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Measure on validation and test, draw one sequence."""
        target = self.target
        test = evaluate(model, target, "test", context=self.context)
        weights = {"family": domain(target), "target": target.name}
        checkpoint.save_weights(place.weights, model, weights)
        unit = 1 / entropy(target)
        nats = trained.loss
        return outcome(
            self.columns,
            self.budget(),
            trained,
            loss=scaled(nats, unit),
            test=scaled(test, unit),
            D_unique=target.D_unique,
            scale=unit,
            sample=shown(model, target, self.seed),
            nats=nats.value,
            nats_se=nats.se,
            symbol_entropy=1 / unit,
            floor=getattr(target, "floor", None),
        )


def domain(target: Text | Symbols) -> str:
    """What kind of data a target is, in one word."""
    return "text" if isinstance(target, Text) else target.name


def alphabet(target: Text | Symbols) -> int:
    """Symbols there are."""
    return target.vocabulary.size if isinstance(target, Text) else target.size


def entropy(target: Text | Symbols) -> float:
    """$H_0$ of the training part, in nats."""
    if isinstance(target, Symbols):
        return target.entropy()
    share = torch.bincount(target.train.long()).double()
    share = share[share > 0] / share.sum()
    return float(-(share * share.log()).sum())


def shown(model: nn.Module, target: Text | Symbols, seed: int) -> str:
    """One sequence of the model's own, as people would write it."""
    if isinstance(target, Text):
        start = target.vocabulary.encode("\n").tolist()
        return target.vocabulary.decode(sample(model, start, plain, n=120, rng=seed))
    drawn = sample(model, [target.size - 1], plain, n=target.length, rng=seed)
    if target.name == "tunes":
        return music.written(drawn.numpy())
    if target.name == "digits":
        ramp = " .:-=+*#%@"
        top = target.size - 1
        marks = [ramp[min(9, int(v) * 10 // top)] * 2 for v in drawn]
        return "\n".join("".join(marks[i : i + 8]) for i in range(0, 64, 8))
    return " ".join(str(int(v)) for v in drawn)


@final
class Domains:
    """Several targets as one study's: each with its own data, all with the same models.

    Args:
        targets: Of different kinds.
        context: Symbols a model sees, the rows' length where a target has rows.

    Example:
        >>> from allometry.study.recipes.domains import Domains
        >>> len(Domains.usual().targets)
        4
    """

    name = "domains"
    unit = "of the entropy of a symbol"

    def __init__(self, targets: Sequence[Text | Symbols], context: int = 64) -> None:
        require(len(targets) >= 1, "Domains.targets", "name at least one", len(targets))
        self.targets, self.context = list(targets), context

    @staticmethod
    def usual() -> "Domains":
        """The embedded text, handwritten digits, tunes, and a series with an oscillation."""
        return Domains([Text.embedded(), Symbols.digits(), Symbols.tunes(), Symbols.series()])

    @property
    def D_unique(self) -> float:
        """Distinct training symbols of the smallest."""
        return min(target.D_unique for target in self.targets)

    def describe(self) -> dict[str, Any]:
        """What a journal should remember, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            "unit": self.unit,
            "token": "symbol",
            "D_unique": self.D_unique,
            "domains": [target.describe() for target in self.targets],
            "fingerprint": " ".join(target.fingerprint[:12] for target in self.targets),
        }


def domains(
    target: Domains,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 8,
    lr: float = 0.008,
) -> list[Spec]:
    """Requests for the same transformers on every domain.

    Args:
        target: The domains.
        ladder: Wanted sizes N, without embeddings.
        tokens: Training symbols D; every size is trained on each.
        seeds: Repetitions.
        batch: Sequences in a batch.
        lr: Peak rate at `BASE_WIDTH` and depth 1.

    References: `henighan2020`.
    """
    return [
        Spec(
            DomainRun,
            target=one.spec,
            fingerprint=one.fingerprint,
            width=width,
            depth=depth,
            heads=heads,
            context=target.context,
            batch=batch,
            steps=max(1, round(D / (batch * target.context))),
            lr=lr,
            seed=seed,
            rung=rung,
        )
        for one in target.targets
        for rung, (width, depth, heads) in enumerate(dict.fromkeys(map(grow, ladder)))
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
