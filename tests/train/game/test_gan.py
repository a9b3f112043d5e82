"""Adversarial games: packed pairs equal pairs alone; remedies do what they say."""

import copy

import pytest
import torch
from torch import nn

from allometry._core.errors import DivergedError, InputError
from allometry.models.gan import Discriminator, Generator, MinibatchDiscrimination
from allometry.train.f_divergences import KL
from allometry.train.game.gan import GANSettings, GANTraining, adam_ahead, play
from allometry.train.gan_costs import MINIMAX, NON_SATURATING, WASSERSTEIN, f_gan
from allometry.train.packed.stack import StackedModels, together

DATA = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0)).float()


def players(M, **settings):
    rng = [torch.Generator().manual_seed(i) for i in range(M)]
    G = [Generator(2, 16, 2, rng=g).float() for g in rng]
    D = [Discriminator(2, 8, 2, pieces=2, rng=g, **settings).float() for g in rng]
    return G, D


def contest(M, rules=None, seeds=None, **settings):
    G, D = players(M, **settings)
    return GANTraining(
        StackedModels(G), StackedModels(D), DATA, rules or GANSettings(batch=24), seeds
    )


@pytest.mark.slow
def test_a_packed_pair_equals_the_same_pair_alone():
    rules, M = GANSettings(batch=24, lr=1e-3), 3
    G, D = players(M)
    abreast = GANTraining(StackedModels(G), StackedModels(D), DATA, rules, [5, 6, 7])
    alone = [
        GANTraining(
            StackedModels([copy.deepcopy(G[i])]),
            StackedModels([copy.deepcopy(D[i])]),
            DATA,
            rules,
            [5 + i],
        )
        for i in range(M)
    ]
    costs = []
    for _ in range(200):
        abreast.step()
        for one in alone:
            one.step()
        costs.append((abreast.cost_G, torch.cat([one.cost_G for one in alone])))
    ours, theirs = (torch.stack(c) for c in zip(*costs, strict=True))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unroll", [0, 2])
def test_the_gradient_penalty_is_a_function_of_the_seed(unroll):
    """Its random points came from torch's global generator, so that no run could be repeated."""
    rules = GANSettings(costs=WASSERSTEIN, batch=24, lr=1e-3, penalty=0.1, unroll=unroll)
    ends = []
    for state in (0, 1):
        torch.manual_seed(state)
        game = contest(2, rules, [5, 6])
        alone = contest(1, rules, [5])
        for _ in range(5):
            game.step()
            alone.step()
        ends.append((game.D.flat.detach().clone(), alone.D.flat.detach().clone()))
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=0, atol=0)
    # Nor does a pair depend on the others.
    torch.testing.assert_close(ends[0][0][:1], ends[0][1], rtol=1e-5, atol=1e-6)


def test_the_step_of_one_pair_is_that_of_a_plain_loop():
    G, D = (m[0] for m in players(1))
    rules = GANSettings(batch=24, lr=1e-3, betas=(0.5, 0.999))
    ours = GANTraining(StackedModels([G]), StackedModels([D]), DATA, rules, [3])
    plain = GANTraining(StackedModels([G]), StackedModels([D]), DATA, rules, [3]).draws
    g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    softplus = nn.functional.softplus
    for _ in range(30):
        ours.step()
        x, z = plain.real()[0], plain.latents()[0]
        loss = (softplus(-D(x)).mean() + softplus(D(G(z).detach())).mean()) / 2
        d.zero_grad()
        loss.backward()
        d.step()
        own = softplus(-D(G(plain.latents()[0]))).mean() / 2
        g.zero_grad()
        own.backward()
        g.step()
        torch.testing.assert_close(ours.cost_G[0], own.detach(), rtol=1e-4, atol=1e-6)


def test_adam_ahead_is_torchs_adam():
    theta = torch.randn(2, 5)
    row = nn.Parameter(theta.clone())
    optimiser = torch.optim.Adam([row], lr=0.1, betas=(0.5, 0.9))
    moments = (torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros(()))
    for _ in range(4):
        slope = torch.randn(2, 5)
        row.grad = slope.clone()
        optimiser.step()
        theta, moments = adam_ahead(theta, slope, moments, 0.1, (0.5, 0.9))
    torch.testing.assert_close(theta, row.detach(), rtol=1e-6, atol=1e-7)


