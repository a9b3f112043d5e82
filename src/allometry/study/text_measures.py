"""Measures of text that every family has: windows of saved models against held-out windows.

A window is described by how often each frequent n-gram occurs in it. The measures of images and
points then apply, so that families without a likelihood compare with those that have one. They see
spelling and frequent words, not meaning or anything longer than a window.

Shapes: n windows, l tokens of a window, k features.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.decode import sample, temperature
from allometry.measure import features as feature_maps
from allometry.measure import kid, prdc, sliced_wasserstein
from allometry.measure.neighbours import win_probability
from allometry.models.diffusion import DiscreteDiffusion
from allometry.study.sample_generation import ChosenModel
from allometry.study.saved_models import load
from allometry.targets import Sources, Text

MOST, LEAST = 500, 50
"""Windows that are measured, at most and at least."""

TRAINING_WINDOWS = 2000
"""Training windows that the features are fitted to."""

LONGEST = 64
"""Tokens of a window, at most."""

ORDERS, FREQUENT = (2, 3, 4), 300
"""Lengths of the n-grams that are counted, and how many of each."""

COMPONENTS = 64
"""Principal components of the square roots of the counts."""

STEP = 4
"""Resolution of the longest passages that occur in the training text, in tokens."""

SEARCHED = 2_000_000
"""Training tokens in which copied passages are looked for."""

Windows = Int[ndarray, "n l"]


@final
class NgramFeatures:
    """Square roots of the counts of frequent n-grams, by principal components of the text.

    Roots have about the same variance for frequent and rare n-grams. Of five variants tried on
    Markov chains fitted to Tiny Shakespeare, this one separates their orders best.

    Args:
        windows: Training windows.
        vocabulary: Number of tokens.
    """

    def __init__(self, windows: Windows, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.codes: list[ndarray] = []
        for order in ORDERS:
            codes, counts = np.unique(_ngrams(windows, order, vocabulary), return_counts=True)
            self.codes.append(np.sort(codes[np.argsort(-counts, kind="stable")[:FREQUENT]]))
        counted = self._counts(windows)
        most = min(counted.shape[1], len(counted) - 1)
        self.project = feature_maps.pca(counted, min(COMPONENTS, most))

    def __call__(self, windows: Windows) -> Float[Tensor, "n k"]:
        """The features of windows."""
        return self.project(self._counts(windows))

    def _counts(self, windows: Windows) -> Float[Tensor, "n k"]:
        parts = []
        rows = np.arange(len(windows))[:, None]
        for order, codes in zip(ORDERS, self.codes, strict=True):
            given = _ngrams(windows, order, self.vocabulary)
            places = np.searchsorted(codes, given).clip(max=len(codes) - 1)
            counted = np.zeros((len(windows), len(codes)))
            known = codes[places] == given
            np.add.at(counted, (np.broadcast_to(rows, given.shape)[known], places[known]), 1.0)
            parts.append(counted)
        return torch.from_numpy(np.sqrt(np.concatenate(parts, 1)))


def _ngrams(windows: Windows, order: int, vocabulary: int) -> Int[ndarray, "n _"]:
    """Each n-gram of each window as one number."""
    length = windows.shape[1] - order + 1
    codes = np.zeros((len(windows), length), np.int64)
    for i in range(order):
        codes = codes * vocabulary + windows[:, i : i + length]
    return codes


@final
class Passages:
    """The passages of a training text, by length.

    Args:
        training: Its tokens.
        length: Longest passage.
    """

    def __init__(self, training: Int[ndarray, " t"], length: int) -> None:
        self.lengths = range(STEP, length + 1, STEP)
        hashes = _hashes(training[None, :SEARCHED].astype(np.uint64), self.lengths)
        self.known = [np.unique(part) for part in hashes]

    def longest(self, windows: Windows) -> Int[ndarray, " n"]:
        """Tokens of the longest passage of each window that is in the training text."""
        found = np.zeros(len(windows), np.int64)
        hashes = _hashes(windows.astype(np.uint64), self.lengths)
        for length, known, given in zip(self.lengths, self.known, hashes, strict=True):
            if not len(known):
                break
            places = np.searchsorted(known, given).clip(max=len(known) - 1)
            found[(known[places] == given).any(1)] = length
        return found


def _hashes(rows: ndarray, lengths: range) -> Iterator[ndarray]:
    """A 64-bit hash of every passage of every row, one length after another."""
    # Tokens differ by less than 2^20, so odd multiples of a large number keep them apart.
    codes = (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    total = np.zeros_like(rows)
    with np.errstate(over="ignore"):
        for length in range(1, max(lengths) + 1):
            width = rows.shape[1] - length + 1
            if width < 1:
                yield np.zeros((len(rows), 0), np.uint64)
                continue
            mixed = total[:, :width] ^ (total[:, :width] >> np.uint64(29))
            last = codes[:, length - 1 : length - 1 + width]
            total = mixed * np.uint64(0xBF58476D1CE4E5B9) + last
            if length in lengths:
                yield total


@final
class TextYardstick:
    """Held-out and training windows of a text.

    Args:
        target: The text.
        context: Tokens in a window of the models.
    """

    def __init__(self, target: Text | Sources, context: int) -> None:
        self.length = min(context, LONGEST)
        self.target = target
        test, train = target.test.numpy(), target.train.numpy()
        count = min(MOST, len(test) // self.length)
        fix = "Give a longer text or a smaller context."
        where = f"the test split of {target.name}"
        require(count >= LEAST, where, f"have {LEAST} windows of {self.length} tokens", count, fix)
        self.test = _windows(test, count, self.length)
        self.training = _windows(train, min(TRAINING_WINDOWS, len(train) // 8), self.length)
        self.features = NgramFeatures(self.training, target.vocabulary.size)
        self.passages = Passages(train, self.length)

    def measure(self, choice: ChosenModel, shown: int) -> dict[str, Any]:
        """Draw windows and measure them; the result is plain values."""
        started = time.process_time()
        windows = self.draw(choice.path)
        seconds = (time.process_time() - started) * 1000 / len(windows)
        excerpts = [self.target.vocabulary.decode(row) for row in windows[:shown].tolist()]
        return {"seconds": seconds, "measures": self.scores(windows), "pictures": excerpts}

    def draw(self, path: Path) -> Windows:
        """As many windows of a saved model as there are held-out ones.

        A model from left to right continues one random token of the training text, so that its
        windows begin anywhere, as those of the text do.
        """
        model: Any = load(path).model
        rng = torch.Generator().manual_seed(1)
        if isinstance(model, DiscreteDiffusion):
            return model.sample(len(self.test), rng=rng)[:, : self.length].numpy()
        first = torch.randint(len(self.target.train), (len(self.test),), generator=rng)
        starts = self.target.train[first].long()[:, None]
        drawn = sample(model, starts, temperature(1.0), n=self.length - 1, rng=rng)
        return torch.cat([starts, drawn], 1).numpy()

    def scores(self, windows: Windows, *, copies: bool = True) -> dict[str, Estimate]:
        """The measures of some windows against the held-out ones."""
        real, made = self.features(self.test), self.features(windows)
        near = prdc(real, made)
        found = {
            "sliced_wasserstein": sliced_wasserstein(real, made, projections=200),
            "kid": kid(real, made, subsets=9),
            "precision": near["precision"],
            "recall": near["recall"],
        }
        if copies:
            longest = self.passages.longest
            found["copying"] = win_probability(longest(windows), longest(self.test))
        return found

    def real(self) -> dict[str, Estimate]:
        """The measures of training windows in place of samples."""
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(self.training), min(len(self.test), len(self.training)), False)
        return self.scores(self.training[chosen], copies=False)


def _windows(ids: Int[ndarray, " t"], count: int, length: int) -> Windows:
    """Windows at even distances."""
    starts = np.linspace(0, len(ids) - length, count).astype(np.int64)
    return ids[starts[:, None] + np.arange(length)].astype(np.int64)
