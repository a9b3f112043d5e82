"""Allometric lines against scipy, statsmodels and published tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import allometry as al
from allometry.laws import Allometry, allometry, common_exponent, compare, consistent, isometry


def pairs(seed=0, n=30, a=0.75, noise=0.2):
    rng = np.random.default_rng(seed)
    x = np.exp(rng.uniform(0, 8, n))
    return x, 3.0 * x**a * np.exp(noise * rng.standard_normal(n))


def test_least_squares_is_scipys():
    x, y = pairs()
    line = allometry(x, y)
    ref = stats.linregress(np.log(x), np.log(y))
    assert line.exponent.value == pytest.approx(ref.slope, rel=1e-12)
    assert line.exponent.se == pytest.approx(ref.stderr, rel=1e-10)
    assert line.p == pytest.approx(ref.pvalue, rel=1e-6)
    assert line.r2 == pytest.approx(ref.rvalue**2, rel=1e-12)
    half = stats.t.ppf(0.975, 28) * ref.stderr
    assert line.exponent.hi == pytest.approx(ref.slope + half, rel=1e-10)


def test_coefficient_interval_is_statsmodels():
    import statsmodels.api as sm

    x, y = pairs()
    ref = sm.OLS(np.log(y), sm.add_constant(np.log(x))).fit()
    lo, hi = np.exp(ref.conf_int()[0])
    line = allometry(x, y)
    assert line.coefficient.interval == pytest.approx((lo, hi), rel=1e-8)


def test_theil_sen_is_scipys():
    x, y = pairs()
    line = allometry(x, y, method="theil-sen")
    ref = stats.theilslopes(np.log(y), np.log(x), 0.95)
    assert line.exponent.value == pytest.approx(ref.slope, rel=1e-12)
    assert line.exponent.interval == pytest.approx((ref.low_slope, ref.high_slope), rel=1e-9)


def test_major_axis_is_the_ratio_of_spreads():
    x, y = pairs()
    line = allometry(x, y, method="sma")
    u, v = np.log(x), np.log(y)
    assert line.exponent.value == pytest.approx(v.std() / u.std(), rel=1e-12)
    # The interval's ends multiply to the square of the slope.
    assert line.exponent.lo * line.exponent.hi == pytest.approx(line.exponent.value**2)


def test_deming_is_the_first_principal_axis():
    x, y = pairs()
    both = np.stack([np.log(x), np.log(y)], 1)
    axis = np.linalg.svd(both - both.mean(0))[2][0]
    line = allometry(x, y, method="deming")
    assert line.exponent.value == pytest.approx(axis[1] / axis[0], rel=1e-10)


@given(st.floats(0.3, 1.5), st.sampled_from([1e-6, 1.0, 1e6]))
def test_exact_lines_are_found_in_any_unit(a, unit):
    x = np.geomspace(1, 1e6, 9)
    for method in ("ols", "sma", "deming", "theil-sen"):
        line = allometry(x * unit, 2.5 * x**a, method=method)
        assert line.exponent.value == pytest.approx(a, rel=1e-6)


def test_words():
    x, _ = pairs()
    assert "superlinear" in allometry(x, x**1.2).words()
    assert "sublinear" in allometry(x, x**0.7).words()
    assert "consistent with linear" in allometry(*pairs(a=1.0)).words()


@pytest.mark.parametrize("method", ["ols", "sma", "deming", "theil-sen"])
def test_isometry_of_points_without_scatter(method):
    x = np.logspace(0, 3, 12)
    assert isometry(x, 3 * x**0.75, method=method) < 1e-6
    assert isometry(x, 3 * x**0.75, exponent=0.75, method=method) > 0.05


def test_isometry():
    x, y = pairs(a=0.75)
    assert isometry(x, y) < 1e-6
    assert isometry(x, y, exponent=0.75) > 0.01
    assert isometry(x, y, exponent=0.75, method="sma") > 0.01


def test_common_exponent_is_analysis_of_covariance():
    import statsmodels.formula.api as smf

    groups = {"a": pairs(0, 20, 0.7), "b": pairs(1, 25, 0.8), "c": pairs(2, 15, 0.75)}
    shared, p = common_exponent(groups)
    import pandas as pd

    frame = {"u": [], "v": [], "g": []}
    for name, (x, y) in groups.items():
        frame["u"] += list(np.log(x))
        frame["v"] += list(np.log(y))
        frame["g"] += [name] * len(x)
    frame = pd.DataFrame(frame)
    small = smf.ols("v ~ u + C(g)", frame).fit()
    full = smf.ols("v ~ u * C(g)", frame).fit()
    assert shared.value == pytest.approx(small.params["u"], rel=1e-9)
    assert shared.se == pytest.approx(small.bse["u"], rel=1e-9)
    assert p == pytest.approx(full.compare_f_test(small)[1], rel=1e-6)


def test_published_columns_are_checked_against_one_another():
    # Karbowski 2007: the O2 row agrees with itself, the glucose row does not.
    oxygen = consistent(0.86, 0.989, 7, se=0.04)
    assert oxygen["ratio"] == pytest.approx(1.0, abs=0.05)
    assert (oxygen["lo"], oxygen["hi"]) == pytest.approx((0.75, 0.96), abs=0.01)
    glucose = consistent(0.86, 0.994, 10, se=0.03)
    assert glucose["se"] == pytest.approx(0.024, abs=0.001)
    assert glucose["ratio"] > 1.2


def test_cities_against_cortex():
    # Changizi & Destefano: exponents of city highways and of the neocortex.
    city = [0.759, 1.138, 0.379, 0.174, 0.108, 1.433, 1.462, 0.390]
    cortex = [3 / 4, 9 / 8, 3 / 8, 1 / 8, 1 / 8, 11 / 8, 3 / 2, 3 / 8]
    names = ["conductors", "surface", "leaf", "diameter", "branching", "volume", "weight", "parts"]
    first = {
        n: al.Estimate(v, lo=v - 0.083, hi=v + 0.083) for n, v in zip(names, city, strict=True)
    }
    rows = compare(first, dict(zip(names, cortex, strict=True)))
    assert all(row.agree for row in rows)
    tight = first | {"diameter": al.Estimate(0.174, lo=0.15, hi=0.198)}
    row = next(r for r in compare(tight, dict(zip(names, cortex, strict=True))) if not r.agree)
    assert row.name == "diameter"
    assert row.ratio == pytest.approx(1.39, abs=0.01)
    # Surfaces and volumes follow from the exponents of their parts.
    assert pytest.approx(1.138) == 0.759 + 0.379
    assert pytest.approx(1.433) == 0.759 + 0.5 + 0.174


def test_wrong_input_raises():
    with pytest.raises(al.InputError, match="at least 3"):
        allometry([1, 2], [1, 2])
    with pytest.raises(al.InputError, match="be positive"):
        allometry([1, 2, -3], [1, 2, 3])
    assert isinstance(allometry([1, 2, 3], [1, 2, 3]), Allometry)
