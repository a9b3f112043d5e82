"""Simulations of metrics whose interval is conditional on a model trained on other rows.

Each calls the metric itself, keeps the trained model, and evaluates it on many fresh rows: their
mean is the truth of that draw. A simulation returns `{name: (estimate, truth)}`; a truth of `None`
stands for the mean of the estimates over all draws.
"""

import contextlib
import math
from functools import cache
from unittest import mock

import numpy as np
import torch
from scipy import sparse

from allometry.measure import (
    classifier_scores,
    code_length,
    creativity,
    entropy,
    function_error,
    image_similarity,
    image_statistics,
    kernels,
    likelihood,
    modes,
    parzen,
    reconstruction,
    retrieval,
    tournaments,
    transport,
    two_sample,
)
from allometry.measure.ties import Neighbours

FRESH = 20_000


@contextlib.contextmanager
def kept(module, name):
    """Record what `module.name` returns inside the block."""
    made, real = [], getattr(module, name)

    def recorded(*arguments, **options):
        made.append(real(*arguments, **options))
        return made[-1]

    with mock.patch.object(module, name, recorded):
        yield made


def rows(rng, n, shift=0.0, scale=1.0, d=3):
    return torch.as_tensor(shift + scale * rng.normal(size=(n, d)))


def seeded(rng):
    return torch.Generator().manual_seed(int(rng.integers(2**31)))


def blobs(rng, n, gap):
    """Three overlapping classes in the plane, further apart with `gap`."""
    y = torch.as_tensor(rng.integers(3, size=n))
    angle = 2 * math.pi * y / 3
    centre = gap * torch.stack([angle.cos(), angle.sin()], 1)
    return centre + torch.as_tensor(rng.normal(size=(n, 2))), y


def classification(rng):
    x, y = blobs(rng, 240, 1.5)
    z, w = blobs(rng, 120, 1.0)
    with kept(classifier_scores, "fit_classifier") as made:
        found = classifier_scores.classification(x, y, z, w, steps=25, rng=seeded(rng))
    theirs, ours = made
    x, y = blobs(rng, FRESH, 1.5)
    z, w = blobs(rng, FRESH, 1.0)
    p, q = ours.probabilities(x), theirs.probabilities(x)
    a, b = (m.correct(x, y).mean().item() for m in (theirs, ours))
    truth = {
        "train_on_samples_accuracy": a,
        "boundary_distortion": b - a,
        "adversarial_accuracy": a / b,
        "adversarial_divergence": (p * (p / q).log()).sum(1).mean().item(),
        "accuracy_on_samples": ours.correct(z, w).mean().item(),
    }
    return {name: (found[name], truth[name]) for name in truth}


def fooled(judge, made):
    return (judge.probabilities(made)[:, 1] > 0.5).double()


def duel(rng):
    real, ours, theirs = rows(rng, 200), rows(rng, 200, 0.3), rows(rng, 200, 0.6, 1.3)
    with kept(tournaments, "fit_classifier") as judges:
        found = tournaments.adversarial_metric(real, ours, theirs, steps=25, rng=seeded(rng))
    mine = fooled(judges[1], rows(rng, FRESH, 0.3)).mean().item()
    rival = fooled(judges[0], rows(rng, FRESH, 0.6, 1.3)).mean().item()
    return {"adversarial_metric": (found, math.log(mine / rival))}


def tournament(rng):
    players = {"a": rows(rng, 160, 0.3), "b": rows(rng, 160, 0.8), "c": rows(rng, 160, 0.0, 2.0)}
    with kept(tournaments, "fit_classifier") as judges:
        found = tournaments.tournament_win_rates(
            rows(rng, 160), players, steps=25, rng=seeded(rng)
        )
    fresh = rows(rng, FRESH, 0.3)
    truth = np.mean([fooled(judge, fresh).mean().item() for judge in judges])
    return {"tournament_win_rate": (found["a"], float(truth))}


