"""Every recipe on a GPU: no tensor of another device, no transfer in a step, the CPU's digits.

There is no GPU here. `SimulatedDevice` refuses what CUDA refuses, counts transfers, and computes;
torch's own `FakeTensorMode` checks the steps a second time by rules that nobody here wrote.
"""

import dataclasses
import functools
import itertools
import math
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from allometry import Estimate, Spec
from allometry.models.diffusion.denoiser import Diffusion
from allometry.study import recipes
from allometry.study.recipes import sample_scores, text_run
from allometry.study.request import RunContext, TrainingRequest, default_dtype
from allometry.targets import Brackets, SequenceFunction, Sources, Symbols, Transduction
from allometry.train import device_batches
from allometry.train.checkpoint import read_weights
from allometry.train.device import DeviceSettings
from allometry.train.packed import batched_trainer
from allometry.train.training import Training
from tests.conformance.test_every_recipe import FAMILIES, specs
from tests.support.simulated_device import CUDA, SimulatedDevice

NO_GRADIENT = {"ngram", "baseline", "moments", "quantiser"}
"""Jobs of counting or closed forms: they have no training to move."""

OWN_TARGETS = ("transduction", "twins", "learner", "upstream", "cloze", "next passage", "domains")
BLOCK, STEPS = 3, 5
TRAINED = [*sorted(set(FAMILIES) - NO_GRADIENT), *OWN_TARGETS]


@functools.cache
def sources() -> Sources:
    folder = Path(tempfile.mkdtemp())
    for name, words in {"one": "abcab ", "two": "cdacd "}.items():
        (folder / f"{name}.txt").write_text(words * 400)
    return Sources(folder / "one.txt", folder / "two.txt", codes=False)


