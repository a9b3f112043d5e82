"""Hard attention by a running maximum, against the table of scores it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry.models.transformer.attention import HEAD_MASKS, Attention, hardmax, head_mask
from allometry.models.transformer.running_maximum import running_maximum


def table(scores, v, sight):
    """The same by its definition: every slot's scores masked, hardmax, weighted values."""
    n = scores.shape[-1]
    allowed = head_mask(sight, n, None, False, scores.device)
    rows = scores[:, :, None, :].expand(-1, -1, n, -1).masked_fill(~allowed, -torch.inf)
    return hardmax(rows) @ v


@given(
    n=st.integers(1, 9),
    seed=st.integers(0, 1000),
    sight=st.lists(st.sampled_from(HEAD_MASKS), min_size=1, max_size=3),
)
def test_it_fetches_what_the_table_fetches(n, seed, sight):
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, len(sight), n, generator=rng)
    v = torch.randn(2, len(sight), n, 3, generator=rng)
    made = running_maximum(scores, v, sight)
    assert made is not None
    assert torch.equal(made, table(scores, v, sight))


@pytest.mark.parametrize("way", ["past", "before", "after"])
def test_ties_along_the_way_are_left_to_the_table(way):
    scores, values = torch.tensor([[[1.0, 0.0, 1.0]]]), torch.zeros(1, 1, 3, 2)
    assert running_maximum(scores, values, [way]) is None


def test_ties_over_everything_share():
    v = torch.tensor([[[[1.0], [5.0], [2.0]]]])
    made = running_maximum(torch.tensor([[[1.0, 0.0, 1.0]]]), v, ["all"])
    assert made is not None
    assert torch.equal(made, torch.full((1, 1, 3, 1), 1.5))


@given(
    seed=st.integers(0, 200),
    causal=st.booleans(),
    tie=st.booleans(),
    biased=st.booleans(),
    sight=st.none() | st.tuples(*[st.sampled_from(HEAD_MASKS)] * 3),
)
def test_attention_gives_the_same_with_and_without_gradients(seed, causal, tie, biased, sight):
    """With gradients the table is used: both ways, ties and all, agree."""
    rng = torch.Generator().manual_seed(seed)
    part = Attention(5, 3, 2, 0.7, True, ("query", "key") if biased else ())
    part.head_masks = sight
    with torch.no_grad():
        for p in part.parameters():
            p.copy_(torch.randn(p.shape, generator=rng))
        part.query.zero_()
    x = torch.randn(4, 12, 5, generator=rng)
    if tie:
        x[:, 7] = x[:, 3]
    with torch.no_grad():
        short = part(x, causal=causal)
    torch.testing.assert_close(short, part(x, causal=causal).detach(), rtol=1e-12, atol=1e-12)
