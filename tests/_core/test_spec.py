import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import Estimate, InputError, Spec

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def ask(value, other=2):
    return (value, other)


def test_a_typo_fails_where_it_is_written():
    with pytest.raises(InputError, match=r"Estimate .*'sse'.* It takes: value, se, lo"):
        Spec(Estimate, value=1.0, sse=2.0)


def test_a_default_spelled_out_is_the_same_request():
    assert Spec(ask, value=1).key == Spec(ask, value=1, other=2).key
    assert Spec(ask, value=1).key != Spec(ask, value=1, other=3).key


@given(value=plain)
def test_the_key_survives_a_round_trip_through_json(value):
    spec = Spec(ask, value=value)
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict())), trusted=True).key == spec.key


def test_the_key_is_the_same_in_every_process_and_release():
    assert Spec(Estimate, value=2.0).key == "443724f61c42fbde"


def test_calling_does_what_was_asked_and_nested_specs_come_first():
    made = Spec(ask, value=Spec(Estimate, value=1.5))()
    assert made == (Estimate(1.5), 2)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), float("inf")])
def test_what_has_no_plain_spelling_is_refused(value):
    with pytest.raises(InputError):
        Spec(ask, value=value)


def test_what_can_not_be_imported_is_refused():
    with pytest.raises(InputError, match="top level"):
        Spec(lambda value: value, value=1)
