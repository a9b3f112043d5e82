"""A run of a batched trainer ends where the same training alone ends."""

import contextlib
import dataclasses
import functools
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from allometry import models
from allometry._core.errors import InputError
from allometry.targets import Text
from allometry.train import (
    BatchedTrainer,
    DeviceSettings,
    Training,
    adamw,
    branch_step,
    evaluate,
    next_token,
)
from allometry.train.loop import Stopped
from allometry.train.packed import adamw as packed_adamw

TEXT = Text.from_string("the quick brown fox jumps over the lazy dog. " * 60)
V = TEXT.vocabulary.size


def training(seed=0, steps=40, lr=0.01, decay="cosine", warmup=None):
    rng = torch.Generator().manual_seed(seed)
    model = models.Transformer(vocabulary=V, width=16, depth=1, heads=2, context=16, rng=rng)
    return Training(
        model=model,
        optimiser=adamw(model, lr=lr, width=16, base_width=8, weight_decay=0.1),
        objective=next_token,
        batch=lambda step: (TEXT.batch(step, size=4, context=16, seed=seed),),
        measure=lambda m: evaluate(m, TEXT, "validation", context=16),
        steps=steps,
        seen=64,
        decay=decay,
        warmup=warmup,
    )


def ends(trainer, **kwargs):
    return {ended.name: ended for ended in trainer(**kwargs)}


def same(curve, other, rel=1e-9):
    assert curve.step == other.step
    assert curve.tokens == other.tokens
    np.testing.assert_allclose(curve.loss, other.loss, rtol=rel)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_members_of_several_seeds_lengths_and_rates_end_as_they_do_alone(size):
    asked = [
        {"seed": 0},
        {"seed": 1, "steps": 25},
        {"seed": 2, "lr": 0.003},
        {"seed": 0, "steps": 9},
    ]
    found = ends(BatchedTrainer({str(i): training(**a) for i, a in enumerate(asked)}, size=size))
    for i, arguments in enumerate(asked):
        alone = training(**arguments)
        trained = alone.alone()
        # Float64: what is left is the order of sums over at most 40 steps.
        same(found[str(i)].trained.curve, trained.curve)
        assert found[str(i)].trained.loss.value == pytest.approx(trained.loss.value, rel=1e-9)
        for mine, other in zip(
            found[str(i)].model.parameters(), alone.model.parameters(), strict=True
        ):
            torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-9)


def test_float32_curves_agree_to_1e_4_over_200_steps():
    torch.set_default_dtype(torch.float32)
    try:
        asked = [{"seed": s, "steps": 200, "lr": lr} for s, lr in enumerate([0.01, 0.003])]
        found = ends(BatchedTrainer({str(i): training(**a) for i, a in enumerate(asked)}))
        for i, arguments in enumerate(asked):
            same(found[str(i)].trained.curve, training(**arguments).alone().curve, rel=1e-4)
    finally:
        torch.set_default_dtype(torch.float64)


@pytest.mark.parametrize("size", [1, 2])
def test_reduced_precision_is_that_of_a_training_alone(size):
    """Products are rounded to 8 bits, which grows along 40 steps; an exact run is far from it."""
    torch.set_default_dtype(torch.float32)
    try:
        asked = [{"seed": s, "lr": lr} for s, lr in enumerate([0.01, 0.003])]
        trainer = BatchedTrainer(
            {str(i): training(**a) for i, a in enumerate(asked)}, size=size, precision="bfloat16"
        )
        found = ends(trainer)
        for i, arguments in enumerate(asked):
            reduced = training(**arguments).alone(on=DeviceSettings("cpu", "bfloat16")).curve
            exact = training(**arguments).alone().curve
            mine = np.array(found[str(i)].trained.curve.loss)
            assert np.abs(mine / reduced.loss - 1).max() < 0.005
            assert np.abs(mine / exact.loss - 1).max() < 0.02
            assert not np.allclose(mine, exact.loss, rtol=1e-6)
            assert {p.dtype for p in found[str(i)].model.parameters()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float64)


