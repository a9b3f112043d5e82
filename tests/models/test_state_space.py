"""Mamba, linear attention and mixtures of experts against transformers and their recurrences."""

import math

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from allometry import InputError
from allometry.models import LinearAttention, Mamba, Transformer, selective_scan
from allometry.models.linear_attention import STEEPEST, chunked, recurrent
from allometry.models.mamba import MambaMixer
from allometry.models.selective_scan import associative_scan, scan_step
from allometry.models.transformer.block import FeedForward
from allometry.models.transformer.experts import MixtureOfExperts, balance_loss, balance_losses
from allometry.train.budget import count_inactive, count_next_token, count_parameters
from allometry.train.objectives import balanced_next_token, next_token


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def scan_inputs(b=3, length=67, d=13, n=5, dtype=torch.float32, seed=0):
    g = rng(seed)
    x, step = torch.randn(b, length, d, generator=g), torch.rand(b, length, d, generator=g)
    A = -3 * torch.rand(d, n, generator=g)
    B, C = (torch.randn(b, length, n, generator=g) for _ in range(2))
    return [t.to(dtype).requires_grad_() for t in (x, step, A, B, C)]


def by_recurrence(x, dt, A, B, C):
    state, outputs = x.new_zeros(len(x), *A.shape), []
    for t in range(x.shape[1]):
        y, state = scan_step(state, x[:, t], dt[:, t], A, B[:, t], C[:, t])
        outputs.append(y)
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("native", [True, False])
def test_the_scan_is_the_recurrence(native, monkeypatch):
    """The kernel, and the associative scan used without it; float64 is the reference."""
    if not native:
        monkeypatch.setattr(selective_scan, "_kernels", lambda: None)
    exact = scan_inputs(dtype=torch.float64)
    y, last = by_recurrence(*exact)
    weight = torch.randn(y.shape, generator=rng(1))
    expected = torch.autograd.grad((weight * y).sum(), exact)
    single = scan_inputs()
    ours, state = selective_scan.selective_scan(*single)
    assert (ours - y).abs().max() < 1e-5
    assert (state - last).abs().max() < 1e-5
    found = torch.autograd.grad((weight.float() * ours).sum(), single)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5 * float(b.abs().max()), rtol=0)
    if native and selective_scan._kernels() is None:
        pytest.skip("no compiler: both cases were the associative scan")


def test_the_scan_vectorises_over_models():
    sets = [scan_inputs(2, 9, 4, 3, seed=seed) for seed in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*sets, strict=True)]

    def loss(*parts):
        return selective_scan.selective_scan(*parts)[0].square().sum()

    found = torch.autograd.grad(vmap(loss)(*stacked).sum(), stacked)
    for i, one in enumerate(sets):
        alone = torch.autograd.grad(loss(*one), one)
        for a, b in zip(found, alone, strict=True):
            torch.testing.assert_close(a[i], b)


def test_doubling_is_the_recurrence_at_any_length():
    for length in (1, 2, 7, 16):
        a, u = (
            torch.rand(2, length, 3, generator=rng()),
            torch.randn(2, length, 3, generator=rng()),
        )
        h, states = torch.zeros(2, 3), []
        for t in range(length):
            h = a[:, t] * h + u[:, t]
            states.append(h)
        torch.testing.assert_close(associative_scan(a, u), torch.stack(states, 1))


@pytest.fixture(scope="module")
def theirs():
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=13, hidden_size=24, state_size=6, num_hidden_layers=2, layer_norm_epsilon=1e-6,
        tie_word_embeddings=False, residual_in_fp32=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MambaForCausalLM(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=rng(p.numel())).float())
    return model


def same(theirs):
    ours = Mamba(13, 24, 2, states=6).float().eval()
    names = {"backbone.embeddings.weight": "table", "lm_head.weight": "readout"}
    moved = {"backbone.layers": "blocks", "backbone.norm_f": "final_norm"}
    state = {}
    for name, weight in theirs.state_dict().items():
        new = names.get(name, name)
        for old, place in moved.items():
            new = new.replace(old, place)
        state[new] = weight
    ours.load_state_dict(state)
    return ours


