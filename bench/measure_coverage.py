"""Coverage of the metrics' 95 % intervals, simulated with the truth known or drawn many times.

Run: python bench/measure_coverage.py [--draws 1000] [--only NAME]

If a metric's target is its expectation at the given sample sizes (its `method` says so), the truth
is the mean over all draws. If it is conditional on something (balls, a classifier, samples), that
is fixed. Metrics conditional on a network trained along the way are in `measure_given.py`.
"""

import argparse
import math
import time

import measure_given
import needs
import numpy as np
import torch

from allometry.measure import (
    diversity,
    frechet,
    kernels,
    neighbours,
    parzen,
    scores,
    topology,
    transport,
    two_sample,
)

D = 3


def normal(rng, n, shift=0.0, scale=1.0, d=D):
    return torch.as_tensor(shift + scale * rng.normal(size=(n, d)))


def rbf_truth(shift, h=2.0, d=D):
    base = (h * h / (h * h + 2)) ** (d / 2)
    return 2 * base * (1 - math.exp(-d * shift**2 / (2 * (h * h + 2))))


def cubic_truth(shift, d=D):
    """E (x.y/d + 1)^3 for N(0, I) and N(shift, I), by the moments of x.y."""

    def mean(a, b):
        # x.y of independent N(a, I), N(b, I): moments summed over independent coordinates.
        k1, k2 = a * b, 1 + a * a + b * b
        k3 = 6 * a * b
        m1, v, c3 = d * k1, d * k2, d * k3
        u1 = m1 / d + 1
        return u1**3 + 3 * u1 * v / d**2 + c3 / d**3

    return mean(0, 0) + mean(shift, shift) - 2 * mean(0, shift)


def frechet_truth(shift, scale, d=D):
    return d * (shift**2 + (scale - 1) ** 2)


def labels(rng, probabilities, n):
    return np.eye(len(probabilities))[rng.choice(len(probabilities), size=n, p=probabilities)]


def soft(rng, probabilities, rows, n):
    return np.asarray(rows)[rng.choice(len(probabilities), size=n, p=probabilities)]


def entropy(p):
    p = np.asarray(p)
    return -float((p[p > 0] * np.log(p[p > 0])).sum())


PROBABILITIES = np.array([0.4, 0.3, 0.2, 0.1])
ROWS = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.25] * 4])
MIXED = PROBABILITIES @ ROWS
OTHER = np.array([0.1, 0.2, 0.3, 0.4])
LOG_IS = entropy(MIXED) - float(PROBABILITIES @ [entropy(r) for r in ROWS])
KL = float((PROBABILITIES * np.log(PROBABILITIES / OTHER)).sum())
PAIR = np.array([[0.6, 0.3, 0.1], [0.6, 0.1, 0.3]])
PAIR_KL = float((PAIR[0] * np.log(PAIR[0] / PAIR[1])).sum()) / 2
FIXED = np.random.default_rng(99)
REAL, MADE, BIG = normal(FIXED, 200), normal(FIXED, 200, 0.3, 1.2), normal(FIXED, 60_000, 0.3, 1.2)
BIG_REAL = normal(FIXED, 60_000)


def kde_case(rng):
    x = normal(rng, 400, d=1)
    return parzen.parzen_log_likelihood(x, MADE[:, :1], bandwidth=0.4)


def coverage_metric_case(rng):
    """The truth is that of this draw's windows, from 5,000 rows of either distribution."""
    x, y = normal(rng, 300, d=1), normal(rng, 300, 0.8, d=1)
    seed = int(rng.integers(2**31))
    found = parzen.coverage_metric(x, y, rng=torch.Generator().manual_seed(seed))
    windows = y[torch.randperm(300, generator=torch.Generator().manual_seed(seed))[:150]]
    width = float(found.method.split("windows of ")[1].split(";")[0])
    on_model = parzen.parzen_log_density(normal(rng, 5_000, 0.8, d=1), windows, width)
    on_real = parzen.parzen_log_density(normal(rng, 5_000, d=1), windows, width)
    return found, float((on_real > on_model.quantile(0.05)).double().mean())


LINE = torch.linspace(0, 2 * math.pi, 81)[:80].double()
CIRCLE = torch.stack([LINE.cos(), LINE.sin()], 1)
DISC = normal(np.random.default_rng(5), 80, d=2)


def geometry_case(rng):
    seed = torch.Generator().manual_seed(int(rng.integers(2**31)))
    return topology.geometry_score(CIRCLE, DISC, landmarks=12, repeats=12, rng=seed)


def generator(rng):
    return torch.Generator().manual_seed(int(rng.integers(2**31)))


