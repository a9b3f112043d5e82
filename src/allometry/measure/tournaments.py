"""Comparisons of models: adversarial metric, tournament, skill ratings, relative scores.

A player is a set of samples. Each player has a discriminator, a small network trained on one half
of the rows. All evaluation is on the other half.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.classifier import Classifier, fit_classifier, train
from allometry.measure.glicko import Player, rate_period
from allometry.measure.sample_inputs import Array, Map, generator, halves, pair, whole_seed


@final
@dataclass(frozen=True)
class _Tournament:
    """Held-out rows and discriminators of all players."""

    names: list[str]
    real: Float[Tensor, "n d"]
    samples: list[Float[Tensor, "m d"]]
    discriminators: list[Classifier]

    def fooled(self, discriminator: int, player: int) -> Float[Tensor, " m"]:
        """1 where the discriminator classifies a held-out sample of the player as real."""
        network = self.discriminators[discriminator]
        return (network.probabilities(self.samples[player])[:, 1] > 0.5).double()


def _tournament(
    real: Array,
    players: Mapping[str, Array],
    features: Map | None,
    steps: int,
    rng: torch.Generator,
) -> _Tournament:
    require(len(players) >= 2, "players", "be at least 2", list(players))
    held_out, discriminators, rows = [], [], None
    for name, samples in players.items():
        x, y = pair(real, samples, rows=8, features=features)
        if rows is None:
            rows = halves(x, rng)
        train_y, test_y = halves(y, rng)
        size = min(len(rows[0]), len(train_y))
        data = torch.cat([train_y[:size], rows[0][:size]])
        labels = torch.cat([torch.zeros(size), torch.ones(size)]).long()
        discriminators.append(fit_classifier(data, labels, classes=2, steps=steps, rng=rng))
        held_out.append(test_y)
        require(len(test_y) >= 4, f"players[{name!r}]", "have at least 8 rows", len(y))
    assert rows is not None
    return _Tournament(list(players), rows[1], held_out, discriminators)


def adversarial_metric(
    real: Array,
    samples: Array,
    rival: Array,
    *,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Generative adversarial metric: $\log$ ratio of the error rates of two discriminators.

    $\log \frac{\epsilon(D_{rival}(samples))}{\epsilon(D_{samples}(rival))}$, with $\epsilon$ a
    discriminator's error rate on the samples of the other player; above 0 the samples win. It is
    meaningful only if both discriminators have similar error rates on held-out real rows; `method`
    states their ratio.

    Differs from the paper: the logarithm, with one half added to each count, and new
    discriminators trained on finished samples.

    References: `im2016`
    """
    rng = generator(rng)
    return _duel(_tournament(real, {"samples": samples, "rival": rival}, features, steps, rng))


def _duel(table: _Tournament) -> Estimate:
    ours, theirs = table.fooled(1, 0), table.fooled(0, 1)
    value, variance = 0.0, 0.0
    for sign, hits in ((1, ours), (-1, theirs)):
        count, n = float(hits.sum()) + 0.5, len(hits) + 1
        value += sign * math.log(count / n)
        variance += 1 / count - 1 / n
    missed = [
        float((d.probabilities(table.real)[:, 1] <= 0.5).sum()) + 0.5 for d in table.discriminators
    ]
    method = f"held-out samples; error ratio on real rows {missed[1] / missed[0]:.2f}"
    return Estimate(value, se=math.sqrt(variance), n=len(ours) + len(theirs), method=method)


