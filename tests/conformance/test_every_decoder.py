"""What every decoding strategy promises, whether it has a state or not."""

import inspect

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import decode
from allometry.decode import strategies as stateless
from allometry.decode.strategy_chain import Stateful

V = 7
STRATEGIES = {
    "plain": decode.plain,
    "greedy": decode.greedy,
    "temperature": decode.temperature(0.7),
    "top_k": decode.top_k(3),
    "top_p": decode.top_p(0.6),
    "min_p": decode.min_p(0.2),
    "top_a": decode.top_a(0.3),
    "typical": decode.typical(0.5),
    "epsilon": decode.epsilon(0.05),
    "eta": decode.eta(0.05),
    "mirostat": decode.mirostat(2.0),
    "repetition": decode.repetition(1.3),
    "frequency": decode.frequency(0.4),
}
EXCLUDING = set(STRATEGIES) - {"plain", "temperature", "repetition", "frequency", "mirostat"}
PENALTIES = {"repetition", "frequency"}
"""Penalties on tokens that occurred: the sign of a logit matters to the first."""

distinct = npst.arrays(
    np.float64, V, elements=st.integers(-40, 40).map(lambda i: i / 8), unique=True
).map(torch.from_numpy)


def applied(strategy, logits):
    """The changed logits of one row before any token."""
    if not isinstance(strategy, Stateful):
        return strategy(logits[None])[0]
    state = strategy.start([torch.zeros(1, dtype=torch.int64)], V)
    return strategy.apply(logits[None], state)[0]


def test_every_strategy_is_listed():
    found = {
        name
        for name, value in vars(stateless).items()
        if inspect.isfunction(value)
        and name in decode.__all__
        and "Strategy" in str(inspect.signature(value).return_annotation)
    }
    assert found <= set(STRATEGIES)
    assert {"plain", "greedy", "mirostat", "repetition", "frequency"} <= set(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
@given(logits=distinct)
def test_inputs_are_left_alone_and_probabilities_are_probabilities(name, logits):
    before = logits.clone()
    changed = applied(STRATEGIES[name], logits)
    assert torch.equal(logits, before)
    assert changed.shape == logits.shape
    assert changed.dtype == logits.dtype
    assert torch.softmax(changed, -1).sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - PENALTIES))
@given(logits=distinct, shift=st.sampled_from([-64.0, 0.5, 1024.0]))
def test_a_constant_added_to_all_logits_changes_nothing(name, logits, shift):
    one = torch.softmax(applied(STRATEGIES[name], logits), -1)
    other = torch.softmax(applied(STRATEGIES[name], logits + shift), -1)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - PENALTIES))
@given(logits=distinct, order=st.permutations(range(V)))
def test_the_names_of_tokens_do_not_matter(name, logits, order):
    one = torch.softmax(applied(STRATEGIES[name], logits), -1)[order]
    other = torch.softmax(applied(STRATEGIES[name], logits[order]), -1)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", STRATEGIES)
@given(logits=distinct, gone=st.integers(0, V - 1))
def test_an_excluded_token_stays_excluded(name, logits, gone):
    logits = logits.clone()
    logits[gone] = -torch.inf
    assert applied(STRATEGIES[name], logits)[gone] == -torch.inf


@pytest.mark.parametrize("name", sorted(EXCLUDING))
@given(logits=distinct)
def test_what_is_kept_keeps_its_odds(name, logits):
    changed = applied(STRATEGIES[name], logits)
    kept = changed.isfinite()
    assert bool(kept.any())
    difference = (changed - logits)[kept]
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))


@pytest.mark.parametrize("name", STRATEGIES)
def test_samples_depend_on_the_seed_alone_and_a_batch_has_the_tokens_asked_for(name):
    def logits_fn(tokens):
        return torch.sin(torch.arange(V) + tokens[:, -1:].double())

    prompt = torch.tensor([[1], [3]])
    one, again = (
        decode.sample(logits_fn, prompt, STRATEGIES[name], n=12, rng=5) for _ in range(2)
    )
    assert [list(map(int, row)) for row in one] == [list(map(int, row)) for row in again]
    assert all(len(row) == 12 and 0 <= int(min(row)) <= int(max(row)) < V for row in one)
