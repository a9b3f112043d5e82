"""Contaminated Gaussians: what is known of the mean and the median, and that games resist."""

import numpy as np
import pytest

from allometry._core.errors import InputError
from allometry.study.robust_estimation import LOSSES, _mean_error, contaminated, contamination


def test_outliers_are_as_many_as_asked_for():
    x = contaminated(0.2, 20_000, 2, 10.0, np.random.default_rng(0))
    assert (x[:, 0] > 6).mean() == pytest.approx(0.2, abs=5 * (0.16 / 20_000) ** 0.5)
    with pytest.raises(InputError, match=r"lie in \[0, 0.5\)"):
        contaminated(0.5, 10, 1, 4.0, np.random.default_rng(0))


def test_the_mean_breaks_and_a_bounded_game_does_not():
    chosen = {"total variation": LOSSES["total variation"]}
    rows = contamination(chosen, shares=(0.2,), seeds=3, n=500, steps=120)
    error = {str(r["loss"]): r["error"] for r in rows}
    # The mean goes to share x outlier = .8; the median to the .5/.8 quantile of a Gaussian, .32.
    assert error["mean"].value == pytest.approx(0.8, abs=0.1)
    assert error["median"].value == pytest.approx(0.3186, abs=0.12)
    assert error["total variation"].value < 0.5


def test_intervals_of_a_norm_stay_above_zero_and_hold_it():
    """Student's own went below 0 for 84 % of pairs of data sets."""
    rng, truth = np.random.default_rng(0), np.sqrt(np.pi / 2)
    for n in (2, 3, 10):
        found = [
            _mean_error(np.linalg.norm(rng.normal(size=(n, 2)), axis=1).tolist())
            for _ in range(2000)
        ]
        assert min(e.lo for e in found) > 0
        held = np.mean([e.lo <= truth <= e.hi for e in found])
        # 5 standard errors of a share of .95.
        assert held == pytest.approx(0.95, abs=5 * (0.95 * 0.05 / 2000) ** 0.5)
    assert _mean_error([0.0, 0.0]).interval == (0.0, 0.0)
