import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.train import On, device
from allometry.train.loop import descend
from tests.train.test_loop import run, small


def test_the_best_device_is_the_one_there_is():
    assert On().resolved().device == device.best_device()
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        assert On().resolved().device == "cpu"
        with pytest.raises(InputError, match="device must be auto or one of cpu; got 'cuda'"):
            On("cuda").resolved()


def test_cards_are_shared_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device.best_device(i) for i in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize("arguments", [{"device": "abacus"}, {"precision": "float8"}])
def test_what_is_unknown_is_refused(arguments):
    with pytest.raises(InputError, match="must be one of"):
        On(**arguments)


@pytest.mark.parametrize(("reduced", "expected"), [(0.5, "bfloat16"), (0.9, "float32")])
def test_precision_is_reduced_only_where_trying_shows_a_gain(monkeypatch, reduced, expected):
    monkeypatch.setattr(
        device, "step_seconds", lambda on: reduced if on.precision == "bfloat16" else 1.0
    )
    assert On("cpu", "auto").resolved().precision == expected


def test_a_processor_without_bfloat16_arithmetic_keeps_float32():
    """Such a one converts back and forth: 3 to 4 times slower where it was measured."""
    flags = Path("/proc/cpuinfo").read_text()
    if "amx_bf16" in flags or "avx512_bf16" in flags:
        pytest.skip("this processor has bfloat16 arithmetic")
    assert device.step_seconds(On("cpu", "bfloat16")) > device.step_seconds(On("cpu"))
    assert On("cpu", "auto").resolved().precision == "float32"


def learnt(precision):
    """A few steps on one number per row, computed in some precision."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1, dtype=torch.float32)
    x = torch.randn(64, 8, dtype=torch.float32)
    y = x.sum(1, keepdim=True)
    optimiser = torch.optim.AdamW([{"params": list(model.parameters()), "peak_lr": 0.05}])
    seen = []

    def objective(step):
        out = model(x)
        seen.append(out.dtype)
        return (out - y).square().mean()

    def measure():
        from allometry._core.estimate import Estimate

        return Estimate((model(x) - y).square().mean().item())

    on = On("cpu", precision)
    trained = descend(model, optimiser, objective, measure, steps=60, seen=64, on=on)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return trained.loss.value, set(seen)


def test_reduced_precision_computes_in_it_and_still_learns():
    plain, seen = learnt("float32")
    assert seen == {torch.float32}
    for precision, dtype in [("bfloat16", torch.bfloat16), ("float16", torch.float16)]:
        reduced, seen = learnt(precision)
        assert seen == {dtype}
        assert reduced == pytest.approx(plain, rel=0.2, abs=0.02)


def test_a_scale_that_overflows_skips_a_step_and_is_no_divergence():
    model = torch.nn.Linear(4, 1, dtype=torch.float32)
    optimiser = torch.optim.AdamW([{"params": list(model.parameters()), "peak_lr": 0.01}])
    x = torch.full((2, 4), 100.0)
    before = model.weight.detach().clone()
    seen = []

    def objective(step):
        seen.append(model.weight.detach().clone())
        return model(x.half()).float().square().mean()

    def measure():
        from allometry._core.estimate import Estimate

        return Estimate(0.0)

    descend(model, optimiser, objective, measure, steps=30, seen=2, on=On("cpu", "float16"))
    assert torch.equal(seen[1], before)  # 65536 x 100 is beyond float16: skipped
    assert not torch.equal(model.weight, before)
    assert math.isfinite(float(model.weight.sum()))


def drawn():
    return torch.rand(3).tolist() + np.random.rand(3).tolist() + [random.random()]  # noqa: NPY002


def test_deterministic_runs_draw_the_same_and_use_only_kernels_that_repeat():
    with On(deterministic=True).repeatable(7):
        first = drawn()
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert not torch.are_deterministic_algorithms_enabled()
    drawn()
    with On(deterministic=True).repeatable(7):
        assert drawn() == first
    with On().repeatable(7):
        assert drawn() != first


def test_two_deterministic_trainings_end_in_the_same_bits():
    ends = []
    for _ in range(2):
        drawn()  # whatever came before
        with On(deterministic=True).repeatable(3):
            model = small()
            run(model, steps=10)
            ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*ends)
