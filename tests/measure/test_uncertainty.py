import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from allometry import Estimate
from allometry.measure import uncertainty


def test_mean_is_students():
    a = np.random.default_rng(0).normal(size=23)
    found = uncertainty.mean(a)
    wanted = stats.ttest_1samp(a, 0).confidence_interval()
    assert (found.lo, found.hi) == pytest.approx((wanted.low, wanted.high))


def test_difference_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=23), 3 * rng.normal(size=11)
    found = uncertainty.difference(a, b)
    wanted = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (found.lo, found.hi) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (512, 1000)])
def test_proportion_is_wilsons(hits, n):
    found = uncertainty.proportion(hits, n)
    # The interval always includes the share itself, also at 0 and 1.
    wanted = proportion_confint(hits, n, method="wilson")
    assert (found.lo, found.hi) == pytest.approx(wanted, abs=1e-12)


def test_jackknife_of_a_mean_and_of_a_variance():
    a = np.random.default_rng(0).normal(size=40)
    without = (a.sum() - a) / 39
    found = uncertainty.jackknife(a.mean(), without)
    assert found.value == pytest.approx(a.mean())
    assert found.se == pytest.approx(a.std(ddof=1) / math.sqrt(40))
    # The plug-in variance has bias -s2/n, which the jackknife removes exactly.
    plug = np.array([np.delete(a, i).var() for i in range(40)])
    assert uncertainty.jackknife(a.var(), plug).value == pytest.approx(a.var(ddof=1))


def test_bootstrap_of_a_mean_has_its_standard_error():
    a = np.random.default_rng(0).normal(size=200)
    found = uncertainty.bootstrap(lambda s: float(s[0].mean()), [a], repeats=2000)
    # The standard deviation of 2,000 draws is within 1/sqrt(4000) = 1.6 %, 5 times that here.
    assert found.se == pytest.approx(a.std() / math.sqrt(200), rel=0.08)


def test_p_value_counts_itself_and_has_a_monte_carlo_interval():
    found = uncertainty.p_value(4, 99)
    assert found.value == 0.05
    wanted = stats.binomtest(4, 99).proportion_ci(method="exact")
    assert found.lo == pytest.approx(wanted.low)
    assert found.hi == pytest.approx(wanted.high)
    assert uncertainty.p_value(0, 99).lo == 0
    assert uncertainty.p_value(99, 99).hi == 1


def test_transformed_stays_in_range():
    found = uncertainty.transformed(
        Estimate(0.1, se=1.0), lambda v: v, 1.0, floor=0.0, ceiling=1.0
    )
    assert (found.lo, found.value, found.hi) == (0.0, 0.1, 1.0)


def test_one_value_has_no_standard_error():
    assert uncertainty.mean(np.array([3.0])).se is None
    assert uncertainty.difference(np.ones(3), np.ones(4)).se == 0


def test_median_interval_covers_for_a_skewed_distribution():
    """At least 95 % for every distribution: 2,000 samples of 16 log-normal values."""
    g = np.random.default_rng(3)
    hits = [uncertainty.median(g.lognormal(size=16).tolist()).covers(1.0) for _ in range(2000)]
    # The order statistics of 16 give 97.9 %; 5 standard errors of a share below that.
    assert np.mean(hits) > 0.979 - 5 * (0.979 * 0.021 / 2000) ** 0.5
    assert uncertainty.median([1.0, 2.0, 3.0, 4.0, 5.0]).interval == (-np.inf, np.inf)
    assert uncertainty.median([2.0, 1.0, np.inf]).value == 2.0
