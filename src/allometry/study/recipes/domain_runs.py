"""One transformer on many kinds of data: text, images, tunes, time series.

Letters: H_0 the entropy of single symbols.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.decode import plain, sample
from allometry.measure.likelihood import scaled
from allometry.study.recipes.base import grid
from allometry.study.recipes.run_outcome import outcome
from allometry.study.recipes.transformer_runs import DecoderRun, decoder_shapes
from allometry.study.request import Outcome, RunContext
from allometry.targets import Symbols, Text, music
from allometry.train import checkpoint
from allometry.train.evaluate import evaluate
from allometry.train.loop import Trained
from allometry.train.training import Training


@final
@dataclass(frozen=True, kw_only=True)
class DomainRun(DecoderRun):
    r"""The transformer of `TransformerRun` on any sequences of symbols.

    Its loss is divided by $H_0$, the entropy of single symbols of the training split in nats, so
    that alphabets of different sizes have one scale: the unigram distribution reaches 1.

    Arguments: see `DecoderRun`.
    """

    target: Text | Symbols

    @property
    def family_name(self) -> str:
        """The domain: the data differ, the models do not."""
        return domain(self.target)

    @property
    def splits(self) -> bool:
        """Carried out by one process."""
        return False

    @property
    def vocabulary_size(self) -> int:
        """Number of symbols."""
        return alphabet(self.target)

    def finish(
        self, context: RunContext, training: Training, model: nn.Module, trained: Trained
    ) -> Outcome:
        """Evaluate on validation and test, generate one sequence."""
        target = self.target
        test = evaluate(model, target, "test", context=self.context)
        metadata = {"family": domain(target), "target": target.name}
        checkpoint.save_weights(context.weights, model, metadata)
        unit = 1 / entropy(target)
        nats = trained.loss
        return outcome(
            self,
            trained,
            scaled(test, unit),
            loss=scaled(nats, unit),
            D_unique=target.D_unique,
            scale=unit,
            sample=generated_sequence(model, target, self.seed),
            nats=nats.value,
            nats_se=nats.se,
            symbol_entropy=1 / unit,
            floor=getattr(target, "floor", None),
        )


def domain(target: Text | Symbols) -> str:
    """The kind of data, in one word."""
    return "text" if isinstance(target, Text) else target.name


def alphabet(target: Text | Symbols) -> int:
    """Number of symbols."""
    return target.vocabulary.size if isinstance(target, Text) else target.size


def entropy(target: Text | Symbols) -> float:
    """$H_0$ of the training split, in nats."""
    if isinstance(target, Symbols):
        return target.entropy()
    share = torch.bincount(target.train.long()).double()
    share = share[share > 0] / share.sum()
    return float(-(share * share.log()).sum())


def generated_sequence(model: nn.Module, target: Text | Symbols, seed: int) -> str:
    """One generated sequence in the domain's usual notation."""
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
    """Several targets in one study, all with the same models.

    Args:
        targets: Of different kinds.
        context: Symbols in a window; the row length of targets with rows.

    Example:
        >>> from allometry.study.recipes.domain_runs import Domains
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
        """Distinct training symbols of the smallest target."""
        return min(target.D_unique for target in self.targets)

    def describe(self) -> dict[str, Any]:
        """The target in `study.json`, as plain values."""
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
        ladder: Sizes N, without embeddings.
        tokens: Training symbols D; every size is trained on each.
        seeds: Repetitions.
        batch: Sequences in a batch.
        lr: Peak learning rate at `BASE_WIDTH` and depth 1.

    References: `henighan2020`.
    """
    common = {"context": target.context, "batch": batch, "lr": lr}
    grids = [
        grid(
            DomainRun, one, decoder_shapes(ladder), tokens, seeds, batch * target.context, **common
        )
        for one in target.targets
    ]
    return [spec for specs in grids for spec in specs]
