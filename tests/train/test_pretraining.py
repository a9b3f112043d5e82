"""Tasks that come before others: what is hidden, what is paired, what they cost."""

import math

import pytest
import torch
from torch import nn

from allometry._core.errors import InputError
from allometry.models import Transformer
from allometry.train.objectives import cloze, next_sentence
from allometry.train.pretraining import hide, pair


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_shares_of_the_cloze_are_those_of_the_paper():
    """15 % chosen; of these 80 % masked, 10 % changed (one in V unnoticed), 10 % as they were."""
    V, n = 50, 400_000
    tokens = torch.randint(V, (n // 100, 100), generator=rng(1))
    seen, truth, chosen = hide(tokens, V, rng(2))

    def within(share, p, count):
        return abs(share - p) < 5 * math.sqrt(p * (1 - p) / count)

    count = int(chosen.sum())
    assert within(count / n, 0.15, n)
    assert within(float((seen[chosen] == V).double().mean()), 0.8, count)
    changed = (seen != truth) & (seen != V)
    assert within(float(changed[chosen].double().mean()), 0.1 * (1 - 1 / V), count)
    assert torch.equal(seen[~chosen], tokens[~chosen])
    assert torch.equal(truth, tokens)


def test_something_is_always_hidden():
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    assert all(bool(hide(tokens, 5, rng(s)).chosen.any()) for s in range(20))
    with pytest.raises(InputError, match="above 0"):
        hide(tokens, 5, rng(), share=0.0)


class _Constant(nn.Module):
    """The same logits everywhere."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


def test_cloze_costs_what_the_chosen_symbols_cost():
    logits = torch.tensor([0.0, 1.0, -2.0, 0.5])
    given = hide(torch.randint(3, (4, 30), generator=rng()), 3, rng(1))
    expected = -logits.log_softmax(-1)[given.truth[given.chosen]].mean()
    torch.testing.assert_close(cloze(_Constant(logits), given), expected)


def test_pairs_are_true_for_half_and_no_half_is_lost():
    windows = torch.arange(60).view(10, 6)
    tokens, follows = pair(windows, 100, rng())
    assert follows.sum() == 5
    assert tokens.shape == (10, 8)
    assert (tokens[:, 0] == 100).all()
    assert (tokens[:, 4] == 101).all()
    left, right = tokens[:, 1:4], tokens[:, 5:]
    assert torch.equal(left, windows[:, :3])
    own = (right == windows[:, 3:]).all(1)
    assert torch.equal(own, follows == 1)
    assert sorted(right.flatten().tolist()) == sorted(windows[:, 3:].flatten().tolist())
    with pytest.raises(InputError, match="even"):
        pair(windows[:, :5], 100, rng())


def test_a_transformer_learns_next_sentence_prediction():
    """Windows that count upwards: the second half follows where it goes on by one."""
    model = Transformer(vocabulary=24, width=32, depth=2, heads=2, context=8, kind="encoder")
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    first = None
    for step in range(150):
        starts = torch.randint(16, (32, 1), generator=rng(step))
        given = pair(starts + torch.arange(6), 22, rng(step))
        loss = next_sentence(model, given)
        first = loss.item() if first is None else first
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert first > 0.5
    assert loss.item() < 0.3  # chance is 0.69; a parted half fits by accident now and then


@pytest.mark.parametrize("b", [2, 3, 4, 5, 7])
def test_small_batches_have_both_labels_equally_often(b):
    """Of two windows both were parted, always."""
    windows = torch.arange(6 * b).view(b, 6)
    labels = []
    for seed in range(400):
        tokens, follows = pair(windows, 100, rng(seed))
        own = (tokens[:, 5:] == windows[:, 3:]).all(1)
        assert torch.equal(own, follows == 1)
        labels.append(follows.double().mean())
    share = torch.stack(labels)
    # 5 standard errors of a batch's share, which is at most 1/2 away from 1/2.
    assert abs(share.mean() - 0.5) < 5 * 0.5 / 400**0.5
