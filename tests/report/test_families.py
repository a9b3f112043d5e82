"""One chart for many families, and where they cross."""

import math

import numpy as np
import pandas as pd
import pytest

from allometry._core.errors import InputError
from allometry.report.sections import families

SIZES = [1e3, 3e3, 1e4, 3e4, 1e5]


class Fake:
    """Runs of two power laws that cross at a known size, with noise between seeds."""

    def __init__(self, noise=0.0, seeds=2, exponents=(0.1, 0.2), at=1e4, rng=0):
        draw = np.random.default_rng(rng)
        rows = []
        for family, b in zip(("lstm", "transformer"), exponents, strict=True):
            for N in SIZES:
                for D in (5e4, 2e5):
                    for seed in range(seeds):
                        # Straight in log N, as the interpolation has it.
                        loss = 2 - b * math.log(N / at) + 0.3 * (D < 1e5)
                        loss += noise * draw.normal()
                        shape = f"width {N:.0f}"
                        rows.append([family, shape, N, D, 6 * N * D, loss, 0.05, seed])
        names = ["family", "shape", "N", "D", "C", "loss", "loss_se", "seed"]
        counts = [["ngram", f"order {k}", 10.0**k, 3e5, 0.0, 3 - 0.3 * k, 0.05, 0] for k in (3, 4)]
        self._frame = pd.DataFrame(rows + counts, columns=names)

    def frame(self):
        return self._frame

    def curves(self):
        return pd.DataFrame({"key": [], "step": [], "tokens": [], "flops": [], "loss": []})

    def samples(self):
        return {}


def test_only_the_largest_budget_is_shown():
    found = families.at_one_budget(Fake())
    assert [c.N for c in found["lstm"]] == SIZES
    assert {c.D for members in (found["lstm"], found["transformer"]) for c in members} == {2e5}
    assert [c.shape for c in found["ngram"]] == ["order 3", "order 4"]


def test_lines_cross_where_they_were_made_to():
    met = [m for m in families.meetings(Fake()) if {m.small, m.large} == {"lstm", "transformer"}]
    assert len(met) == 1
    assert (met[0].small, met[0].large) == ("lstm", "transformer")
    assert met[0].N.value == pytest.approx(1e4, rel=0.02)  # a grid of 400 over two decades
    assert met[0].share == 1.0


def test_intervals_of_crossings_cover():
    """95 % intervals over repeated studies; 20 of them, so 5 standard errors below are 0.71."""
    inside = []
    for k in range(20):
        runs = Fake(noise=0.02, seeds=3, rng=k)
        for m in families.meetings(runs, seed=k):
            if {m.small, m.large} == {"lstm", "transformer"}:
                lo, hi = m.N.interval
                inside.append(lo * 0.98 <= 1e4 <= hi * 1.02)
    assert len(inside) == 20
    assert np.mean(inside) > 0.71


def test_families_that_do_not_cross_are_not_said_to():
    met = families.meetings(Fake(exponents=(0.1, 0.1001), at=1.0, noise=1e-6))
    assert not [m for m in met if {m.small, m.large} == {"lstm", "transformer"}]


def test_one_seed_has_no_interval():
    with pytest.raises(InputError, match="2 seeds or more"):
        families.meetings(Fake(seeds=1))


def test_chart_shows_every_family_with_its_bars():
    spec = families.chart(Fake(noise=0.05), "nats per character")
    shown = pd.DataFrame(spec["layer"][0]["data"]["values"])
    assert set(shown["name"]) == {"LSTM", "transformer", "n-gram"}
    trained = shown[shown["name"] != "n-gram"]
    assert (trained["hi"] > trained["lo"]).all()
    assert "overtakes" in families.sentence(families.meetings(Fake()))
    assert families.sentence([]) == ""


def test_one_family_needs_no_chart():
    runs = Fake()
    runs._frame = runs._frame[runs._frame["family"] == "lstm"]
    assert families.chart(runs, "nats") is None