def vendi_truth():
    y = BIG / BIG.norm(dim=1, keepdim=True)
    values = torch.linalg.eigvalsh(y.T @ y / len(y))
    return math.exp(-float((values * values.log()).sum()))


def chunked(measure):
    """A share or mean over many rows, 1,000 at a time, with the same conditioning."""
    return float(np.mean([measure(i).value for i in torch.arange(60_000).split(1000)]))


def copying_case(rng):
    return neighbours.copying(REAL, normal(rng, 150), normal(rng, 200, 0.3, 1.2))


def copying_truth():
    near = neighbours.nearest(BIG[:20_000], REAL)[0][:, 0].numpy()
    far = np.sort(neighbours.nearest(BIG_REAL[:20_000], REAL)[0][:, 0].numpy())
    return float(1 - (np.searchsorted(far, near) / len(far)).mean())


MEAN = "mean over draws"
# name: (simulate, truth); None: the case returns the truth; MEAN: the truth is the expectation.
CASES = {
    "parzen_log_likelihood": (
        kde_case,
        lambda: float(parzen.parzen_log_density(BIG_REAL[:, :1], MADE[:, :1], 0.4).mean()),
    ),
    "coverage_metric": (coverage_metric_case, None),
    "inception_score": (
        lambda r: scores.inception_score(soft(r, PROBABILITIES, ROWS, 300)),
        math.exp(LOG_IS),
    ),
    "modified_inception_score": (
        lambda r: scores.modified_inception_score(soft(r, [0.3, 0.7], PAIR, 200)),
        lambda: math.exp(0.3 * 0.7 * 2 * PAIR_KL * 2),
    ),
    "mode_score": (
        lambda r: scores.mode_score(labels(r, OTHER, 200), soft(r, PROBABILITIES, ROWS, 300)),
        math.exp(LOG_IS),
    ),
    "am_score": (
        lambda r: scores.am_score(labels(r, OTHER, 300), soft(r, PROBABILITIES, ROWS, 300)),
        lambda: (
            float((OTHER * np.log(OTHER / MIXED)).sum())
            + float(PROBABILITIES @ [entropy(row) for row in ROWS])
        ),
    ),
    "label_divergence": (
        lambda r: scores.label_divergence(labels(r, PROBABILITIES, 300), labels(r, OTHER, 300)),
        KL,
    ),
    "frechet_distance": (
        lambda r: frechet.frechet_distance(normal(r, 200), normal(r, 200, 0.3, 1.2)),
        MEAN,
    ),
    "frechet_distance_infinity": (
        lambda r: frechet.frechet_distance_infinity(normal(r, 200), normal(r, 200, 0.3, 1.2)),
        frechet_truth(0.3, 1.2),
    ),
    "mmd2": (
        lambda r: kernels.mmd2(normal(r, 100), normal(r, 100, 0.4), kernel=kernels.rbf(2)),
        rbf_truth(0.4),
    ),
    "mmd2, equal distributions": (
        lambda r: kernels.mmd2(normal(r, 100), normal(r, 100), kernel=kernels.rbf(2)),
        0.0,
    ),
    "energy_distance": (
        lambda r: kernels.energy_distance(normal(r, 100, d=1), normal(r, 100, 1.0, d=1)),
        lambda: (
            2 * (math.sqrt(2 / math.pi) * math.sqrt(2) * math.exp(-0.25) + math.erf(0.5))
            - 4 / math.sqrt(math.pi)
        ),
    ),
    "energy_distance, equal distributions": (
        lambda r: kernels.energy_distance(normal(r, 100), normal(r, 100)),
        0.0,
    ),
    "kid": (
        lambda r: kernels.kid(
            normal(r, 300), normal(r, 300, 0.4), subsets=20, subset_size=100, rng=generator(r)
        ),
        cubic_truth(0.4),
    ),
    "kid, equal distributions": (
        lambda r: kernels.kid(
            normal(r, 300), normal(r, 300), subsets=20, subset_size=100, rng=generator(r)
        ),
        0.0,
    ),
    "wasserstein": (
        lambda r: transport.wasserstein(normal(r, 100), normal(r, 100, 1.0)),
        MEAN,
    ),
    "sliced_wasserstein": (
        lambda r: transport.sliced_wasserstein(
            normal(r, 200), normal(r, 200, 0.5), projections=50, rng=generator(r)
        ),
        MEAN,
    ),
    "birthday_support": (
        lambda r: diversity.birthday_support(
            REAL,
            torch.as_tensor(r.integers(100, size=(200, 1)).repeat(D, 1)).double(),
            tolerance=0.0,
        ),
        100.0,
    ),
    "birthday_support, unequal": (
        lambda r: diversity.birthday_support(
            REAL, torch.as_tensor(labels(r, PROBABILITIES, 200)[:, :D]).double(), tolerance=0.0
        ),
        1 / float((PROBABILITIES**2).sum()),
    ),
    **{
        f"nearest_neighbour_accuracy, {side}": (
            lambda r, side=side: two_sample.nearest_neighbour_accuracy(
                normal(r, 150), normal(r, 150, 0.5), side=side
            ),
            MEAN,
        )
        for side in ("both", "real", "samples")
    },
    "precision": (
        lambda r: neighbours.precision(REAL, normal(r, 200, 0.3, 1.2)),
        lambda: chunked(lambda i: neighbours.precision(REAL, BIG[i])),
    ),
    "density": (
        lambda r: neighbours.density(REAL, normal(r, 200, 0.3, 1.2)),
        lambda: chunked(lambda i: neighbours.density(REAL, BIG[i])),
    ),
    "recall": (
        lambda r: neighbours.recall(normal(r, 200), MADE),
        lambda: chunked(lambda i: neighbours.recall(BIG_REAL[i], MADE)),
    ),
    "coverage": (lambda r: neighbours.coverage(normal(r, 200), MADE), MEAN),
    "vendi_score": (lambda r: diversity.vendi_score(normal(r, 200, 0.3, 1.2)), vendi_truth),
    "authenticity": (
        lambda r: neighbours.authenticity(REAL, normal(r, 200, 0.3, 1.2)),
        lambda: neighbours.authenticity(REAL, BIG).value,
    ),
    "copying": (copying_case, copying_truth),
    "geometry_score": (geometry_case, MEAN),
}