def test_mamba_equals_transformers_weight_for_weight(theirs):
    ours = same(theirs)
    assert sum(p.numel() for p in ours.parameters()) == theirs.num_parameters()
    tokens = torch.randint(13, (3, 21), generator=rng())
    expected = theirs(tokens).logits
    torch.testing.assert_close(ours(tokens), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.3
    weight = torch.randn(expected.shape, generator=rng()).float()
    (weight * expected).sum().backward()
    (weight * ours(tokens)).sum().backward()
    for mine, other in zip(ours.blocks, theirs.backbone.layers, strict=True):
        for (name, p), (_, q) in zip(
            sorted(mine.mixer.named_parameters()),
            sorted(other.mixer.named_parameters()),
            strict=True,
        ):
            scale = float(q.grad.abs().max())
            torch.testing.assert_close(p.grad, q.grad, atol=2e-5 * scale, rtol=0, msg=name)


@torch.no_grad()
def test_one_step_at_a_time_equals_transformers(theirs):
    ours, tokens = same(theirs), torch.randint(13, (2, 9), generator=rng())
    cache = ours.new_cache()
    steps = [ours(tokens[:, t : t + 1], cache=cache) for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), theirs(tokens).logits, atol=1e-5, rtol=1e-5)


def test_initial_step_sizes_and_rates_are_those_of_the_paper():
    mixer = next(m for m in Mamba(7, 32, 1, states=4).modules() if isinstance(m, MambaMixer))
    size = F.softplus(mixer.dt_proj.bias)
    assert 0.9e-3 < size.min() < size.max() < 1.1e-1
    torch.testing.assert_close(-mixer.A_log.exp()[0], -torch.arange(1.0, 5))


@pytest.mark.parametrize(
    "model",
    [Mamba(64, 4, 2, readout_scale=16.0), LinearAttention(64, 4, 2, 1, readout_scale=16.0)],
    ids=["mamba", "gla"],
)
def test_a_narrow_model_is_not_confident_at_first(model):
    """The factor of muP made the first losses three times those of a uniform guess."""
    tokens = torch.randint(64, (8, 33), generator=rng())
    assert abs(float(next_token(model, tokens).detach()) - math.log(64)) < 0.3


# Linear attention


@pytest.mark.parametrize("length", [1, 15, 16, 50])
def test_chunks_are_the_recurrence(length):
    g = rng()
    q, k = (torch.randn(2, 3, length, 4, generator=g).float() for _ in range(2))
    v = torch.randn(2, 3, length, 6, generator=g).float()
    decay = (STEEPEST * torch.rand(2, 3, length, 4, generator=g)).float()  # the steepest allowed
    decay[0] /= 50
    out, state = chunked(q, k, v, decay)
    exact, last = recurrent(torch.zeros(2, 3, 4, 6), *(t.double() for t in (q, k, v, decay)))
    assert (out - exact).abs().max() < 1e-5 * exact.abs().max()
    assert (state - last).abs().max() < 1e-5 * last.abs().max()


def test_constant_decays_are_the_parallel_form_of_retnet():
    g = rng()
    q, k, v = (torch.randn(1, 1, 20, 4, generator=g) for _ in range(3))
    gamma = 1 - 2.0**-5
    apart = torch.arange(20)[:, None] - torch.arange(20)
    mask = torch.where(apart >= 0, gamma ** apart.double(), 0.0)
    expected = (q @ k.mT * mask) @ v  # Eq. (5) of the paper
    decay = torch.full((1, 1, 20, 4), gamma).log()
    torch.testing.assert_close(chunked(q, k, v, decay)[0], expected)
    block = LinearAttention(7, 32, 1, 2, "retnet").blocks[0]
    rates = block._log_decay(torch.zeros(1)).exp().flatten()
    torch.testing.assert_close(rates, torch.tensor([1 - 2.0**-5, 1 - 2.0**-6]))


def test_misuse_is_reported():
    with pytest.raises(InputError, match="kind must be gla or retnet"):
        LinearAttention(7, 8, 1, 2, "linear")
    with pytest.raises(InputError, match=r"heads must divide width \(8\); got 3"):
        LinearAttention(7, 8, 1, 3)
    with pytest.raises(InputError, match="Mamba sizes must be at least 1"):
        Mamba(7, 8, 0)
    with pytest.raises(InputError, match="active_experts must be 1 to 2; got 3"):
        Transformer(7, 8, 1, 1, 8, experts=2, active_experts=3)


# Mixtures of experts


