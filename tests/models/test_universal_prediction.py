import itertools
import math

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import hindsight, regret
from allometry.models import LZ78, ContextTree, HiddenMarkov

A = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.05, 0.05, 0.9]])
SOURCE = HiddenMarkov(torch.full((3,), 1 / 3), A, torch.eye(3))


@pytest.fixture(scope="module")
def drawn():
    x, _ = SOURCE.sample(200_000, torch.Generator().manual_seed(0))
    return x


def test_lz78_by_hand():
    # V = 2. Phrases of 0 00 1: weights 2 -> (3; child 0 has 2) -> (4; child 0 has 3).
    p = LZ78(2).update(torch.tensor([0, 0, 0, 1])).exp()
    assert p.tolist() == pytest.approx([1 / 2, 2 / 3, 1 / 2, 1 / 4])


def test_lz78_distributions_sum_to_one_and_reading_may_be_interrupted(drawn):
    whole, parts = LZ78(3), LZ78(3)
    p = whole.update(drawn[:3000])
    assert torch.equal(p, torch.cat([parts.update(drawn[:17]), parts.update(drawn[17:3000])]))
    assert whole.probabilities().sum().item() == pytest.approx(1, abs=1e-12)
    after = whole.probabilities()[1].log()
    assert whole.update(torch.tensor([1]))[0] == after


def test_lz78_tends_to_the_entropy_rate(drawn):
    H = SOURCE.chain_entropy_rate()
    loss = -LZ78(3).update(drawn)
    gap = [loss[:n].mean().item() - H for n in (2_000, 20_000, 200_000)]
    assert gap == sorted(gap, reverse=True)
    # The redundancy falls between 1 / log n and log log n / log n: by 0.62 to 0.77 from 2,000 to
    # 200,000 symbols.
    assert 0.57 < gap[-1] / gap[0] < 0.82
    assert gap[-1] * math.log(200_000) < 1


def test_context_tree_tends_to_the_entropy_rate(drawn):
    H = SOURCE.chain_entropy_rate()
    for n, allowed in ((2_000, 0.03), (200_000, 0.01)):
        per_symbol = ContextTree(4, 3).fit(drawn[:n]).code_length / n
        # 5 se of the sample's own entropy: surprises of this source vary by about 0.9.
        assert abs(per_symbol - H) < allowed + 5 * 0.9 / math.sqrt(n)


def dirichlet(counts, a=0.5):
    """KT probability of a sequence by its definition, one symbol after another."""
    seen, p = [0] * len(counts), 1.0
    for symbol, c in enumerate(counts):
        for _ in range(c):
            p *= (seen[symbol] + a) / (sum(seen) + a * len(counts))
            seen[symbol] += 1
    return p


def literal(text, depth, V):
    """P_w of the root by the recursion over all contexts."""

    def weighted(context):
        d = len(context)
        follow = [text[t] for t in range(depth, len(text)) if tuple(text[t - d : t]) == context]
        own = dirichlet([follow.count(v) for v in range(V)])
        if d == depth:
            return own
        below = math.prod(weighted((v, *context)) for v in range(V))
        return 0.5 * own + 0.5 * below

    return weighted(())


@pytest.mark.parametrize(("depth", "V"), [(0, 2), (2, 2), (3, 2), (2, 3)])
def test_context_tree_weighs_as_the_recursion_does(depth, V):
    text = np.random.default_rng(depth).integers(0, V, 40)
    made = ContextTree(depth, V).fit(text)
    want = -math.log(literal(text.tolist(), depth, V)) + depth * math.log(V)
    assert made.code_length == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_prediction_is_the_ratio_of_weights(depth):
    # Fitting one symbol more is the definition of the sequential probability.
    rng = np.random.default_rng(7)
    for _ in range(20):
        text = rng.integers(0, 2, 30)
        tree = ContextTree(depth, 2).fit(text)
        longer = ContextTree(depth, 2).fit(np.append(text, 1))
        got = tree.logits(torch.from_numpy(text))[1].item()
        assert got == pytest.approx(tree.code_length - longer.code_length, abs=1e-10)


def test_context_tree_distributions_sum_to_one():
    text = np.random.default_rng(0).integers(0, 4, 300)
    tree = ContextTree(3, 5).fit(text)
    for context in itertools.chain([[]], itertools.product(range(5), repeat=3)):
        p = tree.logits(torch.tensor(context, dtype=torch.int64)).exp()
        assert p.sum().item() == pytest.approx(1, abs=1e-12)
    each = tree.log_prob(text[:50])
    want = [tree.logits(torch.from_numpy(text[:t]))[text[t]].item() for t in range(50)]
    assert each.tolist() == pytest.approx(want, abs=1e-12)


def test_regret_is_within_the_bounds_of_theory():
    n, k, V = 4000, 1, 2
    x = SOURCE.sample(n, torch.Generator().manual_seed(1))[0].clamp(max=1)
    best = hindsight(x, V, k)
    # Willems et al.: at most 1 + 2k' bits of tree and (1/2 log n + 1) bits a leaf; log V to begin.
    tree = ContextTree(k, V).fit(x)
    leaves = V**k
    bound = (2 * leaves - 1 + leaves * (0.5 * math.log2(n / leaves) + 1) + k) * math.log(2)
    assert 0 < tree.code_length - best < bound


def test_regret_of_a_finite_memory_predictor_is_counted_from_hindsight():
    x = torch.tensor([0, 1] * 50)
    losses = torch.full((100,), math.log(2))
    assert hindsight(x, 2, 1) == 0
    assert regret(losses, x, 2, 1) == pytest.approx(100 * math.log(2))


def test_misuse_is_reported():
    with pytest.raises(InputError, match="be fitted first"):
        ContextTree(2, 3).log_prob(torch.tensor([0]))
    with pytest.raises(InputError, match="depth must be at least 0"):
        ContextTree(-1, 3)
