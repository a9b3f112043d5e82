r"""Tunes with a known distribution: a key and seven bars, each with a chord and eight notes.

A tune is 64 symbols: its key, then for each bar the degree of its chord and eight notes. Chords
form a Markov chain of tonal harmony. A note is sampled from the scale of the key, close to the
previous note and mostly from the chord. The tune contains everything its distribution depends on,
so next-symbol probabilities are exact. The key is at the beginning, so a model needs long context.

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
"""MIDI number of the lowest note, and the number of notes."""

SIZE = KEYS + DEGREES + PITCHES
"""Number of symbols: keys, then degrees of chords, then pitches."""

SCALE = (0, 2, 4, 5, 7, 9, 11)
MIDDLE = 16
"""The pitch, counted from the lowest, near which a tune starts."""

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
"""Transition probabilities of chords; a row sums to one."""

OUTSIDE = 0.15
"""Weight of a note of the scale outside the chord, relative to one inside."""

REACH = 3.0
"""Decay length of the weight in semitones from the previous note."""


@functools.cache
def _note_probabilities() -> Float[ndarray, "12 6 32 32"]:
    """Probability of a note by key, chord and previous note."""
    pitch = np.arange(PITCHES)
    near = np.exp(-np.abs(pitch[:, None] - pitch) / REACH)
    near[pitch, pitch] *= 0.5  # repeating a note is less likely than moving
    table = np.empty((KEYS, DEGREES, PITCHES, PITCHES))
    for key in range(KEYS):
        steps = (pitch + LOWEST - key) % 12
        for degree in range(DEGREES):
            chord = [SCALE[(degree + third) % 7] for third in (0, 2, 4)]
            weight = np.where(np.isin(steps, chord), 1.0, OUTSIDE) * np.isin(steps, SCALE)
            table[key, degree] = near * weight
    return table / table.sum(-1, keepdims=True)


def tunes(n: int, seed: int = 0) -> Int[ndarray, "n 64"]:
    """Random tunes.

    Args:
        n: Number of tunes.
        seed: Seed of the random numbers.
    """
    require(n >= 1, "tunes.n", "be at least 1", n)
    rng = np.random.default_rng(seed)
    notes, rows = _note_probabilities(), np.empty((n, LENGTH), dtype=np.int64)
    key, degree, pitch = rng.integers(KEYS, size=n), np.zeros(n, dtype=np.int64), None
    rows[:, 0] = key
    before = np.full(n, MIDDLE)
    for place in range(1, LENGTH):
        bar = (place - 1) // (1 + NOTES)
        if (place - 1) % (1 + NOTES) == 0:
            degree = degree if bar == 0 else _sample(CHORDS[degree], rng)
            rows[:, place] = KEYS + degree
        else:
            pitch = _sample(notes[key, degree, before], rng)
            rows[:, place] = KEYS + DEGREES + pitch
            before = pitch
    return rows


def log_prob(rows: Int[ndarray, "n L"]) -> Float[ndarray, "n L"]:
    """The exact log-probability of every symbol given the previous ones.

    Minus infinity for an impossible symbol.
    """
    valid = rows.ndim == 2 and rows.shape[1] == LENGTH
    require(valid, "log_prob.rows", f"be tunes of {LENGTH} symbols", rows.shape)
    notes, n = _note_probabilities(), len(rows)
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
            p, before = notes[key, degree, before, value], value
        elif place == 1:  # every tune starts with its tonic
            p, degree = (value == 0).astype(np.float64), value
        else:
            p, degree = CHORDS[degree, value], value
        with np.errstate(divide="ignore"):
            out[:, place] = np.where(fits, np.log(p), -np.inf)
    return out


def written(row: Int[ndarray, " 64"]) -> str:
    """A tune in musical notation: key, then the chord of each bar and its notes."""
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


def _sample(p: Float[ndarray, "n k"], rng: np.random.Generator) -> Int[ndarray, " n"]:
    cdf = p.cumsum(-1)
    return (cdf > rng.random((len(p), 1)) * cdf[:, -1:]).argmax(-1)