def relative(rng):
    """Areas under the curves of fresh samples, evaluated after each discriminator training."""
    moments, epochs = {"a": (0.3, 1.0), "b": (1.0, 1.0)}, 6
    fresh = [rows(rng, FRESH // 4, *normal).float() for normal in moments.values()]
    heights, train = [], tournaments.train

    def watched(judge, *arguments, **options):
        player = len(heights) // (epochs + 1)
        if len(heights) % (epochs + 1) == 0:
            heights.append(judge.probabilities(fresh[player])[:, 1].mean().item() / 2)
        train(judge, *arguments, **options)
        heights.append(judge.probabilities(fresh[player])[:, 1].mean().item())

    players = {name: rows(rng, 120, *normal) for name, normal in moments.items()}
    with mock.patch.object(tournaments, "train", watched):
        found = tournaments.relative_discriminative_scores(
            rows(rng, 120), players, epochs=epochs, epoch_steps=5, rng=seeded(rng)
        )
    first, second = np.reshape(heights, (2, -1)).sum(1)
    return {"relative_discriminative_score": (found["a"], first / (first + second))}


def distinguished(rng):
    with kept(two_sample, "fit_classifier") as made:
        found = two_sample.classifier_accuracy(
            rows(rng, 120), rows(rng, 200, 0.5), steps=25, rng=seeded(rng)
        )
    right = fooled(made[0], rows(rng, FRESH)).mean() + 1
    right = right - fooled(made[0], rows(rng, FRESH, 0.5)).mean()
    return {"classifier_accuracy": (found, right.item() / 2)}


def critic(rng):
    x, y = rows(rng, 200), rows(rng, 150, 0.5)
    with kept(transport, "_critic") as made:
        found = transport.wasserstein_critic(x, y, steps=40, rng=seeded(rng))
    scale = float(torch.cat([x, y]).std())

    def seen(fresh):
        with torch.no_grad():
            return made[0](((fresh - x.mean(0)) / scale).float()).double().mean().item() * scale

    return {
        "wasserstein_critic": (found, seen(rows(rng, FRESH)) - seen(rows(rng, FRESH, 0.5))),
    }


def code(rng):
    real, samples = rows(rng, 150), rows(rng, 150, 0.3)
    with kept(code_length, "_mixture") as made:
        found = code_length.description_length(real, samples, components=(1, 2), rng=seeded(rng))
    chosen = next(g for g in made if f"mixture of {g.n_components}," in found.method)
    # The mixture is fitted to samples that are centred and of unit spread.
    centre, unit = samples.double().mean(0), samples.double().std(0).max()
    nats = -chosen.score(((rows(rng, FRESH) - centre) / unit).numpy())
    return {"description_length": (found, nats / (3 * math.log(2)) + math.log2(unit))}


CLAY = torch.as_tensor(np.linalg.qr(np.random.default_rng(3).normal(size=(5, 2)))[0].T)


def reconstructed(rng):
    """A linear generator of two directions in five: the residual is known."""
    found = reconstruction.reconstruction_error(
        lambda z: z @ CLAY, rows(rng, 60, d=5), 2, steps=150, restarts=1, rng=seeded(rng)
    )
    return {"reconstruction_error": (found, 3 / 5)}


FIXED = np.random.default_rng(41)
SEEN, RIVAL = rows(FIXED, 150, 0.3), rows(FIXED, 150, 0.6)


def retrieval_of(x):
    return {
        "retrieval_distance": retrieval.retrieval_distance(x, SEEN),
        "retrieval_win_rate": retrieval.retrieval_win_rate(x, SEEN, RIVAL),
    }


@cache
def retrieval_truth():
    return retrieval_of(rows(np.random.default_rng(42), FRESH))


def retrieved(rng):
    return beside(retrieval_of(rows(rng, 100)), retrieval_truth())


def beside(found, truth):
    return {name: (found[name], truth[name].value) for name in found}


def pictures(rng, n, contrast):
    """Smooth random images of 16 pixels about a half, whose contrast varies."""
    waves = np.fft.rfft2(rng.normal(size=(n, 1, 16, 16)))
    f = np.hypot(np.fft.fftfreq(16)[:, None], np.fft.rfftfreq(16)[None]) + 1 / 16
    smooth = np.fft.irfft2(waves / f**contrast, s=(16, 16))
    smooth = smooth / smooth.std(axis=(2, 3), keepdims=True)
    spread = np.exp(0.3 * rng.normal(size=(n, 1, 1, 1)))
    return torch.as_tensor(0.5 + 0.1 * contrast * spread * smooth)


ALBUM = pictures(FIXED, 100, 1.0)


def likeness(made, rng):
    near, made = image_similarity.nearest_pairs(ALBUM, made)
    first, second = image_similarity.random_pairs(made, seeded(rng))
    return {
        "ssim_to_nearest": image_similarity.ssim(near, made, span=1.0),
        "psnr_to_nearest": image_similarity.psnr(near, made, span=1.0),
        "sharpness_to_nearest": image_similarity.sharpness_difference(near, made, span=1.0),
        "ms_ssim_between_samples": image_similarity.ms_ssim(first, second, span=1.0),
    }


@cache
def likeness_truth():
    rng = np.random.default_rng(43)
    return likeness(pictures(rng, FRESH // 4, 1.3), rng)


def alike(rng):
    return beside(likeness(pictures(rng, 80, 1.3), rng), likeness_truth())


def statistics(*sets):
    return {
        "spectrum_slope_difference": image_statistics.spectrum_slope_difference(*sets),
        "contrast_difference": image_statistics.contrast_difference(*sets),
        "filter_response_difference": image_statistics.filter_response_difference(*sets),
    }


@cache
def statistics_truth():
    rng = np.random.default_rng(44)
    return statistics(pictures(rng, FRESH // 20, 1.0), pictures(rng, FRESH // 20, 1.3))


def low_level(rng):
    return beside(statistics(pictures(rng, 20, 1.0), pictures(rng, 30, 1.3)), statistics_truth())


def other_kernels(rng):
    x, y = rows(rng, 100), rows(rng, 100, 0.4)
    quadratic = kernels.rational_quadratic()
    return {
        "mmd2, Laplacian": (kernels.mmd2(x, y, kernel=kernels.laplacian(2.0)), None),
        "mmd2, rational quadratic": (kernels.mmd2(x, y, kernel=quadratic), None),
    }


def modes_found(rng):
    """Eight modes of unequal weight; some samples are outliers."""
    angle = 2 * math.pi * np.arange(8) / 8
    means = np.stack([np.cos(angle), np.sin(angle)], 1)
    q = np.array([8, 7, 6, 5, 4, 3, 2, 1]) / 36
    spread = 0.02 * np.where(rng.random((400, 1)) < 0.1, 4.0, 1.0)
    made = means[rng.choice(8, size=400, p=q)] + spread * rng.normal(size=(400, 2))
    found = modes.mode_recovery(torch.as_tensor(made), torch.as_tensor(means), 0.02)
    good = 0.9 * (1 - math.exp(-9 / 2)) + 0.1 * (1 - math.exp(-9 / 32))
    return {
        "high_quality": (found["high_quality"], good),
        "reverse_kl": (found["reverse_kl"], float((q * np.log(q * 8)).sum())),
    }


def likelihoods(rng):
    r"""The true density on its own rows, and dependent losses: $x_t = 0.8 x_{t-1} + e_t$."""
    x = rows(rng, 80, d=2)
    whole = math.log(2 * math.pi * math.e)

    log_prob = -math.log(2 * math.pi) - x.pow(2).sum(1, keepdim=True) / 2
    shocks = rng.normal(size=2200)
    losses = np.zeros(2200)
    for t in range(1, 2200):
        losses[t] = 0.8 * losses[t - 1] + shocks[t]
    mean = likelihood.block_mean(losses[200:])
    return {
        "mean_log_likelihood": (parzen.mean_log_likelihood(log_prob), -whole),
        "bits_per_dimension": (
            parzen.bits_per_dimension(log_prob, 2),
            whole / (2 * math.log(2)),
        ),
        "block_mean": (mean, 0.0),
        "perplexity": (likelihood.perplexity(mean), 1.0),
        "bits": (likelihood.bits(mean), 0.0),
        "per_character": (likelihood.per_character(mean, 4), 0.0),
    }


def text(rng):
    """N-gram entropies of a chain of four symbols: the expectation at this length."""
    chain = np.array(
        [[0.7, 0.1, 0.1, 0.1], [0.2, 0.5, 0.2, 0.1], [0.1, 0.1, 0.4, 0.4], [0.25] * 4]
    )
    ids, u, steps = np.zeros(3000, dtype=np.int64), rng.random(3000), chain.cumsum(1)
    for t in range(1, 3000):
        ids[t] = min(3, int(np.searchsorted(steps[ids[t - 1]], u[t])))
    found = entropy.shannon(ids, 4, 2)
    return {"shannon, F_1": (found[1], None), "shannon, F_2": (found[2], None)}


def distances(rng):
    """A distance known in closed form, over a cube of six dimensions."""
    seed = int(rng.integers(2**31)) // 1000
    sobol = function_error.d_p(
        lambda x: x.pow(2), torch.zeros_like, shape=(2, 3), points=64, seed=seed
    )
    values = torch.as_tensor(rng.random((200, 6)))
    plain = function_error.d_p(values.pow(2), torch.zeros_like(values))
    # Six coordinates, each with the integral of x^4.
    return {
        "d_p, Sobol points": (sobol, math.sqrt(6 / 5)),
        "d_p, random points": (plain, math.sqrt(6 / 5)),
    }


def surprise(rng):
    """Beliefs from a Dirichlet distribution with weights 1: the mean divergence is known."""
    found = creativity.bayesian_surprise(rng.dirichlet(np.ones(4), 80), np.full(4, 0.25))
    # E sum p log p = psi(2) - psi(5) for four equal weights of 1.
    return {"bayesian_surprise": (found, math.log(4) - (1 / 2 + 1 / 3 + 1 / 4))}


ONE, TWO = rows(FIXED, 40), rows(FIXED, 40, 0.1)
NEIGHBOURS = Neighbours(
    np.arange(80),
    np.ones(80, dtype=int),
    # Never a row itself.
    sparse.csr_array(
        np.eye(80)[(np.arange(80) + np.random.default_rng(7).integers(1, 80, size=80)) % 80]
    ),
)


@cache
def judged():
    return two_sample.classifier_scores(ONE, TWO, steps=25, rng=torch.Generator().manual_seed(0))


@cache
def nearest_truth():
    """Probabilities that the statistic is above the observed one, and equal to it."""
    draws = [
        two_sample._permuted(NEIGHBOURS, 40, 4000, s, tie) for s in range(5) for tie in (0, 1)
    ]
    return np.mean([[p.value for p in draws[k::2]] for k in (0, 1)], axis=1)


def levels(rng):
    """Monte Carlo errors of p-values: the data are fixed, the permutations vary."""
    scores = judged()
    with mock.patch.object(two_sample, "classifier_scores", return_value=scores):
        network = two_sample.classifier_p_value(ONE, TWO, permutations=99, rng=seeded(rng))
    efron = two_sample.efron_p_value(ONE, TWO, resamples=99, rng=seeded(rng))
    least, most = nearest_truth()
    tie = float(rng.random())
    near = two_sample._permuted(NEIGHBOURS, 40, 99, int(rng.integers(2**31)), tie)
    return {
        "classifier_p_value": (network, None),
        "efron_p_value": (efron, None),
        "nearest_neighbour_p_value": (near, least + tie * (most - least)),
    }


SIMULATIONS = (
    classification,
    duel,
    tournament,
    relative,
    distinguished,
    critic,
    code,
    reconstructed,
    retrieved,
    alike,
    low_level,
    other_kernels,
    modes_found,
    likelihoods,
    text,
    distances,
    surprise,
    levels,
)
