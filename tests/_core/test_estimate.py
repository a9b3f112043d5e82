import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from allometry import Estimate

finite = st.floats(-1e6, 1e6)


@given(value=finite, se=st.floats(0, 1e3))
def test_the_interval_is_the_normal_one(value, se):
    lo, hi = stats.norm.interval(0.95, value, se) if se > 0 else (value, value)
    assert Estimate(value, se=se).interval == pytest.approx((lo, hi), rel=1e-12, abs=1e-12)


def test_a_lopsided_interval_is_kept():
    x = Estimate(1.0, lo=0.5, hi=math.inf)
    assert x.interval == (0.5, math.inf)
    assert x.covers(1e9)
    assert not x.covers(0.4)


def test_nothing_known_covers_everything():
    assert Estimate(1.0).interval == (-math.inf, math.inf)


def test_the_dictionary_is_json_even_with_infinities():
    data = Estimate(1.0, lo=0.5, hi=math.inf).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        "value": 1.0,
        "se": None,
        "lo": 0.5,
        "hi": None,
    }


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.51723, se=0.0031), "1.5172 ± 0.0031"),
        (Estimate(17, exact=True), "17"),
        (Estimate(2.0, lo=1.0, hi=4.0), "2 (1 to 4)"),
        (Estimate(123456789.0, se=1000.0), "1.235e+08 ± 1e+03"),
    ],
)
def test_it_prints_no_more_digits_than_it_knows(estimate, text):
    assert str(estimate) == text


def test_an_exact_number_covers_itself_alone():
    x = Estimate(3, exact=True)
    assert x.covers(3)
    assert not x.covers(3.0001)


@given(value=finite, se=st.floats(0, 1e3))
def test_a_format_is_that_of_the_value_and_none_is_the_whole(value, se):
    x = Estimate(value, se=se)
    for spec in (".3f", "10.2e", ",.0f", "+.4g"):
        assert format(x, spec) == format(value, spec)
    assert f"{x}" == str(x)


def test_a_format_that_numbers_do_not_have_is_refused():
    with pytest.raises(ValueError, match="format"):
        format(Estimate(1.0), "nonsense")


def test_a_skewed_interval_is_shown_instead_of_the_standard_error():
    # The bootstrap of a coefficient such as A in A/N^alpha: its standard error says nothing.
    skewed = Estimate(138.2, se=7.9e7, lo=9.1, hi=1.1e6)
    assert str(skewed) == "138.2 (9.1 to 1.1e+06)"
    assert str(Estimate(1.0, se=0.1, lo=0.8, hi=1.2)) == "1.00 ± 0.10"
