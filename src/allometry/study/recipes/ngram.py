"""Count models: interpolated modified Kneser-Ney of growing order. No training loop."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.measure import block_mean
from allometry.models import KneserNey
from allometry.study.recipes.run_outcome import untrained
from allometry.study.recipes.text_run import about, generate, same_text, worth
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Sources, Text
from allometry.train import checkpoint
from allometry.train.budget import Budget
from allometry.train.loop import Progress


@final
@dataclass(frozen=True)
class NgramRun(Request):
    """One n-gram on one text. Its size N is the number of counts it keeps.

    Args:
        target: The text.
        fingerprint: Of the text's content.
        order: Symbols in a gram: the context and the next one.
        rung: Which of the orders this is, from 0.
    """

    target: Text | Sources
    fingerprint: str
    order: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung; counting has no seed."""
        return {
            "family": "ngram",
            "target": self.target.name,
            "shape": f"order {self.order}",
            "rung": self.rung,
            "seed": 0,
        }

    def budget(self) -> Budget:
        """At most a count per gram and token; counting multiplies nothing, so C is 0."""
        V, D = self.target.vocabulary.size, self.target.D_unique
        return Budget(sum(min(V**n, D) for n in range(1, self.order + 1)), 0, D, 0.0)

    def work(self) -> float:
        """Sorting the grams dominates."""
        return self.order * self.target.D_unique * 1e-6

    def __call__(self, place: RunContext) -> Outcome:
        """Count, measure on validation and test, keep the counts, write a few lines."""
        started = time.monotonic()
        same_text(self.target, self.fingerprint)
        model = KneserNey(self.order, self.target.vocabulary.size).fit(self.target.train)
        # The first token has no context in a transformer's evaluation: leave it out here too.
        loss = block_mean(-model.log_prob(self.target.validation).numpy()[1:])
        test = block_mean(-model.log_prob(self.target.test).numpy()[1:])
        seconds = time.monotonic() - started
        shape = Spec(KneserNey, order=self.order, vocabulary=self.target.vocabulary.size)
        checkpoint.save_weights(place.weights, model, about("ngram", shape, self.target))
        place.watch(Progress(1, 1, loss.value))
        counted = dataclasses.replace(self.budget(), N=model.N)
        return Outcome(
            columns=self.columns | untrained(counted, loss, test, seconds),
            sample=generate(model, self.target, 0),
            measures=worth(model, self.target, 0),
        )


def ngram(
    target: Text | Sources,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    orders: Sequence[int] = range(1, 9),
) -> list[Spec]:
    """Requests for an n-gram of each order; sizes, tokens and seeds do not concern it.

    References: `chen1999` section 3.
    """
    require(min(orders, default=0) >= 1, "ngram.orders", "be at least 1", list(orders))
    return [
        Spec(
            NgramRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            order=order,
            rung=rung,
        )
        for rung, order in enumerate(sorted(orders))
    ]
