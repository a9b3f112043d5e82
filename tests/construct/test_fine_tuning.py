import numpy as np
import pytest
import safetensors.torch
import torch

import allometry as al
from allometry.construct.two_block import count
from allometry.measure import d_p
from allometry.targets import SequenceFunction
from allometry.train import descend, proportional, squared_error

ATTEND = SequenceFunction("attention", d=1, n=2)


def tuned(made, steps, lr):
    made.model.requires_grad_(True)

    def objective(step):
        x, y = ATTEND.batch(step, size=256, seed=0)
        return squared_error(made.model, x.double(), y.double())

    optimiser = proportional(made.model, lr=lr)
    return descend(
        made.model,
        optimiser,
        objective,
        lambda: d_p(made, ATTEND.f, shape=(1, 2), seed=1),
        steps=steps,
        seen=256,
    )


def test_training_from_the_construction_lowers_its_error():
    # Wide ramps: between steep ones a gradient sees nothing but flat ground.
    made = al.construct.compact(ATTEND.f, d=1, n=2, delta=1 / 4, ramp=0.24)
    before = d_p(made, ATTEND.f, shape=(1, 2), seed=2)
    trained = tuned(made, 300, 1e-3)
    after = d_p(made, ATTEND.f, shape=(1, 2), seed=2)  # points that nothing else has seen
    assert before.value == pytest.approx(0.0772, abs=0.0005)
    assert after.value < 0.7 * before.value
    assert trained.loss.value == pytest.approx(after.value, rel=0.02)


def test_a_rate_in_proportion_changes_every_tensor_by_the_same_share():
    model = al.construct.compact(ATTEND.f, d=1, n=2, delta=1 / 4, ramp=0.24).model
    model.requires_grad_(True)
    before = {k: v.detach().clone() for k, v in model.named_parameters()}
    optimiser = proportional(model, lr=0.01)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimiser.step()
    for name, weight in model.named_parameters():
        size = before[name].square().mean().sqrt()
        # Adam's first step is the rate itself, up to its epsilon.
        torch.testing.assert_close(before[name] - weight, 0.01 * size.expand_as(weight))


def test_a_construction_is_saved_and_read_as_any_model(tmp_path):
    made = al.construct.universal(ATTEND.f, d=1, n=2, delta=1 / 4)
    weights = safetensors.torch.load_file(made.save(tmp_path / "w.safetensors"))
    again = al.construct.universal(ATTEND.f, d=1, n=2, delta=1 / 4).model
    for weight in again.parameters():
        weight.detach().zero_()
    again.load_state_dict(weights)
    x = torch.rand(50, 1, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again(x), made(x))


@pytest.mark.parametrize(("d", "n", "cells"), [(1, 2, 4), (1, 3, 8), (2, 2, 4)])
def test_the_compact_size_is_computed_without_building(d, n, cells):
    made = al.construct.compact(al.targets.functions.attention, d, n, 1 / cells)
    real = sum(int((w != 0).sum()) for w in made.model.parameters())
    assert 0.9 * count(d, n, cells) < real <= count(d, n, cells)


def test_batches_are_fresh_and_never_those_of_the_measure():
    x, y = ATTEND.batch(3, size=64, seed=0)
    assert torch.equal(x, ATTEND.batch(3, size=64, seed=0)[0])
    assert not torch.equal(x, ATTEND.batch(4, size=64, seed=0)[0])
    np.testing.assert_allclose(y, ATTEND.f(x))
