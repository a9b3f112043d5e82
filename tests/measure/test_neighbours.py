import contextlib
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from allometry import InputError
from allometry.measure import authenticity, copying, coverage, density, prdc, precision, recall
from allometry.measure.pair_blocks import nearest


def reference(x, y, k):
    from prdc import compute_prdc

    with contextlib.redirect_stdout(io.StringIO()):
        return compute_prdc(x, y, nearest_k=k)


@pytest.mark.parametrize(
    ("n", "m", "d", "k"), [(300, 200, 2, 3), (1000, 1500, 64, 5), (40, 40, 1, 1)]
)
def test_agrees_with_prdc(n, m, d, k):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d)), 0.2 + 1.1 * rng.normal(size=(m, d))
    ours, theirs = prdc(x, y, k=k), reference(x, y, k)
    assert {name: e.value for name, e in ours.items()} == pytest.approx(theirs, abs=1e-12)


def test_each_function_alone_gives_the_same():
    x = np.random.default_rng(0).normal(size=(100, 2))
    y = np.random.default_rng(1).normal(size=(100, 2))
    whole = prdc(x, y)
    for measure in (precision, recall, density, coverage):
        assert measure(x, y) == whole[measure.__name__]


@given(st.integers(2, 60), st.integers(3, 60), st.integers(1, 3), st.booleans())
def test_neighbours_are_scikit_learns(n, m, k, itself):
    rng = np.random.default_rng(n * 100 + m)
    y = rng.normal(size=(m, 3))
    x = y if itself else rng.normal(size=(n, 3))
    k = min(k, m - 1)
    found = nearest(torch.as_tensor(x), torch.as_tensor(y), k, itself=itself)
    model = NearestNeighbors(n_neighbors=k).fit(y)
    distances, indices = model.kneighbors(None if itself else x)
    np.testing.assert_allclose(found[0].numpy(), distances, atol=1e-7)
    np.testing.assert_array_equal(found[1].numpy(), indices)


def test_dropped_modes_lose_recall_and_noise_loses_precision():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) + 8 * np.repeat(np.eye(2), 200, 0)
    dropped = rng.normal(size=(400, 2)) + 8 * np.eye(2)[0]
    noisy = x + 6 * rng.normal(size=x.shape)
    assert recall(x, dropped).hi < 0.6 < precision(x, dropped).lo
    assert precision(x, noisy).hi < 0.6


def test_copies_are_found():
    rng = np.random.default_rng(0)
    training, heldout, honest = rng.normal(size=(3, 300, 4))
    copies = training + 0.01 * rng.normal(size=training.shape)
    assert authenticity(training, copies).value == 0
    assert authenticity(training, honest).lo > 0.5
    assert copying(training, heldout, honest).covers(0.5)
    assert copying(training, heldout, copies).value == pytest.approx(1)
    far = heldout + 5
    assert copying(training, heldout, far).hi < 0.1


def test_win_probability_is_mann_whitneys():
    from scipy import stats

    rng = np.random.default_rng(0)
    training = np.array([[0.0], [1000.0]])
    heldout = rng.uniform(0, 9, size=(30, 1)).round()
    samples = rng.uniform(0, 9, size=(20, 1)).round()
    u = stats.mannwhitneyu(heldout[:, 0], samples[:, 0]).statistic
    assert copying(training, heldout, samples).value == pytest.approx(u / 600)


def test_invalid_input_raises():
    x = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.raises(InputError, match="k must lie between 1 and 4; got 5"):
        prdc(x, x)
