import dataclasses
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from allometry import InputError
from allometry.measure import score, score_table
from allometry.measure.catalogue import ENTRIES
from allometry.measure.context import QUICK
from allometry.measure.score_table import feature_map


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.images))
    return data.images[order], data.target[order]


@pytest.fixture(scope="module")
def scores(digits):
    x, y = digits
    return score(
        x[:300],
        x[300:600],
        labels=y[:300],
        sample_labels=y[300:600],
        training=x[600:],
        effort=QUICK,
    )


def test_every_metric_of_two_sets_is_listed(scores):
    assert scores.skipped == {}
    named = [name for entry in ENTRIES for name in entry.names]
    assert sorted(row.name for row in scores.rows) == sorted(named)
    # Of the 24, 13 and 19 come with 12, 16 with 17; 21 needs the generator.
    numbers = {entry.number for entry in ENTRIES}
    assert numbers == set(range(25)) - {13, 16, 19, 21}


def test_values_lie_in_their_bounds_and_intervals(scores):
    bounds = {name: entry.bounds[name] for entry in ENTRIES for name in entry.names}
    for row in scores.rows:
        low, high = bounds[row.name]
        slack = 5 * (row.estimate.se or 0.0)
        assert low - slack <= row.estimate.value <= high + slack, row.name
        lo, hi = row.estimate.interval
        assert lo <= row.estimate.value <= hi, row.name
        assert row.features
        assert row.estimate.method


def test_held_out_data_have_no_fault(scores):
    for name in ("nearest_neighbour_p_value", "classifier_p_value", "efron_p_value"):
        assert scores[name].value > 0.001
    assert scores["copying"].covers(0.5)
    assert scores["recall"].lo > 0.7


def test_the_json_has_the_documented_keys(scores):
    data = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    for values in data.values():
        assert {"value", "se", "lo", "hi", "features"} <= set(values)
    with pytest.raises(KeyError):
        scores["nothing"]


def test_missing_inputs_are_reported(digits):
    rows = digits[0].reshape(-1, 64)[:120]
    found = score(rows[:60], rows[60:], effort=QUICK)
    assert "--labels" in found.skipped["inception_score"]
    assert "images" in found.skipped["ssim_to_nearest"]
    assert "--training" in found.skipped["authenticity"]
    assert "more rows than its 64 features" in found.skipped["frechet_distance"]


def test_only_and_features(digits):
    x, y = digits
    space = feature_map("pca:5", x[:300], None)
    found = score(x[:300], x[300:600], features=space, only=["mmd2", "precision"])
    assert [row.name for row in found.rows] == [
        "mmd2_rbf",
        "mmd2_laplacian",
        "mmd2_rational_quadratic",
        "precision",
    ]
    assert {row.features for row in found.rows} == {"pca(5)"}
    with pytest.raises(InputError, match="only must name metrics"):
        score(x[:300], x[300:600], only=["nonsense"])
    for name in ("identity", "pca", "random:8", "classifier"):
        assert feature_map(name, x[:200], y[:200])(x[:3]).shape[0] == 3
    with pytest.raises(InputError, match="features must be identity, pca"):
        feature_map("inception", x, None)
    with pytest.raises(InputError, match="labels must be given"):
        feature_map("classifier", x, None)
    with pytest.raises(InputError, match="whole number after the colon"):
        feature_map("pca:many", x, None)


def test_errors_are_reported_once(digits):
    x = digits[0][:50].copy()
    with pytest.raises(InputError, match="samples must hold at least 2 rows"):
        score(x, x[:0])
    with pytest.raises(InputError, match="samples must have 64 features"):
        score(x, x[:, :4])
    x[0, 0, 0] = np.nan
    with pytest.raises(InputError, match="real must be finite"):
        score(x, x)


def test_values_whose_squares_overflow_leave_a_measure_out(monkeypatch):
    """Such a file ended in OverflowError."""

    def overflows(case):
        raise OverflowError(34, "Numerical result out of range")

    entry = dataclasses.replace(ENTRIES[0], run=overflows)
    monkeypatch.setattr(score_table, "ENTRIES", [entry])
    x = np.random.default_rng(0).normal(size=(40, 2))
    found = score(x, x + 1, effort=QUICK)
    assert not found.rows
    assert all("finite squares" in reason for reason in found.skipped.values())
    assert found.skipped
