r"""Tunes with a known law: a key, seven bars, in each a chord and eight notes.

A tune is 64 symbols: its key, then for each bar the degree of its chord and eight notes. Chords
follow a chain of tonal harmony; a note is drawn from the scale of the key, near to the note
before and mostly from the chord. Everything the law depends on stands in the tune, the key at its
very beginning, so the probability of a next symbol is exact, and a model must look far back to
reach it.

Letters: n tunes, L = 64 symbols.
"""

import functools

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import require

BARS, NOTES = 7, 8
LENGTH = 1 + BARS * (1 + NOTES)
KEYS, DEGREES = 12, 6
LOWEST, PITCHES = 55, 32
"""MIDI number of the lowest note, and how many there are."""

SIZE = KEYS + DEGREES + PITCHES
"""Symbols: keys, then degrees of chords, then pitches."""

SCALE = (0, 2, 4, 5, 7, 9, 11)
MIDDLE = 16
"""The pitch, counted from the lowest, near which a tune begins."""

CHORDS = np.array(
    # to:  I    ii   iii  IV   V    vi
    [
        [0.10, 0.15, 0.05, 0.30, 0.25, 0.15],
        [0.05, 0.05, 0.05, 0.15, 0.65, 0.05],
        [0.05, 0.10, 0.05, 0.35, 0.05, 0.40],
        [0.25, 0.15, 0.02, 0.08, 0.45, 0.05],
        [0.60, 0.03, 0.02, 0.10, 0.05, 0.20],
        [0.10, 0.30, 0.05, 0.35, 0.15, 0.05],
    ]
)
"""How likely one chord is followed by another; a row sums to one."""

OUTSIDE = 0.15
"""The weight of a note of the scale outside the chord, where one inside has 1."""

REACH = 3.0
"""Semitones over which a note is drawn to the one before."""


@functools.cache
def _law() -> Float[ndarray, "12 6 32 32"]:
    """Probability of a note by key, chord and the note before."""
    pitch = np.arange(PITCHES)
    near = np.exp(-np.abs(pitch[:, None] - pitch) / REACH)
    near[pitch, pitch] *= 0.5  # to stay is less usual than to move
    table = np.empty((KEYS, DEGREES, PITCHES, PITCHES))
    for key in range(KEYS):
        steps = (pitch + LOWEST - key) % 12
        for degree in range(DEGREES):
            chord = [SCALE[(degree + third) % 7] for third in (0, 2, 4)]
            weight = np.where(np.isin(steps, chord), 1.0, OUTSIDE) * np.isin(steps, SCALE)
            table[key, degree] = near * weight
    return table / table.sum(-1, keepdims=True)


def tunes(n: int, seed: int = 0) -> Int[ndarray, "n 64"]:
    """Tunes drawn from the law.

    Args:
        n: How many.
        seed: Of the draws.
    """
    require(n >= 1, "tunes.n", "be at least 1", n)
    rng = np.random.default_rng(seed)
    law, made = _law(), np.empty((n, LENGTH), dtype=np.int64)
    key, degree, pitch = rng.integers(KEYS, size=n), np.zeros(n, dtype=np.int64), None
    made[:, 0] = key
    before = np.full(n, MIDDLE)
    for place in range(1, LENGTH):
        bar = (place - 1) // (1 + NOTES)
        if (place - 1) % (1 + NOTES) == 0:
            degree = degree if bar == 0 else _drawn(CHORDS[degree], rng)
            made[:, place] = KEYS + degree
        else:
            pitch = _drawn(law[key, degree, before], rng)
            made[:, place] = KEYS + DEGREES + pitch
            before = pitch
    return made


def log_prob(rows: Int[ndarray, "n L"]) -> Float[ndarray, "n L"]:
    """The exact log-probability of every symbol of each tune given those before it.

    Minus infinity where a symbol can't stand.
    """
    good = rows.ndim == 2 and rows.shape[1] == LENGTH
    require(good, "log_prob.rows", f"be tunes of {LENGTH} symbols", rows.shape)
    law, n = _law(), len(rows)
    out = np.full(rows.shape, -np.inf)
    key = rows[:, 0]
    out[(key >= 0) & (key < KEYS), 0] = -np.log(KEYS)
    key = np.clip(key, 0, KEYS - 1)
    degree, before = np.zeros(n, dtype=np.int64), np.full(n, MIDDLE)
    for place in range(1, LENGTH):
        first = (place - 1) % (1 + NOTES) == 0
        offset, top = (KEYS, DEGREES) if first else (KEYS + DEGREES, PITCHES)
        value = rows[:, place] - offset
        fits = (value >= 0) & (value < top)
        value = np.clip(value, 0, top - 1)
        if not first:
            p, before = law[key, degree, before, value], value
        elif place == 1:  # every tune begins on its tonic
            p, degree = (value == 0).astype(np.float64), value
        else:
            p, degree = CHORDS[degree, value], value
        with np.errstate(divide="ignore"):
            out[:, place] = np.where(fits, np.log(p), -np.inf)
    return out


def written(row: Int[ndarray, " 64"]) -> str:
    """A tune as people write it: key, then the chord of each bar and its notes."""
    names = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
    romans = ("I", "ii", "iii", "IV", "V", "vi")
    words = []
    for symbol in row.tolist():
        if 0 <= symbol < KEYS:
            words.append(f"{names[symbol]}:")
        elif symbol < KEYS + DEGREES:
            words.append(f"| {romans[symbol - KEYS]}")
        else:
            pitch = LOWEST + symbol - KEYS - DEGREES
            words.append(f"{names[pitch % 12]}{pitch // 12 - 1}")
    return " ".join(words)


def _drawn(p: Float[ndarray, "n k"], rng: np.random.Generator) -> Int[ndarray, " n"]:
    cdf = p.cumsum(-1)
    return (cdf > rng.random((len(p), 1)) * cdf[:, -1:]).argmax(-1)
