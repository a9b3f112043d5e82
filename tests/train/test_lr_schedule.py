import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.train.lr_schedule import log_spaced, warmup_decay


@given(
    steps=st.integers(2, 500),
    share=st.floats(0.01, 0.9),
    shape=st.sampled_from(["cosine", "linear"]),
)
def test_the_rate_rises_to_one_and_falls_towards_zero(steps, share, shape):
    warmup = max(1, int(share * steps))
    factors = [warmup_decay(s, steps=steps, warmup=warmup, shape=shape) for s in range(steps)]
    assert max(factors) == 1.0
    assert min(factors) > 0
    assert np.all(np.diff(factors[:warmup]) > 0)
    assert np.all(np.diff(factors[warmup:]) < 0)
    assert warmup_decay(steps, steps=steps, warmup=warmup, shape=shape) == pytest.approx(
        0, abs=1e-12
    )


def test_halfway_down_a_cosine_is_one_half():
    assert warmup_decay(60, steps=110, warmup=10) == pytest.approx(0.5)


def test_an_unknown_shape_is_refused():
    with pytest.raises(InputError, match="'cosine' or 'linear'"):
        warmup_decay(0, steps=1, warmup=1, shape="step")


@given(steps=st.integers(1, 10**6), points=st.integers(1, 30))
def test_log_spaced_steps_end_at_the_last(steps, points):
    marks = log_spaced(steps, points)
    assert marks[-1] == steps
    assert marks == sorted(set(marks))
    assert marks[0] >= 1
    assert len(marks) <= points + 1
