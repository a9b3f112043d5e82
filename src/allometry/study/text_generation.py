"""Text from a saved model, token by token, with its surprisal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry.decode import Sampler, beam, texture
from allometry.decode.sampling import Strategies
from allometry.study.saved_models import SavedModel


@final
@dataclass(frozen=True)
class GeneratedText:
    """A part of generated text: one token, or several that form one character."""

    text: str
    surprise: float
    """In nats, under the model itself."""


@final
class Generation:
    """A text being generated; iterate over it to get its parts as they are sampled.

    Args:
        saved: The model and its vocabulary.
        prompt: The text to continue.
        strategy: As for `decode.sample`.
        n: Largest number of tokens.
        seed: Of the sampling.
        stop: Generation ends after any of these texts.
    """

    def __init__(
        self,
        saved: SavedModel,
        prompt: str,
        strategy: Strategies,
        *,
        n: int,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> None:
        require(n >= 1, "n", "be at least 1", n)
        self.saved, self.n, self.prompt = saved, n, prompt
        self.ids: list[int] = []
        self.surprises: list[float] = []
        stops = [saved.vocabulary.encode(s).tolist() for s in stop]
        self._sampler = Sampler(saved.model, _ids(saved, prompt), strategy, rng=seed, stop=stops)

    def __iter__(self) -> Iterator[GeneratedText]:
        shown, pending, drawn = "", 0.0, []
        while len(drawn) < self.n and not bool(self._sampler.ended.all()):
            step = self._sampler.step()
            drawn.append(int(step.tokens))
            self.surprises.append(float(step.surprise))
            pending += self.surprises[-1]
            text = self.saved.vocabulary.decode(drawn)
            whole = not text.endswith("\N{REPLACEMENT CHARACTER}") or len(drawn) == self.n
            if whole or self.saved.vocabulary.unknown is not None:
                yield GeneratedText(text[len(shown) :], pending)
                shown, pending = text, 0.0
        # A grammar may remove tokens that it could not complete.
        self.ids = [t for t in self._sampler.tokens()[0].tolist() if t >= 0]
        self.surprises = self.surprises[: len(self.ids)]

    def describe(self) -> dict[str, Any]:
        """The finished text with its statistics, as plain values."""
        text = self.saved.vocabulary.decode(self.ids)
        head = {"prompt": self.prompt, "text": text, "unit": self.saved.unit}
        if not self.ids:
            return head | {"tokens": 0}
        return head | texture(self.ids, self.surprises)._asdict() | {"along": self.surprises}


def likeliest(saved: SavedModel, prompt: str, *, n: int, width: int) -> list[dict[str, Any]]:
    """The texts found by beam search, best first, with their log-probabilities."""
    hypotheses = beam(saved.model, [_ids(saved, prompt)], n=n, width=width)[0]
    assert isinstance(hypotheses, list)
    return [
        {"text": saved.vocabulary.decode(h.tokens), "log_prob": h.log_prob, "score": h.score}
        for h in hypotheses
    ]


def _ids(saved: SavedModel, prompt: str) -> list[int]:
    ids = saved.vocabulary.encode(prompt).tolist()
    if not ids:
        raise InputError("prompt must have at least one symbol; got none.")
    return ids
