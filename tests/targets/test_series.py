import json

import numpy as np
import pytest
import torch

from allometry import InputError, Spec
from allometry.targets import AutoregressiveSeries


def test_the_series_has_the_stated_distribution():
    target = AutoregressiveSeries([0.9], sigma=0.5, length=100_000)
    x = target.train.numpy()
    # Var = sigma^2 / (1 - phi^2); its estimate has se Var sqrt(2 * 9.5 / n), for values correlate.
    variance = 0.25 / (1 - 0.81)
    assert x.var() == pytest.approx(variance, rel=5 * np.sqrt(2 * 9.5 / len(x)))
    e = x[1:] - 0.9 * x[:-1]
    assert e.std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * len(e)))
    loss = 0.5 * np.log(2 * np.pi * 0.25) + (e**2).mean() / 0.5
    assert loss == pytest.approx(target.entropy_rate, abs=5 * np.sqrt(0.5 / len(e)))


def test_it_is_made_again_from_its_spec_and_batches_are_pure():
    target = AutoregressiveSeries([0.5, -0.3], length=500, seed=3)
    spec = Spec.from_dict(json.loads(json.dumps(target.spec.to_dict())), trusted=True)
    assert spec().fingerprint == target.fingerprint
    one = target.batch(4, size=3, context=8, seed=1)
    assert one.shape == (3, 9)
    assert torch.equal(one, target.batch(4, size=3, context=8, seed=1))
    assert len(target.train) + len(target.validation) + len(target.test) == 500
    json.dumps(target.describe())


def test_invalid_input_is_refused():
    with pytest.raises(InputError, match="stationary"):
        AutoregressiveSeries([1.0])
