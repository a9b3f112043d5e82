import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import hindsight, shannon
from allometry.targets import Text


def test_shannons_series_of_tiny_shakespeare(shared_data):
    text = Text(shared_data / "tinyshakespeare" / "input.txt", splits=(0.9, 0.1, 0.0))
    found = shannon(text.train, 65, 4)
    want = [6.0224, 4.7740, 3.5374, 2.7457, 2.1505]
    assert [f.value for f in found] == pytest.approx(want, abs=5e-5)
    assert found[0].exact
    assert all(f.se > 0 for f in found[1:])


def test_a_fair_coin_has_one_bit_at_every_order():
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 2, 100_000))
    for f in shannon(x, 2, 4)[1:]:
        assert f.value == pytest.approx(1, abs=16 / 100_000 + 5 / 100_000)


def test_a_cycle_is_known_after_one_symbol():
    x = torch.arange(999) % 3
    f = [e.value for e in shannon(x, 3, 3)]
    assert f[1] == pytest.approx(np.log2(3))
    assert abs(f[2]) < 5e-3
    assert hindsight(x, 3, 0) == pytest.approx(999 * np.log(3))
    assert hindsight(x, 3, 1) == 0


def test_invalid_input_raises():
    with pytest.raises(InputError, match="ids must be more than 4"):
        shannon(torch.tensor([0, 1]), 2, 4)
