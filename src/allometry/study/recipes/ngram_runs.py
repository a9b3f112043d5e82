"""N-gram baselines: interpolated modified Kneser-Ney of growing order, without training loop."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.measure import block_mean
from allometry.models import KneserNey
from allometry.study.recipes.base import identity, require_unchanged
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.recipes.text_run import generate, text_metrics, weights_metadata
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Sources, Text
from allometry.train import checkpoint
from allometry.train.budget import Budget
from allometry.train.loop import Progress


@final
@dataclass(frozen=True)
class NgramRun(Request):
    """One n-gram model on one text. Its size N is the number of stored counts.

    Args:
        target: The text.
        fingerprint: Of the text's content.
        order: Tokens in an n-gram: the context and the next token.
        rung: Index of the order, from 0.
    """

    target: Text | Sources
    fingerprint: str
    order: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape and rung; counting has no seed."""
        return identity("ngram", self.target.name, f"order {self.order}", self.rung)

    def budget(self) -> Budget:
        """At most one count per n-gram and token. Counting multiplies nothing: C is 0."""
        V, D = self.target.vocabulary.size, self.target.D_unique
        return Budget(sum(min(V**n, D) for n in range(1, self.order + 1)), 0, D, 0.0)

    def work(self) -> float:
        """Sorting the n-grams dominates."""
        return self.order * self.target.D_unique * 1e-6

    def __call__(self, context: RunContext) -> Outcome:
        """Count, evaluate on validation and test, save the counts, generate text."""
        started = time.monotonic()
        require_unchanged(self.target, self.fingerprint)
        vocabulary = self.target.vocabulary
        ends = {} if vocabulary.boundary is None else {"boundary": vocabulary.boundary}
        shape = Spec(KneserNey, order=self.order, vocabulary=vocabulary.size, **ends)
        model = shape().fit(self.target.train)
        # A transformer's evaluation has no context for the first token: leave it out here too.
        loss = block_mean(-model.log_prob(self.target.validation).numpy()[1:])
        test = block_mean(-model.log_prob(self.target.test).numpy()[1:])
        seconds = time.monotonic() - started
        metadata = weights_metadata("ngram", shape, self.target)
        checkpoint.save_weights(context.weights, model, metadata)
        context.watch(Progress(1, 1, loss.value))
        budget = dataclasses.replace(self.budget(), N=model.N)
        costs = {"D_unique": budget.D, "seconds": seconds, "counted": False}
        return Outcome(
            columns=self.columns | journal_columns(budget, loss, test, **costs),
            # The logits of the last symbol alone, from the context that the order needs.
            sample=generate(model.logits, self.target, 0),
            measures=text_metrics(model.logits, self.target, 0),
        )


def ngram(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    orders: Sequence[int] = range(1, 9),
) -> list[Spec]:
    """Requests for an n-gram model of each order; sizes, tokens and seeds are ignored.

    References: `chen1999` section 3.
    """
    require(min(orders, default=0) >= 1, "ngram.orders", "be at least 1", list(orders))
    text = {"target": target.spec, "fingerprint": target.fingerprint}
    return [
        Spec(NgramRun, **text, order=order, rung=rung) for rung, order in enumerate(sorted(orders))
    ]
