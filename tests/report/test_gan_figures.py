"""Charts of adversarial training and the table of metrics, on synthetic runs."""

import numpy as np
import pandas as pd
import pytest
import torch

from allometry.report import gan_figures as gan
from allometry.report import theme
from allometry.report.analysis import analyse
from allometry.report.sections import sample_quality
from allometry.train.game import Game, simultaneous
from allometry.train.game.differentiable import play

RNG = np.random.default_rng(0)


class Runs:
    """Two families with two metrics each, as in a study's folder."""

    def frame(self):
        rows = [
            {"key": f"{f}{w}{s}", "family": f, "target": "ring", "shape": f"width {w}", "rung": 0,
             "seed": s, "N": 100 * w, "D": 1e4, "C": 1e6 * w, "loss": 1 / w + 0.01 * s,
             "loss_se": 0.01, "status": "done", "modes": m + s, "modes_se": 0.0,
             "recall": 0.5, "recall_se": 0.1}
            for f, m in (("GAN", 4), ("PacGAN2", 6))
            for w in (8, 16)
            for s in (0, 1)
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def curves(self):
        return pd.DataFrame(columns=["key", "step", "tokens", "flops", "loss"])

    def samples(self):
        return {}

    def measures(self):
        return ["modes", "recall"]


def test_the_table_of_measures_averages_over_seeds():
    runs = Runs()
    made = sample_quality.measures(runs, analyse(runs))
    assert [h.text for h in made.heads] == ["Family", "Shape", "N", "modes", "recall"]
    assert len(made.rows) == 4
    first = next(r for r in made.rows if "16" in r[1].text and "Pac" in r[0].text)
    assert first[3].text.startswith("6.5")
    # Modes: the spread of 6 and 7 over two seeds is .5; recall: the error of measuring alone.
    assert "0.5" in first[3].more
    assert "0.1" in first[4].more


def test_studies_without_measures_have_no_table():
    class Plain:
        frame, curves, samples = Runs.frame, Runs.curves, Runs.samples

    assert sample_quality.measures(Plain(), analyse(Plain())) is None


@pytest.mark.parametrize("width", [344, 960])
def test_samples_are_drawn_panel_by_panel(width):
    steps = [1, 10, 100, 1000, 2000]
    spec = gan.samples_along(steps, RNG.normal(size=(5, 50, 2)), RNG.normal(size=(60, 2)), width)
    picture = theme.svg(spec)
    assert "step 2,000" in picture
    assert len(spec["hconcat"]) == (2 if width < 500 else 4)


def test_costs_modes_and_field_are_drawn():
    curve = pd.DataFrame({"step": [1, 10, 100], "cost_generator": [0.3, 0.4, 0.5],
                          "cost_discriminator": [0.7, 0.6, 0.65], "modes": [1, 3, 8]})  # fmt: skip
    assert "discriminator" in theme.svg(gan.costs(curve))
    assert "of 8" in theme.svg(gan.modes_along(curve, 8))
    points = RNG.normal(size=(50, 2))
    field = gan.discriminator_field(lambda x: x[:, 0], points, points, cells=8)
    tiles = field["layer"][0]["data"]["values"]
    assert len(tiles) == 8 * 13  # as many from bottom to top as asked for, more across
    # The judge is the first coordinate itself.
    assert all(t["x"] <= t["ratio"] <= t["x2"] for t in tiles if abs(t["ratio"]) < 4)


def test_a_portrait_has_the_games_field_and_paths():
    game = Game((lambda p: (p[0] * p[1]).sum(), lambda p: -(p[0] * p[1]).sum()))
    _, way = play(game, (torch.ones(1), torch.zeros(1)), simultaneous(0.1), 20)
    spec = gan.portrait(game, (-2, 2, -2, 2), {"simultaneous": way}, arrows=5)
    assert "simultaneous" in theme.svg(spec)
    arrows = spec["layer"][0]["data"]["values"]
    # At (x, y) the first goes down y, the second up x.
    for a in arrows:
        assert np.sign(a["x2"] - a["x"]) == -np.sign(a["y"])
        assert np.sign(a["y2"] - a["y"]) == np.sign(a["x"])


def test_modes_over_time_have_a_tile_for_each_mode_and_look():
    looks, shares = np.array([10, 20, 30]), RNG.dirichlet(np.ones(8), size=3)
    spec = gan.modes_over_time(looks, shares)
    tiles = spec["layer"][0]["data"]["values"]
    assert len(tiles) == 24
    last = [t for t in tiles if t["x2"] == 30 and t["y"] == 0.5]
    assert last[0]["x"] == 20
    assert last[0]["share"] == pytest.approx(min(2, 8 * shares[2, 0]))
    assert "Number of the class" in theme.svg(gan.modes_over_time(looks, shares, noun="class"))


def ends(spec):
    ways = pd.DataFrame(spec["layer"][2]["data"]["values"])
    last = ways.sort_values("order").groupby("path").last()
    return np.hypot(last["x"], last["y"])


def test_looking_ahead_comes_in_sooner_in_the_smallest_game():
    radius = ends(gan.smallest_game(wasserstein=True))
    # The bilinear game: each simultaneous step multiplies the radius by sqrt(1 + .2^2).
    assert radius["simultaneous"] == pytest.approx(1.2 * 1.04**30, rel=1e-5)
    assert radius["extragradient"] < 1.2
    radius = ends(gan.smallest_game(wasserstein=False))
    assert max(radius["extragradient"], radius["unrolled 1"]) < radius["alternating"]
    assert radius["alternating"] < radius["simultaneous"]