def test_unrolling_changes_the_generators_slope_and_leaves_the_discriminator_where_it_is():
    plain, looking = contest(2), contest(2, GANSettings(batch=24, unroll=3))
    for game in (plain, looking):
        game.step_judge()
    before = looking.D.flat.detach().clone()
    z = looking.draws.latents()
    leaf = looking.G.flat.detach().requires_grad_(True)
    made = together(lambda model, noise: model(noise), [(looking.G, leaf)], z)
    ahead = looking._unrolled(made, looking.D.flat, *looking._unroll_arguments())
    assert ahead.requires_grad
    torch.testing.assert_close(looking.D.flat.detach(), before)
    assert float((ahead - before).detach().abs().max()) > 1e-4
    (slope,) = torch.autograd.grad(ahead.sum(), leaf)
    # The discriminator's steps depend on the generator: that is what the plain game leaves out.
    assert float(slope.abs().max()) > 0


@pytest.mark.parametrize(
    ("rules", "settings"),
    [
        (GANSettings(batch=24, costs=WASSERSTEIN, penalty=1.0, turns=2), {}),
        (GANSettings(batch=24, costs=WASSERSTEIN, clip=0.05), {}),
        (GANSettings(batch=24), {"pack": 3}),
        (GANSettings(batch=24), {"kernels": 4}),
        (GANSettings(batch=24), {"spectral": True}),
        (GANSettings(batch=24, unroll=2, decay=4), {}),
    ],
    ids=["penalty", "clip", "pack", "minibatch", "spectral", "unrolled"],
)
def test_every_remedy_plays(rules, settings):
    game = contest(2, rules, **settings)
    start = game.samples(64)
    history = play(game, 4, marks=[2, 4], shown=64)
    assert history.step == [2, 4]
    assert history.samples[1].shape == (2, 64, 2)
    assert bool((history.samples[1] - start).abs().max() > 0)
    if rules.clip:
        assert float(game.D.flat.detach().abs().max()) <= rules.clip + 1e-8


def test_packs_are_judged_together():
    D = Discriminator(2, 8, 2, pack=3)
    x = torch.randn(12, 2)
    assert D(x).shape == (4,)
    other = x.clone()
    other[1] += 1  # a point of the first pack
    changed = (D(x) != D(other)).tolist()
    assert changed == [True, False, False, False]


def test_minibatch_discrimination_sees_collapse():
    layer = MinibatchDiscrimination(3, 4)
    same = layer(torch.ones(10, 3))
    torch.testing.assert_close(same, torch.full((10, 4), 9.0))
    assert layer(100 * torch.randn(10, 3)).max().item() < 1