def tournament_win_rates(
    real: Array,
    players: Mapping[str, Array],
    *,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """Win rate of each player: held-out samples against each discriminator.

    References: `olsson2018`
    """
    return _win_rates(_tournament(real, players, features, steps, generator(rng)))


def _win_rates(table: _Tournament) -> dict[str, Estimate]:
    indices = range(len(table.discriminators))
    found = {}
    for p, name in enumerate(table.names):
        wins = torch.stack([table.fooled(d, p) for d in indices]).mean(0)
        found[name] = uncertainty.mean(wins, f"{len(indices)} discriminators, given")
    return found


def skill_ratings(
    real: Array,
    players: Mapping[str, Array],
    *,
    periods: int = 10,
    games: int = 10,
    features: Map | None = None,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """Glicko-2 ratings of the players from a tournament against all discriminators.

    In each period every player plays `games` held-out samples against every discriminator; a
    sample classified as real is a win. `method` states Glicko's rating deviation.

    References: `olsson2018`; `glickman2013` for the system.
    """
    rng = generator(rng)
    return _ratings(_tournament(real, players, features, steps, rng), periods, games, rng)


def _ratings(
    table: _Tournament, periods: int, games: int, rng: torch.Generator
) -> dict[str, Estimate]:
    k = len(table.names)
    outcomes = [[table.fooled(d, p).numpy() for d in range(k)] for p in range(k)]
    generators, discriminators = [Player() for _ in range(k)], [Player() for _ in range(k)]
    seeded = np.random.default_rng(whole_seed(rng))
    for _ in range(periods):
        won = np.array(
            [[[seeded.choice(o) for _ in range(games)] for o in row] for row in outcomes]
        )
        generators, discriminators = (
            [rate_period(generators[p], discriminators, won[p].mean(-1), games) for p in range(k)],
            [
                rate_period(discriminators[d], generators, 1 - won[:, d].mean(-1), games)
                for d in range(k)
            ],
        )
    count = periods * games * k
    method = (
        f"Glicko-2, {periods} periods of {games} games; rating deviation {{:.0f}}; no interval: "
        "1.96 deviations cover 90 % in simulation"
    )
    return {
        name: Estimate(player.rating, n=count, method=method.format(player.deviation))
        for name, player in zip(table.names, generators, strict=True)
    }


def all_games(
    real: Array,
    players: Mapping[str, Array],
    *,
    steps: int = 200,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """Adversarial metric, win rate and skill rating of the first player.

    The three functions above train the same discriminators for the same `rng`. Here they are
    trained once.
    """
    rng = generator(rng)
    table = _tournament(real, players, None, steps, rng)
    first = table.names[0]
    two = _Tournament(table.names[:2], table.real, table.samples[:2], table.discriminators[:2])
    return {
        "adversarial_metric": _duel(two),
        "tournament_win_rate": _win_rates(table)[first],
        "skill_rating": _ratings(table, 10, 10, rng)[first],
    }


def relative_discriminative_scores(
    real: Array,
    players: Mapping[str, Array],
    *,
    epochs: int = 12,
    epoch_steps: int = 15,
    features: Map | None = None,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    r"""Normalised relative discriminative score: $A_i / \sum_j A_j$.

    $A_i$ is the area under the curve, over epochs of training, of the mean output of a
    discriminator on the held-out samples of player i. A discriminator that takes longer to detect
    the samples gives a higher score.

    Differs from the paper: one discriminator for each player instead of one for all.

    References: `zhang2018`
    """
    rng = generator(rng)
    # Two steps initialise the networks; the training curve is computed below.
    table = _tournament(real, players, features, 2, rng)
    areas: list[ndarray] = []
    for name, samples in players.items():
        x, y = pair(real, samples, rows=8, features=features)
        test, rows = halves(y, rng)
        data = torch.cat([rows, x])
        labels = torch.cat([torch.zeros(len(rows)), torch.ones(len(x))]).long()
        network = table.discriminators[table.names.index(name)]
        area = network.probabilities(test)[:, 1] / 2
        for _ in range(epochs):
            train(network, data, labels, steps=epoch_steps, lr=1e-3, rng=rng)
            area = area + network.probabilities(test)[:, 1]
        areas.append((area / epochs).numpy())
    means = np.array([a.mean() for a in areas])
    variances = np.array([a.var(ddof=1) / len(a) for a in areas])
    whole = means.sum()
    found = {}
    for i, name in enumerate(players):
        slopes = -means[i] / whole**2 + (np.arange(len(means)) == i) / whole
        se = math.sqrt(float((slopes**2 * variances).sum()))
        method = f"of {len(means)} players; held-out samples, given the discriminators"
        found[name] = Estimate(
            float(means[i] / whole), se=se, n=sum(map(len, areas)), method=method
        )
    return found
