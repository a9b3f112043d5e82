"""Measures of generated text, against counting by hand and chains of known order."""

from collections import Counter

import numpy as np
import pytest

import allometry as al
from allometry.study.recipes.text_run import weights_metadata
from allometry.study.text_measures import STEP, NgramFeatures, Passages, TextYardstick
from allometry.train import checkpoint

LENGTH = 32


@pytest.fixture(scope="module")
def yardstick():
    whole = al.targets.Text.embedded()
    part = whole.vocabulary.decode(whole.train[:200_000].tolist())
    return TextYardstick(al.targets.Text.from_string(part), LENGTH)


def chain(ids, order, n, seed=0):
    """Windows of the maximum-likelihood Markov chain of an order."""
    rng = np.random.default_rng(seed)
    after = {}
    for i in range(order, len(ids)):
        after.setdefault(tuple(ids[i - order : i]), []).append(ids[i])
    windows = []
    for _ in range(n):
        start = rng.integers(order, len(ids))
        row = list(ids[start - order : start])
        while len(row) < LENGTH:
            choices = after.get(tuple(row[len(row) - order :]), ids)
            row.append(choices[rng.integers(len(choices))])
        windows.append(row)
    return np.array(windows)


def test_features_are_roots_of_counts():
    windows = np.random.default_rng(0).integers(3, size=(40, 12))
    features = NgramFeatures(windows, 3)
    counted = features._counts(windows[:1])[0]
    place = 0
    for order, codes in zip((2, 3, 4), features.codes, strict=True):
        grams = Counter(tuple(windows[0, i : i + order]) for i in range(12 - order + 1))
        for code in codes:
            digits = tuple(int(d) for d in np.base_repr(code, 3).zfill(order))
            assert float(counted[place]) == pytest.approx(grams[digits] ** 0.5)
            place += 1
    assert place == len(counted)


def test_the_longest_passage_is_that_of_a_plain_search():
    rng = np.random.default_rng(1)
    training = rng.integers(3, size=4000)
    windows = rng.integers(3, size=(60, 24))
    windows[0] = training[100:124]
    windows[1, 3:17] = training[200:214]
    text = bytes(training.tolist())
    found = Passages(training, 24).longest(windows)
    for window, longest in zip(windows, found, strict=True):
        whole = bytes(window.tolist())
        known = [
            length
            for length in range(STEP, 25, STEP)
            if any(whole[i : i + length] in text for i in range(25 - length))
        ]
        assert longest == max(known, default=0)
    assert found[0] == 24


def test_chains_of_higher_order_are_nearer_to_the_text(yardstick):
    ids = yardstick.target.train.numpy()
    rows = [chain(ids, order, len(yardstick.test)) for order in (0, 1, 2)]
    scores = [yardstick.scores(windows) for windows in rows]
    for name in ("sliced_wasserstein", "kid"):
        zero, one, two = (found[name].value for found in scores)
        assert zero > 1.5 * one > 1.5 * 1.2 * two
    recalls = [found["recall"].value for found in scores]
    assert recalls == sorted(recalls)


def test_copies_and_collapse_are_found(yardstick):
    copies = yardstick.training[: len(yardstick.test)]
    # Whole held-out windows are in the training text too, such as rows of dots: they tie.
    share = (yardstick.passages.longest(yardstick.test) == LENGTH).mean()
    assert share < 0.3
    assert yardstick.scores(copies)["copying"].value == pytest.approx(1 - share / 2)
    assert yardstick.scores(yardstick.test)["copying"].value == pytest.approx(0.5)
    real = yardstick.real()
    assert "copying" not in real
    collapsed = copies.copy()
    collapsed[:] = copies[0]
    bad = yardstick.scores(collapsed)
    assert bad["kid"].value > 10 * real["kid"].value
    assert bad["recall"].value < 0.1


@pytest.mark.parametrize("family", ["masked_diffusion", "uniform_diffusion", "mlp"])
def test_windows_are_drawn_from_saved_models(yardstick, family, tmp_path):
    recipe = getattr(al.study.recipes, family)
    (spec,) = recipe(yardstick.target, [2000.0], tokens=[1e4], seeds=1, context=LENGTH)
    request = spec()
    about = weights_metadata(family, request.shape, yardstick.target)
    path = tmp_path / "model.safetensors"
    checkpoint.save_weights(path, request.model(), about)
    windows = yardstick.draw(path)
    assert windows.shape == yardstick.test.shape
    assert 0 <= windows.min() <= windows.max() < yardstick.target.vocabulary.size
    assert (windows == yardstick.draw(path)).all()
    if family == "mlp":  # each continues a token of the text
        ends = [rows[:, 0] for rows in (windows, yardstick.training)]
        first, text = (np.bincount(x, minlength=256) / len(x) for x in ends)
        assert abs(first - text).max() < 0.05


def test_a_short_text_is_refused():
    short = al.targets.Text.from_string("to be or not to be, that is the question " * 40)
    with pytest.raises(al.InputError, match="must have 50 windows of 64 tokens"):
        TextYardstick(short, 64)