def coverage(name, draws, seed=0):
    """Share of intervals that cover the truth."""
    simulate, truth = CASES[name]

    def one(rng):
        found = simulate(rng)
        return {name: found if truth is None else (found, None if truth == MEAN else truth)}

    return shares(one, draws, seed)[name]


def shares(simulate, draws, seed=0):
    """For each metric of a simulation, the share of its intervals that cover the truth."""
    rng = np.random.default_rng(seed)
    found = [simulate(rng) for _ in range(draws)]
    covered = {}
    for name in found[0]:
        pairs = [draw[name] for draw in found]
        mean = float(np.mean([estimate.value for estimate, _ in pairs]))
        computed = {truth: truth() for truth in {t for _, t in pairs if callable(t)}}
        covered[name] = float(
            np.mean([e.covers(mean if t is None else float(computed.get(t, t))) for e, t in pairs])
        )
    return covered


TESTS = {
    "nearest_neighbour_p_value": lambda x, y, r: two_sample.nearest_neighbour_p_value(
        x, y, permutations=199, rng=generator(r)
    ),
    "classifier_p_value": lambda x, y, r: two_sample.classifier_p_value(
        x, y, permutations=199, steps=20, rng=generator(r)
    ),
    "efron_p_value": lambda x, y, r: two_sample.efron_p_value(
        x, y, resamples=199, rng=generator(r)
    ),
}


def rejections(name, draws, shift=0.0, seed=0):
    """Share of p-values of 5 % or less."""
    rng = np.random.default_rng(seed)
    found = [TESTS[name](normal(rng, 80), normal(rng, 80, shift), rng) for _ in range(draws)]
    return float(np.mean([p.value <= 0.05 for p in found]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| metric | 95 % interval covers |\n|---|---|")
    for name in CASES:
        if name.startswith(arguments.only):
            started = time.perf_counter()
            share = coverage(name, arguments.draws)
            spent = time.perf_counter() - started
            print(f"| {name} | {100 * share:.1f} % |", f"({spent:.0f} s)", flush=True)
    for simulate in measure_given.SIMULATIONS:
        if simulate.__name__.startswith(arguments.only):
            started = time.perf_counter()
            found = shares(simulate, arguments.draws)
            spent = time.perf_counter() - started
            for name, share in found.items():
                print(f"| {name} | {100 * share:.1f} % |", f"({spent:.0f} s)", flush=True)
    print(f"Standard error of each: {100 * math.sqrt(0.95 * 0.05 / arguments.draws):.1f} %.\n")
    print("| test | rejects equal distributions at 5 % | rejects a shift of 0.5 |\n|---|---|---|")
    for name in TESTS:
        if name.startswith(arguments.only):
            level = rejections(name, 2 * arguments.draws)
            power = rejections(name, arguments.draws // 5, 0.5)
            print(f"| {name} | {100 * level:.1f} % | {100 * power:.0f} % |", flush=True)


if __name__ == "__main__":
    needs.run(main)