def test_spectral_norms_bound_the_slope():
    D = Discriminator(2, 8, 3, pieces=1, spectral=True, init=3.0)
    x = torch.randn(100, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(D(x).sum(), x)
    assert float(slope.norm(dim=1).max()) <= 1 + 1e-6


def test_maxout_is_the_maximum():
    from allometry.models.gan import _maxout

    parts = torch.randn(5, 7, 3)
    torch.testing.assert_close(_maxout(list(parts)), parts.amax(0))


def test_broken_games_are_refused():
    with pytest.raises(InputError, match="multiple of the pack 5"):
        contest(1, pack=5)
    with pytest.raises(InputError, match="seeds must be 2"):
        contest(2, seeds=[1])
    game = contest(1, GANSettings(batch=24, lr=1e30))
    with pytest.raises(DivergedError, match="are not finite"):
        play(game, 30)


@pytest.mark.parametrize(
    ("settings", "more", "M"),
    [
        ({}, {}, 3),
        ({"pack": 3}, {}, 3),
        ({}, {"unroll": 2}, 3),
        ({}, {"unroll": 2}, 1),
        ({"pieces": 1}, {"costs": WASSERSTEIN, "penalty": 0.1, "turns": 2}, 1),
    ],
    ids=["plain", "packed", "unrolled", "unrolled alone", "penalised alone"],
)
def test_traced_turns_are_the_games_own(settings, more, M):
    def made(traced):
        rng = [torch.Generator().manual_seed(i) for i in range(M)]
        G = [Generator(2, 16, 2, running=False, rng=g) for g in rng]
        D = [Discriminator(2, 8, 2, **{"pieces": 2, **settings}, rng=g) for g in rng]
        rules = GANSettings(batch=24, lr=1e-3, decay=20, hold=0.5, **more)
        return GANTraining(StackedModels(G), StackedModels(D), DATA.double(), rules, traced=traced)

    plain, traced = made(traced=False), made(traced=True)
    for step in range(20):
        for game in (plain, traced):
            torch.manual_seed(step)  # of the points between, where a slope is penalised
            game.step()
        torch.testing.assert_close(traced.cost_D, plain.cost_D, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(traced.cost_G, plain.cost_G, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(traced.samples(50), plain.samples(50), rtol=1e-7, atol=1e-9)
    # Constant for ten steps, then linear decay, with a tenth left at the last step.
    assert plain.step_G.param_groups[0]["lr"] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unroll": -1}, "GANSettings.unroll must be at least 0; got -1"),
        ({"batch": 0}, "GANSettings.batch must be at least 1"),
        ({"turns": 0}, "GANSettings.turns must be at least 1"),
        ({"lr": 0.0}, "GANSettings.lr must be above 0"),
        ({"clip": -1.0}, "GANSettings.clip must be above 0"),
        ({"decay": 0}, "GANSettings.decay must be above 0"),
        ({"hold": 1.0}, "GANSettings.hold must be at least 0 and below 1"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        GANSettings(**settings)


def test_games_that_cannot_be_traced_are_refused():
    G, D = players(1)
    with pytest.raises(InputError, match="running statistics"):
        GANTraining(StackedModels(G), StackedModels(D), DATA, GANSettings(batch=24), traced=True)


@pytest.mark.parametrize("costs", [NON_SATURATING, MINIMAX], ids=lambda c: c.name)
def test_the_unrolled_slope_is_that_of_the_cost_after_the_judges_steps(costs):
    """By central differences, so every second derivative through Adam's steps must be there."""
    G, D = players(2)
    pair = (StackedModels([g.double() for g in G]), StackedModels([d.double() for d in D]))
    game = GANTraining(*pair, DATA.double(), GANSettings(batch=12, unroll=3, lr=1e-2, costs=costs))
    for _ in range(3):
        game.step()
    z, more = game.draws.latents(), game._unroll_arguments()
    flat, judge = game.G.flat.detach(), game.D.flat.detach()
    _, slope = game._generator_step(flat, judge, z, *more)
    along = torch.randn(flat.shape, generator=torch.Generator().manual_seed(0))
    h = 1e-6
    ahead, behind = (
        game._generator_step(flat + s * h * along, judge, z, *more)[0] for s in (1, -1)
    )
    torch.testing.assert_close((ahead - behind) / (2 * h), (slope * along).sum(1), rtol=1e-4,
                               atol=1e-8)  # fmt: skip


@pytest.mark.parametrize("costs", [MINIMAX, WASSERSTEIN, f_gan(KL)], ids=lambda c: c.name)
def test_in_a_zero_sum_game_one_foresees_what_the_other_will_lose(costs):
    """On data too: the discriminator's steps, which are the generator's doing, change that."""
    real, fake = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    assert costs.zero_sum
    step = 1e-6
    up, down = (costs.discriminator(real, fake + s * step) for s in (1, -1))
    own = [costs.generator(fake + s * step) for s in (1, -1)]
    torch.testing.assert_close(up - down, own[1] - own[0], rtol=1e-4, atol=1e-12)
    game = contest(2, GANSettings(batch=24, unroll=2, costs=costs))
    z, more = game.draws.latents(), game._unroll_arguments()
    cost, _ = game._generator_step(game.G.flat.detach(), game.D.flat.detach(), z, *more)
    made = game.G(z).detach()
    ahead = game._unrolled(made, game.D.flat.detach(), *more).detach()
    paid = together(game._discriminator_cost, [(game.D, ahead)], more[0], made)
    torch.testing.assert_close(cost, -paid)
