"""Rows of symbols: pictures, tunes and series read like text."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from allometry._core.errors import InputError
from allometry.targets import Symbols, music


@pytest.fixture(scope="module")
def tunes():
    return Symbols.tunes(400, seed=3)


def test_probabilities_of_notes_and_chords_sum_to_one():
    notes = music._note_probabilities()
    np.testing.assert_allclose(notes.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(music.CHORDS.sum(-1), 1, rtol=1e-12)
    # Nothing outside the scale: 5 of 12 semitones are impossible in every key.
    steps = (np.arange(music.PITCHES)[None] + music.LOWEST - np.arange(12)[:, None]) % 12
    outside = ~np.isin(steps, music.SCALE)
    assert (notes.max((1, 2))[outside] == 0).all()


def test_tunes_follow_their_distribution():
    """The mean of -log p over tunes of another seed agrees with the exact entropy."""
    rows = music.tunes(3000, seed=1)
    surprise = -music.log_prob(rows).sum(1)
    assert np.isfinite(surprise).all()
    # The expected surprisal of each next note given its past.
    notes = music._note_probabilities()
    key, expected = rows[:, 0], np.full(len(rows), math.log(music.KEYS))
    degree, before = np.zeros(len(rows), int), np.full(len(rows), music.MIDDLE)
    for place in range(1, music.LENGTH):
        if (place - 1) % 9 == 0:
            if place > 1:
                p = music.CHORDS[degree]
                expected += special.entr(p).sum(-1)
            degree = rows[:, place] - music.KEYS
        else:
            expected += special.entr(notes[key, degree, before]).sum(-1)
            before = rows[:, place] - music.KEYS - music.DEGREES
    gap = surprise - expected
    assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(rows))


def test_impossible_symbols_have_no_probability():
    rows = music.tunes(2, seed=0)
    wrong = rows.copy()
    wrong[0, 1] = music.KEYS + 3  # a tune begins on its tonic
    wrong[1, 5] = 0  # a key where a note should stand
    found = music.log_prob(wrong)
    assert found[0, 1] == -np.inf
    assert found[1, 5] == -np.inf
    with pytest.raises(InputError, match="be tunes of 64 symbols"):
        music.log_prob(rows[:, :10])


def test_tunes_are_written_as_people_do():
    rows = music.tunes(1, seed=0)
    words = music.written(rows[0]).split()
    assert words[0].endswith(":")
    assert words[1:3] == ["|", "I"]
    assert words.count("|") == music.BARS


def test_batches_go_once_through_the_rows(tunes):
    n = len(tunes.train)
    seen = torch.cat([tunes.batch(i, size=n // 4, context=64, seed=0) for i in range(4)])
    assert (seen[:, 0] == tunes.size - 1).all()
    key = lambda rows: sorted(map(tuple, rows.tolist()))  # noqa: E731
    assert key(seen[:, 1:]) == key(tunes.train)


def test_blocks_predict_every_symbol_once(tunes):
    inputs, targets, mask = tunes.blocks("validation", 64)
    assert mask.all()
    assert torch.equal(targets, tunes.validation)
    assert torch.equal(inputs[:, 1:], tunes.validation[:, :-1])


@pytest.mark.parametrize("make", [Symbols.digits, Symbols.tunes, Symbols.series])
def test_a_target_can_be_made_again(make):
    small = {} if make is Symbols.digits else {"n": 40}
    target = make(**small)
    again = target.spec()
    assert again.fingerprint == target.fingerprint
    assert target.describe()["D_unique"] == target.D_unique == again.D_unique
    assert target.size > int(target.train.max()) + 1 >= 2


def test_levels_of_a_series_are_equally_likely_and_know_their_past():
    series = Symbols.series(n=2000, levels=16)
    share = torch.bincount(series.train.flatten()) / series.train.numel()
    # Neighbours depend on one another, so shares scatter more than independent ones would.
    assert (share - 1 / 16).abs().max() < 0.01
    assert series.entropy() == pytest.approx(math.log(16), abs=0.005)


def test_floor_of_a_series_is_its_information():
    """With phi the variance ratio is known: for AR(1) it is 1/(1 - phi^2)."""
    series = Symbols.series(phi=[0.8], n=4000, levels=64)
    exact = math.log(64) - 0.5 * math.log(1 / (1 - 0.64))
    assert series.floor == pytest.approx(exact, abs=0.01)


def test_true_predictor_reaches_the_floor_from_above():
    """The distribution of the next interval given the last two values."""
    phi, K, n = 0.8, 64, 1500
    rng = np.random.default_rng(0)
    x = np.empty((n, 2))
    sd = 1 / math.sqrt(1 - phi**2)
    x[:, 0] = rng.normal(size=n) * sd
    x[:, 1] = phi * x[:, 0] + rng.normal(size=n)
    edges = special.ndtri(np.linspace(0, 1, K + 1)) * sd
    level = np.clip(np.searchsorted(edges, x[:, 1]) - 1, 0, K - 1)
    p = special.ndtr(edges[level + 1] - phi * x[:, 0]) - special.ndtr(edges[level] - phi * x[:, 0])
    nats = -np.log(p)
    floor = math.log(K) - math.log(sd)
    se = nats.std() / math.sqrt(n)
    assert abs(nats.mean() - floor) < 5 * se + 0.02  # 0.02: the intervals at the ends are wide


def test_rows_of_the_wrong_kind_are_refused():
    with pytest.raises(InputError, match="have two axes"):
        Symbols(np.zeros(4, dtype=int))
    with pytest.raises(InputError, match="at least 8"):
        Symbols(np.full((20, 3), 7), size=4)
    with pytest.raises(InputError, match="be a row of 64"):
        Symbols.tunes(40).batch(0, size=1, context=32, seed=0)
    with pytest.raises(InputError, match="know how it was made"):
        Symbols(np.zeros((40, 3), dtype=int)).spec  # noqa: B018
