"""The noise of two recipes from the other recipes of the table."""

import numpy as np
import pytest

import allometry as al
from allometry.laws.comparison import paired_runs
from allometry.laws.comparison.pooled_noise import MOST_DEGREES, pooled_noise
from allometry.laws.comparison.sequential import evidence

C = np.logspace(17, 20, 4)


def table(seed, gains, noise=0.003, sizes=4, paired=True):
    """One run of each recipe and size; recipe i acts as with gains[i] times the compute."""
    rng, rows = np.random.default_rng(seed), []
    for c in C[:sizes]:
        for i, gain in enumerate(gains):
            loss = 1.8 + 1.5 * (c * gain / 10**18.5) ** -0.15
            n = np.sqrt(c / 120) * (1 if paired else 1 + 0.1 * i)
            rows.append(("ABCDEFG"[i], n, c / (6 * n), c, loss * np.exp(noise * rng.normal())))
    names: list[str] = ["recipe", "N", "D", "C", "loss"]
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize("paired", [True, False])
def test_it_is_unbiased(paired):
    """60 tables of 5 recipes; residuals have 6 degrees of freedom (8 without common sizes)."""
    variances = []
    for seed in range(60):
        runs = paired_runs.read(table(seed, [1.0] * 5, paired=paired), "recipe")
        found = pooled_noise(runs, 0, 1)
        assert found is not None
        assert (found.degrees, found.stated) == (MOST_DEGREES, False)
        variances.append(found.sd**2 / 0.003**2)
    assert np.mean(variances) == pytest.approx(1.0, abs=5 * np.std(variances) / 60**0.5)


def test_two_recipes_alone_and_copies_leave_it_unknown():
    runs = paired_runs.read(table(0, [1.0, 1.0]), "recipe")
    assert pooled_noise(runs, 0, 1) is None
    frame = table(0, [1.0, 1.0, 1.0])
    third = frame["recipe"] == "C"
    frame["loss"][third] = frame["loss"][frame["recipe"] == "B"]
    assert pooled_noise(paired_runs.read(frame, "recipe"), 0, 1) is None


def test_further_recipes_decide_what_two_alone_cannot():
    frame = table(1, [1.0, 2.0, 1.1, 0.9, 1.2], noise=0.001, sizes=3)
    two = np.isin(frame["recipe"], ("A", "B"))
    alone = al.laws.compare_recipes({name: column[two] for name, column in frame.items()})
    assert alone.winner is None
    found = al.laws.compare_recipes(frame)
    assert found.winner == "B"
    assert any("estimated from all 5 recipes" in text for text in found.warnings)
    stated = al.laws.compare_recipes(frame, noise=0.001)
    assert not any("estimated from all" in text for text in stated.warnings)


def test_equal_recipes_among_others_rarely_get_a_verdict():
    """40 tables looked at after every size: 2 verdicts at most are expected, 8 are 4 se off.

    The noise of the others is a third to three times that of the pair.
    """
    wrong = 0
    for seed in range(40):
        frame = table(seed, [1.0, 1.0, 1.3, 0.8])
        other = ~np.isin(frame["recipe"], ("A", "B"))
        factor = 3.0 ** np.random.default_rng(seed).uniform(-1, 1)
        law = 1.8 + 1.5 * (frame["C"] / 10**18.5) ** -0.15
        frame["loss"] = np.where(other, law * (frame["loss"] / law) ** factor, frame["loss"])
        wrong += any(_decides(frame, top) for top in C[1:])
    assert wrong <= 8


def _decides(frame, top):
    seen = frame["C"] <= top * 1.01
    runs = paired_runs.read({name: column[seen] for name, column in frame.items()}, "recipe")
    return evidence(runs.two(0, 1), np.log(1e20), pooled_noise(runs, 0, 1)).value >= 20
