import math

import pytest

from allometry import InputError, decode


def test_figures_by_hand():
    ids = [1, 2, 3, 4, 1, 2, 3, 4]
    t = decode.texture(ids, [math.log(2)] * 8)
    assert t.perplexity == pytest.approx(2)
    assert t.repetition == pytest.approx(1 / 5)
    assert t.distinct == pytest.approx((4 / 8, 4 / 7, 4 / 6))


def test_invalid_input_is_refused():
    with pytest.raises(InputError, match="one per token"):
        decode.texture([1, 2], [0.5])
