"""Prompts found by search, against trying them all."""

import itertools

import pytest
import torch

from allometry import decode
from allometry._core.errors import InputError
from allometry.models import Transformer

V = 7


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def model():
    model = Transformer(vocabulary=V, width=16, depth=2, heads=2, context=16)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.4 * torch.randn(p.shape, generator=rng(p.numel())))
    return model


def all_prompts(length):
    return torch.tensor(list(itertools.product(range(V), repeat=length)))


def test_surprise_is_that_of_the_tokens_one_by_one(model):
    prompt, after, target = torch.tensor([3, 1, 4]), [2], [5, 6, 0]
    whole = torch.cat([prompt, torch.tensor(after + target)])
    log_p = model(whole[None, :-1]).log_softmax(-1)[0]
    expected = -sum(log_p[4 + i - 1, t] for i, t in enumerate(target))
    found = decode.surprise(model, prompt, target, after=after)
    torch.testing.assert_close(found, expected.detach()[None])


@pytest.mark.parametrize("target", [[5, 6, 0], [1, 1, 1], [4]])
def test_the_hard_prompt_is_the_best_of_all(model, target):
    every = all_prompts(3)
    least = decode.surprise(model, every, target)
    found = decode.hard_prompt(
        model, target, length=3, restarts=6, steps=25, candidates=32, k=V, rng=1
    )
    assert found.surprise == pytest.approx(least.min().item(), abs=1e-9)
    assert decode.surprise(model, found.tokens, target).item() == pytest.approx(found.surprise)
    assert all(a >= b for a, b in itertools.pairwise(found.history))


def test_the_soft_prompt_beats_every_hard_one(model):
    target = [5, 6, 0]
    found = decode.soft_prompt(model, target, length=3, steps=120)
    assert found.surprise < decode.surprise(model, all_prompts(3), target).min().item()
    assert found.history[0] > found.surprise == min(found.history)
    assert found.vectors.shape == (3, 16)
    assert all(p.grad is None for p in model.parameters())


def test_a_model_goes_on_from_a_soft_prompt(model):
    target = [5, 6, 0]
    found = decode.soft_prompt(model, target, length=4, steps=150)
    assert found.surprise < 0.5  # so that the target is what greedy decoding says
    said = decode.sample(found.logits(model), torch.tensor(target[:1]), decode.greedy, n=2)
    assert said.tolist() == target[1:]
    first = found.logits(model)(torch.empty(1, 0, dtype=torch.int64))[0, -1]
    assert int(first.argmax()) == target[0]


def test_prompts_of_a_hugging_face_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=V, n_positions=12, n_embd=16, n_layer=1, n_head=2)
    theirs = decode.HuggingFace(GPT2LMHeadModel(config).double())
    with torch.no_grad():
        for p in theirs.model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng(p.numel())))
    least = decode.surprise(theirs, all_prompts(2), [1, 4]).min().item()
    found = decode.hard_prompt(
        theirs, [1, 4], length=2, k=V, restarts=3, steps=15, candidates=32, rng=0
    )
    assert found.surprise == pytest.approx(least, abs=1e-9)
    assert decode.soft_prompt(theirs, [1, 4], length=2, steps=80).surprise < found.surprise


def test_bad_prompts_are_refused(model):
    with pytest.raises(InputError, match="target must be one sequence of at least one id"):
        decode.hard_prompt(model, [], length=2)
    with pytest.raises(InputError, match=r"soft_prompt\.length must be at least 1; got 0"):
        decode.soft_prompt(model, [1], length=0)
