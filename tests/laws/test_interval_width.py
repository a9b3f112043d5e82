"""Widths of intervals: wider with fewer runs and farther targets; no run counts twice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry import laws
from allometry.laws import intervals


def known(n, seed=0, noise=0.003):
    N = np.geomspace(1e6, 1e8, n)
    return N, (1.69 + 406.4 / N**0.34) * np.exp(
        noise * np.random.default_rng(seed).standard_normal(n)
    )


def width(N, loss, at, form="auto"):
    found = laws.fit({"N": N, "loss": loss}, form, bootstrap=60).predict(N=at).item()
    return math.log(found.hi / found.lo)


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_three_runs_have_wider_intervals_than_thirty(noise):
    """417 times beyond the largest. A regression: three runs gave 0.20 and thirty 0.33."""
    far = 417e8
    for seed in (0, 1):
        many = width(*known(30, seed, noise), far, "floor")
        assert width(*known(3, seed, noise), far) > 1.5 * many


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([0.001, 0.01, 0.03]),
    irreducible=st.sampled_from([0.0, 0.5, 1.7]),
    alpha=st.sampled_from([0.1, 0.25, 0.4]),
)
def test_intervals_widen_with_fewer_runs_and_farther_targets(seed, noise, irreducible, alpha):
    def runs(n):
        N = np.geomspace(1e6, 1e8, n)
        rng = np.random.default_rng(seed)
        return N, (irreducible + 2 * (N / 1e6) ** -alpha) * np.exp(noise * rng.standard_normal(n))

    few = laws.fit(dict(zip(("N", "loss"), runs(3), strict=True)), bootstrap=40)
    more = laws.fit(dict(zip(("N", "loss"), runs(5), strict=True)), bootstrap=40)
    at = 1e8 * np.array([1.0, 3.0, 10.0, 100.0, 417.0])
    widths = []
    for law in (few, more):
        lo, _, hi = law.band(N=at)
        widths.append(np.log(hi / lo))
        assert (np.diff(widths[-1]) > 0).all()
    assert (widths[0][2:] > widths[1][2:]).all()


@given(
    variance=st.floats(1e-6, 0.1),
    noise=st.floats(1e-4, 0.1),
    n=st.integers(3, 60),
    near=st.floats(0, 8),
    more=st.floats(0, 8),
)
def test_the_half_width_grows_with_distance_and_falls_with_runs(variance, noise, n, near, more):
    extra = intervals.extrapolation_posterior([], [], [])

    def half(far, runs):
        far = np.array([far])
        total = variance + intervals.few_runs_variance(far, runs, 1)
        return intervals.half_width(total, noise, max(runs - 2, 1), far, extra)[0]

    assert half(near + more, n) >= half(near, n) * (1 - 1e-9)
    few, more_runs = (intervals.few_runs_variance(np.array([near]), m, 1) for m in (n, n + 1))
    assert few >= more_runs


@pytest.mark.parametrize("seeds", [True, False])
def test_a_run_that_is_listed_twice_counts_once(seeds):
    N, loss = known(8)
    once = {"N": N, "loss": loss} | ({"seed": np.zeros(8, int)} if seeds else {})
    twice = {k: np.concatenate([v, v[[2, 5]]]) for k, v in once.items()}
    one, two = (laws.fit(d, "floor", bootstrap=50) for d in (once, twice))
    assert two.n == one.n == 8
    assert two.params == one.params
    assert any("2 runs are duplicates" in w for w in two.warnings)


def test_other_seeds_and_rounded_losses_are_separate_runs():
    N, loss = known(6)
    both = {"N": np.tile(N, 2), "loss": np.tile(loss, 2), "seed": np.repeat([0, 1], 6)}
    assert laws.fit(both, "floor", bootstrap=0).n == 12
    coarse = {"N": np.tile(N, 2), "loss": np.tile(loss.round(3), 2)}
    assert laws.fit(coarse, "floor", bootstrap=0).n == 12


def fine_tuned(seed, sizes=16, noise=0.005):
    """A law from scratch of few runs, and fine-tuned runs whose transfer is known."""
    rng = np.random.default_rng(seed)

    def loss(N, D, noise):
        exact = 1.69 + 406.4 / N**0.34 + 410.7 / D**0.28
        return exact * np.exp(noise * rng.standard_normal(len(N)))

    N, D = 10 ** rng.uniform(7, 9, sizes), 10 ** rng.uniform(8.3, 10.3, sizes)
    runs = {"N": N, "D": D, "loss": loss(N, D, noise)}
    scratch = laws.fit(runs, "chinchilla", bootstrap=200, starts=4)
    n, d = 10 ** rng.uniform(7, 9, 24), 10 ** rng.uniform(6, 8, 24)
    return scratch, {"N": n, "D": d, "loss": loss(n, d + 1.9e4 * d**0.18 * n**0.38, 0.001)}


def test_transfer_is_as_uncertain_as_the_law_from_scratch():
    """Without it the intervals covered k, alpha or beta in 35 % of cases (slow test below)."""
    scratch, runs = fine_tuned(0)
    law = laws.transfer(scratch, **runs, bootstrap=200, starts=4)
    sure = replace(scratch, members=tuple(replace(m, draws=m.draws[:0]) for m in scratch.members))
    alone = laws.transfer(sure, **runs, bootstrap=200, starts=4)
    assert any("has no bootstrap draws" in w for w in alone.warnings)
    for name, truth in {"k": 1.9e4, "alpha": 0.18, "beta": 0.38}.items():
        wide, narrow = law.params[name], alone.params[name]
        assert wide.value == narrow.value
        assert wide.hi - wide.lo > 2 * (narrow.hi - narrow.lo)
        assert wide.lo <= truth <= wide.hi


@pytest.mark.slow
def test_transfer_intervals_have_nearly_nominal_coverage():
    covered = []
    for seed in range(100, 160):
        scratch, runs = fine_tuned(seed)
        law = laws.transfer(scratch, **runs, bootstrap=200, starts=4)
        for name, truth in {"k": 1.9e4, "alpha": 0.18, "beta": 0.38}.items():
            covered.append(law.params[name].lo <= truth <= law.params[name].hi)
    # 0.91 on 40 other seeds; the intervals of a law from scratch of 16 runs are a little narrow.
    assert np.mean(covered) > 0.85
