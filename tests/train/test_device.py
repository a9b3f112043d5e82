import contextlib
import math
import os
import random
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.study.recipes.text_run import text_training
from allometry.targets import Text
from allometry.train import DeviceSettings, adamw, checkpoint, device
from allometry.train.loop import Stopped, descend
from tests.train.test_loop import TEXT, run, small


def test_the_best_device_is_the_one_there_is():
    assert DeviceSettings().resolved().device == device.best_device()
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        assert DeviceSettings().resolved().device == "cpu"
        with pytest.raises(InputError, match="device must be auto or one of cpu; got 'cuda'"):
            DeviceSettings("cuda").resolved()


def test_cards_are_shared_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device.best_device(i) for i in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize("arguments", [{"device": "abacus"}, {"precision": "float8"}])
def test_what_is_unknown_is_refused(arguments):
    with pytest.raises(InputError, match="must be one of"):
        DeviceSettings(**arguments)


@pytest.mark.parametrize(("reduced", "expected"), [(0.001, "bfloat16"), (0.009, "float32")])
def test_precision_is_reduced_only_where_trying_shows_a_gain(monkeypatch, reduced, expected):
    weight = torch.ones(1, requires_grad=True)
    now = [0.0]
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def step():
        now[0] += reduced if torch.is_autocast_enabled("cpu") else 0.01
        return weight.sum()

    assert device.best_precision(step, DeviceSettings("cpu", "auto")) == expected


def test_a_small_transformer_stays_at_float32_and_a_resumed_one_at_what_it_began_with(
    tmp_path, monkeypatch
):
    """Conversions cost several times what products so small could gain, on any processor."""
    # The processor's seconds, which others' work does not lengthen as it does the clock's.
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=time.process_time))
    training = text_training(Asked(), *model_and_optimiser())
    path, seen = tmp_path / "c.safetensors", []
    with pytest.raises(Stopped):
        training.alone(
            save_to=path,
            watch=seen.append,
            stop=lambda: len(seen) == 3,
            on=DeviceSettings("cpu", "auto"),
        )
    assert checkpoint.newest(path)[1]["precision"] == "float32"
    again = text_training(Asked(), *model_and_optimiser())
    plain = text_training(Asked(), *model_and_optimiser()).alone()
    with monkeypatched("best_precision"):
        resumed = again.alone(save_to=path, on=DeviceSettings("cpu", "auto"))
    assert resumed.curve == plain.curve


@contextlib.contextmanager
def monkeypatched(name):
    """Must not be called again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"allometry.train.training.{name}", None)
        yield


@dataclass
class Asked:
    target: Text = TEXT
    context: int = 16
    batch: int = 8
    steps: int = 6
    seed: int = 3


def model_and_optimiser():
    model = small()
    return model, adamw(model, lr=0.01, width=16, base_width=16)


def test_deterministic_trainings_do_not_try():
    assert DeviceSettings("cpu", "auto", deterministic=True).resolved().precision == "float32"


@pytest.mark.parametrize(
    ("on", "precision"),
    [
        (DeviceSettings(), "float32"),
        (DeviceSettings(precision="bfloat16"), "bfloat16"),
        (DeviceSettings(precision="auto"), "auto"),
        (DeviceSettings(precision="auto", deterministic=True), "float32"),
        (DeviceSettings(precision="float16"), "float32"),
    ],
)
def test_packs_have_no_scaler_and_repeat_themselves_where_asked(on, precision):
    assert on.packed == precision


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

    on = DeviceSettings("cpu", precision)
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

    descend(
        model, optimiser, objective, measure, steps=30, seen=2, on=DeviceSettings("cpu", "float16")
    )
    assert torch.equal(seen[1], before)  # 65536 x 100 is beyond float16: skipped
    assert not torch.equal(model.weight, before)
    assert math.isfinite(model.weight.detach().sum())


def drawn():
    return torch.rand(3).tolist() + np.random.rand(3).tolist() + [random.random()]  # noqa: NPY002


def test_deterministic_runs_draw_the_same_and_use_only_kernels_that_repeat():
    with DeviceSettings(deterministic=True).repeatable(7):
        first = drawn()
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert not torch.are_deterministic_algorithms_enabled()
    drawn()
    with DeviceSettings(deterministic=True).repeatable(7):
        assert drawn() == first
    with DeviceSettings().repeatable(7):
        assert drawn() != first


def test_two_deterministic_trainings_end_in_the_same_bits():
    ends = []
    for _ in range(2):
        drawn()  # whatever came before
        with DeviceSettings(deterministic=True).repeatable(3):
            model = small()
            run(model, steps=10)
            ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*ends)