@functools.cache
def spec_of(name: str) -> Spec:
    few = {"tokens": [256.0], "seeds": 1}
    if name == "transduction":
        return recipes.transduction(Transduction("reversal", size=4, length=4), [2e3], **few)[0]
    if name == "twins":
        return recipes.twins(Brackets(k=2, depth=2, length=12), [1e3], **few, nestings=(2,))[-1]
    if name == "learner":
        return recipes.learner(SequenceFunction("attention", d=1, n=2), [1e3], **few)[0]
    if name in ("upstream", "cloze", "next passage"):
        task = "next symbol" if name == "upstream" else name
        return recipes.upstream(sources(), [1e3], **few, task=task, context=8, batch=4)[0]
    if name == "domains":
        from allometry.study.recipes.domain_runs import Domains

        return recipes.domains(Domains([Symbols.series()], context=64), [1e3], **few, batch=4)[0]
    return specs(name, (60,) if name in ("planar", "radial") else (2e3,))[0]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few samples and short blocks: the protocol is tested, not the quality."""
    monkeypatch.setattr(sample_scores, "SCORED", 32)
    monkeypatch.setattr(sample_scores, "SHOWN", 20)
    monkeypatch.setattr(text_run, "SAMPLE", 4)
    for module in (device_batches, batched_trainer):
        monkeypatch.setattr(module, "READ_EVERY", BLOCK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's recurrent layers look for cuDNN
        yield


def carried_out(name, folder, on, dtype=None):
    for part in ("checkpoints", "weights", "samples"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    request = spec_of(name)()
    with default_dtype(dtype or request.dtype):
        return request(RunContext("key", folder, lambda _: None, lambda: False, on=on))


class Found(Exception):
    pass


def training_of(name, monkeypatch) -> Training:
    """The training of a request, also of requests that do more than one training."""
    request = spec_of(name)()
    if isinstance(request, TrainingRequest):
        return request.training()
    found = []

    def train(self, training, save_to=None):
        found.append(training)
        raise Found

    monkeypatch.setattr(RunContext, "train", train)
    with pytest.raises(Found):
        request(RunContext("key", Path(), lambda _: None, lambda: False))
    return found[0]


QUICK = {"transformer", "affine_coupling", "glow", "vae", "vqvae", "autoencoder", "gan",
         "transduction"}  # fmt: skip
"""Recipes of which everything is tested at every commit; the others too by `make slow`."""


def quick_first(names, quick=QUICK):
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


# Their likelihood takes forward derivatives, which the simulated device does not carry.
FORWARD_DERIVATIVES = {"diffusion", "flow_matching"}


@pytest.mark.parametrize(
    "name", quick_first([name for name in TRAINED if name not in FORWARD_DERIVATIVES])
)
def test_a_whole_run_gives_the_digits_of_the_cpu(name, tmp_path):
    """Steps, evaluation, checkpoint, weights and samples."""
    expected = carried_out(name, tmp_path / "cpu", DeviceSettings("cpu"))
    with SimulatedDevice() as device:
        found = carried_out(name, tmp_path / "gpu", DeviceSettings("cuda:0"))
    assert device.counts["to device"] > 0
    # Torch chooses other kernels of attention and recurrent layers where it does not see a CPU.
    assert found.columns["loss"] == pytest.approx(expected.columns["loss"], rel=1e-5)
    assert set(found.measures) == set(expected.measures)
    if name not in ("gan", "domains", *OWN_TARGETS):
        assert found.columns["dtype"] == "float32"


ALSO = {"gru", "pixelcnn", "cloze", "contractive_autoencoder", "variational_splines", "discrete",
        "moe"}  # fmt: skip


@pytest.mark.parametrize("name", quick_first(sorted(set(TRAINED) - {"gan"}), QUICK | ALSO))
def test_no_transfer_and_no_wait_within_a_block_of_steps(name, monkeypatch, tmp_path):
    training = training_of(name, monkeypatch)
    seen = []

    def objective(model, *batch):
        seen.append(dict(device.counts))
        return training.objective(model, *batch)

    plain = Training(
        model=training.model, optimiser=training.optimiser, objective=objective,
        batch=training.batch, measure=lambda _: Estimate(0.0), steps=STEPS,
        seen=training.seen, curve_points=1,
    )  # fmt: skip
    with SimulatedDevice() as device:
        plain.alone(on=DeviceSettings("cuda:0"))
    after = [
        {k: v - a.get(k, 0) for k, v in b.items() if v != a.get(k, 0)}
        for a, b in itertools.pairwise(seen)
    ]
    assert after[: BLOCK - 1] == [{}] * (BLOCK - 1), device.where
    # Between two blocks: the losses of the last one are read, the batches of the next one copied.
    assert after[BLOCK - 1]["to host"] == 1
    assert after[BLOCK:] == [{}] * (STEPS - 1 - BLOCK)


PACKED = ["affine_coupling", "vae"]


@pytest.mark.parametrize("name", PACKED)
def test_vectorised_runs_transfer_nothing_within_a_block(name, tmp_path):
    """Packs on the device: no transfer in a block, the digits of the CPU, and checkpoints."""

    def trained(device, folder):
        folder.mkdir()
        trainer = trainer_of(name, device)
        results = list(trainer(save_to=folder / "pack.safetensors", save_every=0.0))
        return {r.name: (r.trained.loss.value, r.model) for r in results}

    expected = trained("cpu", tmp_path / "a")
    with SimulatedDevice() as simulated:
        found = trained("cuda:0", tmp_path / "b")
        assert all(p.device == CUDA for _, m in found.values() for p in m.parameters())
        stack = trainer_of(name, "cuda:0").stacks[0]
        stack.step(0)
        before = dict(simulated.counts)
        for step in range(1, BLOCK):
            stack.step(step)
        assert dict(simulated.counts) == before, simulated.where[-3:]
    for key, (loss, _) in expected.items():
        assert found[key][0] == pytest.approx(loss, rel=1e-5)


def training(name, seed):
    request = spec_of(name)()
    made = dataclasses.replace(request, seed=seed).training()
    return dataclasses.replace(made, steps=STEPS, curve_points=2, snapshot=None)


def trainer_of(name, device):
    named = {str(seed): training(name, seed) for seed in range(2)}
    return batched_trainer.BatchedTrainer(named, device=device)


@pytest.mark.parametrize("variant", [{}, {"unroll": 2}, {"wasserstein": True}, {"pack": 2}])
def test_a_gan_transfers_nothing_between_two_draws_of_random_numbers(variant):
    target = spec_of("gan")().target
    request = recipes.gan(target, [2e3], tokens=[4096.0], seeds=1, **variant)[0]()
    with SimulatedDevice() as device:
        game = request.game(torch.zeros(64, 2), "cuda:0")
        game.step()
        before = dict(device.counts)
        for _ in range(3):
            game.step()
        assert dict(device.counts) == before, device.where[-3:]
        assert math.isfinite(float(game.cost_G))


def tensors_of(model):
    """Dictionary, key and value of every parameter and buffer."""
    return [
        (tensors, key, value.detach())
        for module in model.modules()
        for tensors in (module._parameters, module._buffers)
        for key, value in tensors.items()
        if value is not None
    ]


@pytest.mark.parametrize("name", quick_first(sorted(set(TRAINED) - {"gan"})))
def test_a_step_has_one_device_by_the_rules_of_torch(name, monkeypatch):
    """Forward and backward under `FakeTensorMode`.

    Without a driver its CUDA tensors end the process, so the device is `meta`; mixing it with the
    CPU is refused in the same way.
    """
    training = training_of(name, monkeypatch)
    batch, model = training.batch(0), training.model
    slots = tensors_of(model)
    with FakeTensorMode() as mode:
        for tensors, key, value in slots:
            moved = mode.from_tensor(value).to("meta")
            tensors[key] = moved.requires_grad_(moved.is_floating_point())
        loss = training.objective(model, *(mode.from_tensor(part).to("meta") for part in batch))
        loss.backward()
        assert loss.device.type == "meta"


@pytest.mark.parametrize("name", sorted(FORWARD_DERIVATIVES))
def test_a_likelihood_by_forward_derivatives_has_one_device(name, monkeypatch):
    """With equal steps: the error estimates of others are values, which fake tensors lack."""
    model = training_of(name, monkeypatch).model
    for part in model.modules():
        if isinstance(part, Diffusion):
            part.steps = 3
            ends = part._levels()  # numbers of the CPU, which fake tensors lack
            monkeypatch.setattr(part, "_levels", lambda ends=ends: ends)
    points = torch.zeros(4, *model.shape)
    slots = tensors_of(model)
    with FakeTensorMode() as mode:
        for tensors, key, value in slots:
            tensors[key] = mode.from_tensor(value).to("meta")
        logs = model.log_prob(mode.from_tensor(points).to("meta"))
        assert logs.device.type == "meta"
        assert logs.shape == (4,)


@pytest.mark.parametrize("name", ["transformer", "twins"])
def test_an_explicit_cpu_and_another_dtype(name, tmp_path):
    found = carried_out(name, tmp_path, DeviceSettings("cpu"), torch.float64)
    assert math.isfinite(found.columns["loss"])
    weights = read_weights(tmp_path / "weights" / "key.safetensors")[0]
    assert {w.dtype for w in weights.values() if w.is_floating_point()} == {torch.float64}