def test_the_precision_that_was_found_quicker_is_kept_when_resumed(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    try:
        monkeypatch.setattr(packed_adamw, "best_precision", lambda *_: "bfloat16")
        undisturbed = ends(BatchedTrainer({"a": training()}, precision="auto"))
        seen, path = [], tmp_path / "c.safetensors"
        with pytest.raises(Stopped):
            ends(
                BatchedTrainer({"a": training()}, precision="auto"),
                save_to=path,
                watch=lambda *told: seen.append(told),
                stop=lambda: len(seen) == 9,
            )
        monkeypatch.setattr(packed_adamw, "best_precision", lambda *_: "float32")
        resumed = ends(BatchedTrainer({"a": training()}, precision="auto"), save_to=path)
        assert resumed["a"].trained.curve == undisturbed["a"].trained.curve
    finally:
        torch.set_default_dtype(torch.float64)


def test_a_precision_that_needs_scaled_gradients_is_refused():
    with pytest.raises(InputError, match="precision must be one of float32, bfloat16, auto"):
        BatchedTrainer({"a": training()}, precision="float16")


@pytest.mark.parametrize("size", [1, 8])
def test_a_shared_stable_phase_gives_what_separate_trainings_give(size):
    lengths = [10, 20, 40]
    asked = {str(n): {"steps": n, "decay": "wsd", "warmup": 3} for n in lengths}
    seen = []

    def counted(step, batch):
        seen.append(step)
        return batch(step)

    made = {k: training(**a) for k, a in asked.items()}
    made = {
        k: dataclasses.replace(t, batch=functools.partial(counted, batch=t.batch))
        for k, t in made.items()
    }
    found = ends(BatchedTrainer(made, stable_phases=dict.fromkeys(asked, "t"), size=size))
    for name, arguments in asked.items():
        same(found[name].trained.curve, training(**arguments).alone().curve)
    # A stable phase of 32 steps and cool-downs of 2, 4 and 8 instead of 70 steps.
    assert len(seen) == branch_step(40) + 2 + 4 + 8


@pytest.mark.parametrize("stop_at", [1, 9, 10, 26, 39])
def test_stopped_anywhere_and_resumed_it_ends_in_the_same_digits(tmp_path, stop_at):
    def trainer(names):
        lengths = {"a": 10, "b": 25, "c": 40, "d": 40}
        seeds = {"d": 1}
        made = {
            n: training(steps=lengths[n], seed=seeds.get(n, 0), decay="wsd", warmup=3)
            for n in names
        }
        return BatchedTrainer(made, stable_phases={n: "d" if n == "d" else "t" for n in names})

    whole = ends(trainer("abcd"))
    path, told, done = tmp_path / "c.safetensors", [], {}
    events = trainer("abcd")(
        save_to=path, watch=lambda n, p: told.append(p.step), stop=lambda: stop_at in told
    )
    with contextlib.suppress(Stopped):
        for ended in events:
            done[ended.name] = ended
    assert max(told) == stop_at
    # A reported run is not requested again, as with a journal.
    left = [n for n in "abcd" if n not in done]
    done |= ends(trainer(left), save_to=path)
    for name, ended in whole.items():
        assert done[name].trained.curve == ended.trained.curve
        assert done[name].trained.loss == ended.trained.loss


def test_a_member_that_diverges_leaves_the_others_alone():
    bad = training(seed=1)
    with torch.no_grad():
        next(iter(bad.model.parameters())).fill_(math.inf)
    found = ends(BatchedTrainer({"good": training(), "bad": bad}))
    assert "at step 1 of 40" in str(found["bad"].error)
    assert found["bad"].trained is None
    same(found["good"].trained.curve, training().alone().curve)


def test_a_judge_sends_members_away():
    def judge(step, curves):
        return ["slow"] if step >= 5 and "slow" in curves else []

    found = ends(BatchedTrainer({"slow": training(lr=1e-5), "quick": training()}), judge=judge)
    assert found["slow"].trained.curve.step[-1] < 40
    assert found["quick"].trained.curve.step[-1] == 40


COMPILED = """
from tests.train.test_packed_loop import BatchedTrainer, ends, same, training
asked = [{"seed": s, "steps": 6} for s in range(2)]
eager, compiled = (
    ends(BatchedTrainer({str(i): training(**a) for i, a in enumerate(asked)}, compiled=c))
    for c in (False, True)
)
for name in eager:
    same(compiled[name].trained.curve, eager[name].trained.curve, rel=1e-5)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch compiles by the C++ compiler")
def test_a_compiled_trainer_ends_where_an_eager_one_does():
    """In a process of its own: the compiler can't see through shape checks, which tests add."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", COMPILED], env=environment, check=True)


def test_an_empty_trainer_is_refused():
    with pytest.raises(InputError, match="at least one"):
        BatchedTrainer({})
