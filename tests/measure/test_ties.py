"""Neighbours of discrete data: all ties, for any order, unit and origin."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from allometry.measure import (
    authenticity,
    birthday_support,
    copying,
    different_bins,
    nearest_neighbour_accuracy,
    nearest_neighbour_p_value,
    prdc,
    retrieval_p_value,
    retrieval_win_rate,
)
from allometry.measure.pair_blocks import nearest
from allometry.measure.ties import MOST, merged, tied_neighbours

RNG = torch.Generator().manual_seed(0)


def discrete(kind, rng, n):
    return {
        "binary": lambda: rng.integers(2, size=(n, 3)),
        "categorical": lambda: np.eye(4)[rng.integers(4, size=n)],
        "poisson": lambda: rng.poisson(2.0, size=(n, 3)),
        "rounded": lambda: rng.normal(size=(n, 2)).round(1),
        "mixed": lambda: np.stack([rng.poisson(1.0, size=n), rng.normal(size=n).round()], 1),
    }[kind]().astype(float)


KINDS = ("binary", "categorical", "poisson", "rounded", "mixed")


def brute(z):
    """For each row the rows at the least distance, by scikit-learn's brute force."""
    model = NearestNeighbors(n_neighbors=len(z) - 1, algorithm="brute").fit(z)
    distances, indices = model.kneighbors()
    # scikit-learn takes a product of matrices: equal distances differ by about 1e-8 at 0.
    return [set(i[d <= d[0] + 1e-6].tolist()) for d, i in zip(distances, indices, strict=True)]


def named(near):
    rows = [np.flatnonzero(near.group == u) for u in range(len(near.sizes))]
    found = []
    for i, u in enumerate(near.group):
        columns = near.near[[u]].nonzero()[1]
        found.append({int(j) for v in columns for j in rows[v]} - {i})
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.1, 1e6]),
    st.sampled_from([1.0, 1e-6, 3.0, 1e8]),
)
def test_all_nearest_rows_are_found_for_any_origin(kind, seed, shift, scale):
    z = discrete(kind, np.random.default_rng(seed), 40)
    near = tied_neighbours(torch.as_tensor(scale * (z + shift)), RNG)
    assert named(near) == brute(z)


@pytest.mark.parametrize("kind", KINDS)
def test_votes_are_shares_of_the_nearest_rows(kind):
    rng = np.random.default_rng(1)
    z = discrete(kind, rng, 60)
    is_real = rng.permutation(60) < 25
    near = tied_neighbours(torch.as_tensor(z), RNG)
    expected = np.array(
        [np.mean([is_real[j] == is_real[i] for j in js]) for i, js in enumerate(brute(z))]
    )
    np.testing.assert_allclose(near.votes(is_real), expected)
    real, samples = near.sums(is_real[None])
    assert real[0] == pytest.approx(expected[is_real].sum())
    assert samples[0] == pytest.approx(expected[~is_real].sum())


def test_more_ties_than_are_kept_are_drawn_at_random():
    """Corners of a simplex are all equally near."""
    near = tied_neighbours(torch.eye(MOST + 100, dtype=torch.float64), RNG)
    assert set(near.total.tolist()) == {float(MOST)}


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_near_copies_far_from_the_origin_find_each_other(offset):
    """Copies within 1e-6 of rows that lie 1 apart: a matrix product can't resolve them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)) + offset
    y = x + 1e-6 * rng.normal(size=x.shape)
    distance, index = nearest(torch.as_tensor(x), torch.as_tensor(y))
    assert (index[:, 0] == torch.arange(50)).all()
    np.testing.assert_allclose(distance[:, 0], np.linalg.norm(x - y, axis=1), rtol=1e-12)


def test_distances_that_differ_by_rounding_are_made_equal():
    found = merged(torch.tensor([0.3, 0.1 + 0.2, 0.5, 0.1], dtype=torch.float64), 1e-12)
    assert found[0] == found[1]
    assert found.tolist() == pytest.approx([0.3, 0.3, 0.5, 0.1])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_distributions_look_equal_in_neighbourhoods(kind):
    """A regression: balls of radius 0 were empty, and all four shares were 0."""
    rng = np.random.default_rng(2)
    found = [prdc(discrete(kind, rng, 100), discrete(kind, rng, 100)) for _ in range(30)]
    mean = {name: np.mean([f[name].value for f in found]) for name in found[0]}
    assert min(mean["precision"], mean["recall"], mean["coverage"]) > 0.95
    densities = [f["density"].value for f in found]
    se = np.std(densities, ddof=1) / np.sqrt(len(densities))
    assert abs(mean["density"] - 1) < 5 * se + 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shift", [0.0, 0.1, 1e5])
def test_order_and_origin_of_tied_rows_do_not_matter(kind, shift):
    rng = np.random.default_rng(3)
    x, y, z = (discrete(kind, rng, n) for n in (60, 50, 70))

    def all_of(x, y, z):
        return [
            *(e.value for e in prdc(x, y).values()),
            *(nearest_neighbour_accuracy(x, y, side=s).value for s in ("real", "samples")),
            authenticity(z, y).value,
            copying(z, x, y).value,
            retrieval_win_rate(x, y, z[:50]).value,
            birthday_support(x, y).value,
        ]

    moved = (rng.permutation(a) + shift for a in (x, y, z[:50]))
    x2, y2, z2 = moved
    z = z[:50]
    assert all_of(x2, y2, z2) == pytest.approx(all_of(x, y, z), abs=1e-9)


def test_a_set_against_itself_has_no_significant_difference():
    """Swapping the labels changes nothing: the order of the sets has no effect."""
    rng = np.random.default_rng(4)
    x, y = discrete("categorical", rng, 50), discrete("categorical", rng, 50)
    one = nearest_neighbour_accuracy(x, y, side="real").value
    assert one == pytest.approx(nearest_neighbour_accuracy(y, x, side="samples").value)


def test_rows_that_are_all_equal():
    x = np.ones((20, 2))
    assert nearest_neighbour_accuracy(x, x).value == pytest.approx(19 / 39)
    assert 0 < nearest_neighbour_p_value(x, x).value <= 1
    assert 0 < retrieval_p_value(np.random.default_rng(0).normal(size=(9, 2)), x, x).value <= 1


def test_fewer_bins_than_asked_for_are_reported():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 2))
    assert "10 bins instead of the 100 asked for" in different_bins(x, x).method
    assert "asked for" not in different_bins(x, x, bins=5).method
    few = discrete("binary", rng, 400)
    assert "8 bins instead of the 20 asked for" in different_bins(few, few, bins=20).method