@pytest.mark.parametrize("gated", [False, True])
def test_one_expert_is_the_dense_layer(gated):
    dense = FeedForward(12, 20, F.silu, ("inner", "outer"), gated)
    one = MixtureOfExperts(12, 20, F.silu, ("inner", "outer"), gated, 1, 1)
    with torch.no_grad():
        one.router.normal_()
        for name, p in dense.named_parameters():
            p.normal_(generator=rng(p.numel()))
            one.get_parameter(name).copy_(p[None])
    x = torch.randn(3, 5, 12, generator=rng())
    assert (one(x) - dense(x)).abs().max() < 1e-6


def test_tokens_get_their_experts_in_proportion():
    mixture = MixtureOfExperts(6, 4, F.gelu, ("inner", "outer"), False, 5, 2)
    with torch.no_grad():
        for p in mixture.parameters():
            p.normal_(generator=rng(p.numel()))
    x = torch.randn(2, 7, 6, generator=rng())
    scores = x @ mixture.router.T
    expected = torch.zeros_like(x)
    for i in range(2):
        for t in range(7):
            best = scores[i, t].argsort(descending=True)[:2]
            weights = scores[i, t, best].exp() / scores[i, t, best].exp().sum()
            for w, e in zip(weights, best, strict=True):
                inside = F.gelu(mixture.inner[e] @ x[i, t] + mixture.inner_bias[e])
                expected[i, t] += w * (mixture.outer[e] @ inside + mixture.outer_bias[e])
    torch.testing.assert_close(mixture(x), expected)


@pytest.mark.parametrize("active", [1, 2, 3])
@pytest.mark.parametrize("gated", [False, True])
def test_all_experts_with_weights_are_the_routed_ones(gated, active):
    """The form for GPUs has fixed shapes; its values and gradients are those of the other."""
    mixture = MixtureOfExperts(6, 4, F.silu, ("inner", "outer"), gated, 3, active)
    with torch.no_grad():
        for p in mixture.parameters():
            p.normal_(generator=rng(p.numel()))
    x = torch.randn(9, 6, generator=rng()).requires_grad_()
    scores = F.linear(x, mixture.router)
    top, chosen = scores.topk(active, -1)
    found = []
    for form in (mixture._routed, mixture._all):
        out = form(x, chosen, top.softmax(-1))
        leaves = (x, *mixture.parameters())
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves, retain_graph=True)])
    for routed, every in zip(*found, strict=True):
        torch.testing.assert_close(every, routed)


def test_balance_is_one_if_equal_and_more_if_not():
    equal = balance_loss(torch.zeros(8, 4), torch.arange(8)[:, None] % 4)
    assert float(equal) == pytest.approx(1.0)
    scores = torch.zeros(8, 4)
    scores[:, 0] = 50.0
    assert float(balance_loss(scores, torch.zeros(8, 1, dtype=torch.long))) == pytest.approx(4.0)


def test_active_and_total_parameters_and_flops():
    def make(experts, active):
        return Transformer(7, 16, 2, 2, 8, experts=experts, active_experts=active)

    one, four, two = make(1, 1), make(4, 1), make(4, 2)
    layer = 2 * 16 * 64 + 64 + 16  # weights and biases of an expert
    assert count_inactive(four) == 2 * 3 * layer
    assert count_parameters(four)[0] == count_parameters(one)[0] + 2 * 3 * 16  # its router
    assert count_parameters(two)[0] == count_parameters(four)[0] + 2 * layer
    assert sum(p.numel() for p in two.parameters()) == sum(p.numel() for p in four.parameters())
    cost = [count_next_token(lambda a=a: make(4, a), vocabulary=7, context=8)[2] for a in (1, 2)]
    assert cost[1] - cost[0] == 6 * 2 * 2 * 16 * 64  # six for each weight of one more expert
    large = count_next_token(lambda: make(4, 1), vocabulary=7, context=8, about=1e9)  # no weights
    assert large[2] == cost[0]


def test_the_balance_enters_the_objective_and_leaves_no_trace():
    model = Transformer(7, 16, 2, 2, 8, experts=4)
    tokens = torch.randint(7, (4, 9), generator=rng())
    with balance_losses(model) as losses:
        plain = next_token(model, tokens)
    assert len(losses) == 2
    expected = plain + 0.01 * sum(losses) / 2
    torch.testing.assert_close(balanced_next_token(model, tokens), expected)
    assert all(b.feed_forward.collector is None for b in model.blocks)
    cache = model.new_cache()
    with torch.no_grad():
        steps = [model(part, cache=cache) for part in tokens[:, :8].split([3, 1, 1, 3], 1)]
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens[:, :8]))
