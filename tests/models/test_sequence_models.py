"""What every sequence model promises: causality, a cache that changes nothing, a seed."""

import pytest
import torch

from allometry import InputError, decode
from allometry.models import (
    CausalConvolution,
    FiniteMemory,
    LinearAttention,
    Mamba,
    PixelCNN,
    Recurrent,
    Transformer,
)
from allometry.train.budget import count_parameters

V = 11
MAKERS = {
    "memory": lambda rng=None: FiniteMemory(V, 6, 12, memory=4, depth=2, rng=rng),
    "rnn": lambda rng=None: Recurrent(V, 8, 2, "rnn", rng=rng),
    "lstm": lambda rng=None: Recurrent(V, 8, 2, "lstm", rng=rng),
    "gru": lambda rng=None: Recurrent(V, 8, 1, "gru", rng=rng),
    "convolution": lambda rng=None: CausalConvolution(V, 8, 4, kernel=3, cycle=3, rng=rng),
    "mamba": lambda rng=None: Mamba(V, 8, 2, states=4, rng=rng),
    "gla": lambda rng=None: LinearAttention(V, 8, 2, 2, "gla", rng=rng),
    "retnet": lambda rng=None: LinearAttention(V, 8, 2, 2, "retnet", rng=rng),
    "transformer": lambda rng=None: Transformer(V, 8, 2, 2, context=64, rng=rng),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def tokens(b=3, n=12):
    return torch.randint(V, (b, n), generator=torch.Generator().manual_seed(1))


def test_an_output_depends_on_the_past_alone(make):
    model, x = make(), tokens()
    changed = x.clone()
    changed[:, 7] = (x[:, 7] + 1) % V
    one, two = model(x), model(changed)
    torch.testing.assert_close(one[:, :7], two[:, :7], rtol=0, atol=1e-12)
    assert not torch.allclose(one[:, 7], two[:, 7])


def test_a_cache_changes_nothing(make):
    model, x = make().eval(), tokens()
    whole = model(x)
    for cuts in ([1] * 12, [5, 1, 6], [3, 9]):
        cache, out, at = model.new_cache(), [], 0
        for size in cuts:
            out.append(model(x[:, at : at + size], cache=cache))
            at += size
        torch.testing.assert_close(torch.cat(out, 1), whole)
    cache.select(torch.tensor([2, 0]))
    torch.testing.assert_close(
        model(x[[2, 0], :1], cache=cache)[:, 0],
        model(torch.cat([x[[2, 0]], x[[2, 0], :1]], 1))[:, -1],
    )


def test_unequal_prompts_share_a_batch(make):
    model = make().eval()
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    together = decode.sample(model, prompts, decode.greedy, n=6)
    alone = [decode.sample(model, p, decode.greedy, n=6) for p in prompts]
    assert torch.equal(together, torch.stack(alone))
    bare = decode.sample(lambda t: model(t), prompts, decode.greedy, n=6)
    assert torch.equal(together, bare)


def test_weights_come_from_the_generator(make):
    def weights(seed):
        return torch.cat(
            [p.flatten() for p in make(torch.Generator().manual_seed(seed)).parameters()]
        )

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_embeddings_are_counted_separately(make):
    model = make()
    N, N_embedding = count_parameters(model)
    assert N + N_embedding == sum(p.numel() for p in model.parameters())
    assert N_embedding >= 2 * V * 6
    assert N > 0


def test_a_step_of_training_lowers_the_loss(make):
    model, x = make(), tokens(8, 16)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        logits = model(x[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_the_reach_of_a_convolution_is_what_it_says():
    model = CausalConvolution(V, 8, 4, kernel=3, cycle=3)
    assert model.reach == 1 + 2 * (1 + 2 + 4 + 1)
    x = tokens(1, 30)
    for back, seen in ((model.reach - 1, True), (model.reach, False)):
        changed = x.clone()
        changed[0, 29 - back] = (x[0, 29 - back] + 1) % V
        assert torch.allclose(model(x)[0, 29], model(changed)[0, 29], atol=1e-12) != seen


def test_pixels_see_what_precedes_them_alone():
    model = PixelCNN(levels=5, width=6, depth=2)
    x = torch.randint(5, (1, 6, 6), generator=torch.Generator().manual_seed(0))
    base = model(x)
    for i, j in ((0, 0), (2, 3), (5, 5)):
        changed = x.clone()
        changed[0, i, j] = (x[0, i, j] + 1) % 5
        moved = (model(changed) - base).abs().amax(-1)[0] > 1e-12
        after = torch.arange(36).reshape(6, 6) > 6 * i + j
        assert not (moved & ~after).any()
        if (i, j) == (2, 3):
            assert moved[2, 4]
            assert moved[3, 3]


def test_colours_of_a_pixel_are_read_in_order():
    model = PixelCNN(levels=5, width=6, depth=2, colours=3)
    x = torch.randint(5, (1, 4, 6), generator=torch.Generator().manual_seed(0))
    base = model(x)
    x[0, 1, 2] = (x[0, 1, 2] + 1) % 5
    moved = (model(x) - base).abs().amax(-1)[0] > 1e-12
    assert not (moved & ~(torch.arange(24).reshape(4, 6) > 8)).any()
    assert moved[1, 3]
    # At the very beginning nothing is known but which colour it is.
    assert not torch.allclose(base[0, 0, 0], base[0, 0, 1])


def test_kernels_count_no_cell_that_is_never_used():
    model = PixelCNN(levels=5, width=6, depth=2)
    x = torch.randint(5, (2, 9, 9), generator=torch.Generator().manual_seed(0))
    model.log_prob(x).sum().backward()
    for p in model.parameters():
        assert p.grad is not None
        assert (p.grad != 0).any(0).all()
    # 7 x 7 has 24 cells before the middle, 3 x 3 has 5 with it.
    assert sum(p.numel() for p in (model.first.weight, *(m.weight for m in model.later))) == (
        36 * 24 + 2 * 36 * 5
    )


def test_pixels_are_a_distribution_and_samples_follow_it():
    model = PixelCNN(levels=2, width=4, depth=1)
    every = torch.cartesian_prod(*[torch.arange(2)] * 4).reshape(16, 2, 2)
    p = model.log_prob(every).exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-12)
    n = 4000
    drawn = model.sample(n, 2, 2, torch.Generator().manual_seed(0))
    code = (drawn.reshape(n, 4) * torch.tensor([8, 4, 2, 1])).sum(1)
    seen = torch.bincount(code, minlength=16) / n
    assert ((seen - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()


@pytest.mark.parametrize("colours", [1, 2])
def test_what_a_pixel_keeps_is_what_it_would_compute(colours):
    model = PixelCNN(levels=4, width=4, depth=3, colours=colours)
    whole = model.sample(2, 9, 4, torch.Generator().manual_seed(3))
    rng = torch.Generator().manual_seed(3)
    slow = torch.zeros(2, 9, 4, dtype=torch.int64)
    with torch.no_grad():
        for i in range(9):
            for j in range(4):
                p = model(slow)[:, i, j].softmax(-1)
                slow[:, i, j] = torch.multinomial(p, 1, generator=rng)[:, 0]
    assert torch.equal(whole, slow)


def test_misuse_is_reported():
    with pytest.raises(InputError, match="rnn, lstm or gru"):
        Recurrent(V, 4, cell="elman")


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_on_either_side_is_skipped(make, side):
    """On the right it was read in place of the text, without a word."""
    model, x = make().eval(), tokens()
    before, after = {"left": (3, 0), "right": (0, 4), "both": (2, 3)}[side]
    padding = torch.zeros(3, 12, dtype=torch.bool)
    padding[1, :before] = True
    padding[1, 12 - after :] = True
    whole, cache = model(x, padding=padding), model.new_cache()
    torch.testing.assert_close(whole[[0, 2]], model(x)[[0, 2]])
    alone = x[1:2, before : 12 - after]
    torch.testing.assert_close(whole[1:2, before : 12 - after], model(alone))
    # What comes next follows the text, not the padding.
    model(x, cache=cache, padding=padding)
    more = model(x[:, :1], cache=cache)
    joined = torch.cat([alone, x[1:2, :1]], 1)
    torch.testing.assert_close(more[1:2], model(joined)[:, -1:])


def test_a_row_of_padding_only_disturbs_no_other_row(make):
    model, x = make().eval(), tokens()
    padding = torch.zeros(3, 12, dtype=torch.bool)
    padding[1] = True
    out, cache = model(x, padding=padding), model.new_cache()
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out[[0, 2]], model(x)[[0, 2]])
    model(x, cache=cache, padding=padding)
    more = model(x[:, :1], cache=cache)
    torch.testing.assert_close(more[1:2], model(x[1:2, :1]))
