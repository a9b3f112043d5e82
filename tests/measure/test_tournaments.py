import math

import numpy as np
import pytest

from allometry import InputError
from allometry.measure import (
    adversarial_metric,
    relative_discriminative_scores,
    skill_ratings,
    tournament_win_rates,
)
from allometry.measure.glicko import Player, rate_period


def test_glicko_gives_glickmans_example():
    # Glickman's note on Glicko-2: a win and two losses, tau = 0.5.
    opponents = [Player(1400, 30), Player(1550, 100), Player(1700, 300)]
    found = rate_period(Player(1500, 200, 0.06), opponents, [1.0, 0.0, 0.0], tau=0.5)
    assert found.rating == pytest.approx(1464.06, abs=0.015)
    assert found.deviation == pytest.approx(151.52, abs=0.01)
    assert found.volatility == pytest.approx(0.05999, abs=1e-5)


def test_many_games_estimate_the_difference_in_skill():
    # A winning share of 10/11 is 400 points on Elo's scale; the prior still has a small effect.
    player = Player()
    for _ in range(30):
        player = rate_period(player, [Player(1500, 1e-6)], [10 / 11], games=20)
    assert player.rating == pytest.approx(1900, abs=10)


@pytest.fixture(scope="module")
def players():
    rng = np.random.default_rng(0)
    real = rng.normal(size=(800, 2))
    good, fair, bad = (rng.normal(size=(800, 2)) + shift for shift in (0.0, 1.0, 3.0))
    return real, {"good": good, "fair": fair, "bad": bad}


@pytest.mark.parametrize(
    "measure", [tournament_win_rates, skill_ratings, relative_discriminative_scores]
)
def test_better_players_rank_higher(players, measure):
    found = measure(*players)
    assert list(found) == ["good", "fair", "bad"]
    good, fair, bad = found.values()
    assert good.value > fair.value > bad.value
    if measure is skill_ratings:
        # Glicko's deviation undercovers, so it is stated in the method and is not an interval.
        assert good.lo is None
        assert "rating deviation" in good.method
    else:
        assert good.lo > bad.hi


def test_relative_scores_sum_to_one(players):
    found = relative_discriminative_scores(*players, epochs=3)
    assert sum(e.value for e in found.values()) == pytest.approx(1)


def test_the_adversarial_metric_has_the_sign_of_the_winner(players):
    real, made = players
    found = adversarial_metric(real, made["fair"], made["bad"])
    assert found.lo > 0
    other = adversarial_metric(real, made["bad"], made["fair"])
    assert other.hi < 0
    assert math.isfinite(found.se)


def test_invalid_input_raises(players):
    with pytest.raises(InputError, match="players must be at least 2"):
        tournament_win_rates(players[0], {"one": players[0]})
    with pytest.raises(InputError, match="scores must be 1"):
        rate_period(Player(), [Player()], [1.0, 0.0])
