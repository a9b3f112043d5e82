"""Muon against the singular value decomposition, torch's Muon and AdamW, and packed runs."""

import dataclasses

import pytest
import torch
from torch import nn, optim

import allometry as al
from allometry._core.estimate import Estimate
from allometry.models import Transformer
from allometry.train.loop import Stopped
from allometry.train.muon import Muon, muon, orthogonalise, update
from allometry.train.objectives import next_token
from allometry.train.packed.batched_trainer import BatchedTrainer
from allometry.train.training import Training


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 6), (4, 16), (24, 8), (3, 5, 9)])
def test_orthogonalised_matrices_have_the_singular_vectors_and_values_near_one(shape):
    G = torch.randn(*shape, generator=rng())
    U, _, V = torch.linalg.svd(G, full_matrices=False)
    inside = U.mT @ orthogonalise(G) @ V.mT
    values = inside.diagonal(dim1=-2, dim2=-1)
    # The published coefficients reach 0.68 to 1.13 for singular values of random matrices.
    assert 0.6 < values.min() < values.max() < 1.25
    torch.testing.assert_close(inside, torch.diag_embed(values), atol=1e-6, rtol=0)


def test_many_matrices_at_once_equal_one_at_a_time():
    G = torch.randn(4, 6, 10, generator=rng())
    momentum = torch.randn(4, 6, 10, generator=rng(1))
    single = torch.stack([update(g, m.clone(), 0.95) for g, m in zip(G, momentum, strict=True)])
    torch.testing.assert_close(update(G, momentum, 0.95), single)


def test_updates_equal_those_of_torch():
    # torch iterates in bfloat16, whose three digits bound the agreement.
    ours, theirs = (nn.Parameter(torch.ones(12, 8)) for _ in range(2))
    mine = Muon([{"params": [ours], "orthogonal": True}], lr=0.1, weight_decay=0.2)
    other = optim.Muon([theirs], lr=0.1, weight_decay=0.2, momentum=0.95, nesterov=True)
    for step in range(5):
        ours.grad = torch.randn(12, 8, generator=rng(step))
        theirs.grad = ours.grad.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0)


def test_other_parameters_have_adamw():
    ours, theirs = (nn.Parameter(torch.ones(7)) for _ in range(2))
    settings = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.2}
    mine, other = Muon([{"params": [ours]}], **settings), optim.AdamW([theirs], **settings)
    for step in range(5):
        ours.grad = torch.randn(7, generator=rng(step))
        theirs.grad = ours.grad.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs)


def test_the_groups_of_a_transformer():
    model = Transformer(11, 16, 2, 2, 8, positions="rotary")
    orthogonal, rest = muon(model, lr=0.01, weight_decay=0.1).param_groups
    assert (orthogonal["lr"], rest["lr"]) == (0.025, 0.01)
    assert {p.shape for p in orthogonal["params"]} == {(16, 16), (64, 16), (16, 64)}
    assert len(orthogonal["params"]) == 12
    tables = {id(p) for p in model.embedding_parameters()}
    assert tables <= {id(p) for p in rest["params"]}
    # A step shrinks hidden matrices as much as AdamW's does.
    assert orthogonal["lr"] * orthogonal["weight_decay"] == pytest.approx(0.001)
    with pytest.raises(al.InputError, match="Muon must have matrices"):
        Muon([{"params": [nn.Parameter(torch.ones(3))], "orthogonal": True}])


def training(seed, steps=6, lr=0.01):
    model = Transformer(11, 16, 2, 2, 8, positions="rotary", rng=rng(seed))
    return Training(
        model=model,
        optimiser=muon(model, lr=lr, weight_decay=0.1),
        objective=next_token,
        batch=lambda step: (torch.randint(11, (4, 9), generator=rng(100 * seed + step)),),
        measure=lambda m: Estimate(next_token(m, torch.arange(9)[None]).item()),
        steps=steps,
        seen=32,
    )


def test_packed_runs_end_where_single_ones_do():
    rates = {"a": 0.01, "b": 0.02, "c": 0.01}
    runs = {name: training(i, lr=lr) for i, (name, lr) in enumerate(rates.items())}
    alone = {n: training(i, lr=lr) for i, (n, lr) in enumerate(rates.items())}
    results = {result.name: result for result in BatchedTrainer(runs)()}
    for name, single in alone.items():
        single.alone()
        packed = dict(results[name].model.named_parameters())
        for key, weight in single.model.named_parameters():
            torch.testing.assert_close(packed[key], weight, atol=1e-10, rtol=1e-8)


def test_a_stopped_training_resumes_to_the_same_digits(tmp_path):
    whole, broken = training(0), training(0)
    whole.alone()
    calls = iter(range(10))
    with pytest.raises(Stopped):
        broken.alone(save_to=tmp_path / "c", stop=lambda: next(calls) == 2)
    resumed = dataclasses.replace(training(0))
    resumed.alone(save_to=tmp_path / "c")
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
