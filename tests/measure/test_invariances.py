"""Invariances of each public metric to changes of the data.

`scale` is the power of the unit by which a metric grows (0: not at all, None: no such invariance),
or a function from the factor to the added term; `shift` whether a common offset of all rows has no
effect, `order` whether the order of rows has none, `repeat` whether duplicating every row has
none. `order` is not tested for metrics that draw rows at random. Metrics that train a network in
float32 have a tolerance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import allometry.measure as m
from allometry._core.estimate import Estimate
from allometry.measure.threads import one_thread

TYPES = {"PRIMES", "Audit", "Contextual", "Features", "Field", "Scores"}


@dataclass(frozen=True)
class Invariance:
    """How a metric of (real, samples) responds to a change of both."""

    run: Callable[..., float]
    scale: float | Callable[[float], float] | None = 0
    shift: bool = True
    order: bool = True
    repeat: bool = False
    data: str = "rows"
    tolerance: float = 1e-6


def g():
    return torch.Generator().manual_seed(0)


LABELS = np.arange(40) % 2


def labelled(name):
    """Classes in the first column's halves, so that there is something to learn."""

    def run(x, y):
        first, second = (np.argsort(np.argsort(s[:, 0])) * 2 // len(s) for s in (x, y))
        return getattr(m, name)(x, first, y, second, steps=20, rng=g()).value

    return run


def of(name, **settings):
    return lambda x, y: getattr(m, name)(x, y, **settings).value


def seeded(name, **settings):
    return lambda x, y: getattr(m, name)(x, y, rng=g(), **settings).value


def prdc_of(name):
    return lambda x, y: m.prdc(x, y)[name].value


def players(name, **settings):
    return lambda x, y: (
        getattr(m, name)(x, {"a": y, "b": x[::-1].copy()}, rng=g(), **settings)["a"].value
    )


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


NETWORK = {"order": False, "tolerance": 0.05}
CLASSIFIED = {
    name: Invariance(labelled(name), **NETWORK)
    for name in (
        "train_on_samples_accuracy",
        "accuracy_on_samples",
        "boundary_distortion",
        "adversarial_accuracy",
        "adversarial_divergence",
    )
}
PROBABILITIES = {
    "inception_score": lambda x, y: m.inception_score(softmax(y)).value,
    "modified_inception_score": lambda x, y: m.modified_inception_score(softmax(y)).value,
    "mode_score": lambda x, y: m.mode_score(softmax(x), softmax(y)).value,
    "am_score": lambda x, y: m.am_score(softmax(x), softmax(y)).value,
    "label_divergence": lambda x, y: m.label_divergence(softmax(x), softmax(y)).value,
}
INVARIANCES: dict[str, Invariance] = {
    **CLASSIFIED,
    # A softmax is invariant to shifts of all logits, not to their scale.
    **{name: Invariance(run, scale=None, shift=True) for name, run in PROBABILITIES.items()},
    "classification": Invariance(
        lambda x, y: (
            m.classification(x, LABELS, y, LABELS, steps=20, rng=g())["boundary_distortion"].value
        ),
        **NETWORK,
    ),
    "frechet_distance": Invariance(of("frechet_distance"), scale=2),
    "frechet_distance_infinity": Invariance(
        seeded("frechet_distance_infinity"), scale=2, order=False
    ),
    "mmd2": Invariance(of("mmd2")),
    "energy_distance": Invariance(of("energy_distance"), scale=1),
    # KID's kernel, (x.y/d + 1)^3, has an origin and a unit.
    "kid": Invariance(seeded("kid"), scale=None, shift=False),
    "wasserstein": Invariance(of("wasserstein"), scale=1, repeat=True),
    "sliced_wasserstein": Invariance(seeded("sliced_wasserstein"), scale=1, repeat=True),
    "wasserstein_critic": Invariance(
        seeded("wasserstein_critic", steps=20), scale=1, order=False, tolerance=0.02
    ),
    "birthday_support": Invariance(lambda x, y: m.birthday_support(x, np.tile(y, (2, 1))).value),
    # The cosine has no unit but has an origin; halves are random.
    "vendi_score": Invariance(
        lambda x, y: m.vendi_score(y, rng=g()).value, shift=False, order=False
    ),
    "different_bins": Invariance(seeded("different_bins", bins=2), order=False),
    "nearest_neighbour_accuracy": Invariance(of("nearest_neighbour_accuracy", side="real")),
    "nearest_neighbour_p_value": Invariance(seeded("nearest_neighbour_p_value"), order=False),
    "classifier_accuracy": Invariance(seeded("classifier_accuracy", steps=20), **NETWORK),
    "classifier_p_value": Invariance(seeded("classifier_p_value", steps=20), **NETWORK),
    "efron_p_value": Invariance(seeded("efron_p_value"), order=False),
    **{name: Invariance(of(name)) for name in ("precision", "recall", "density", "coverage")},
    "prdc": Invariance(prdc_of("density")),
    "authenticity": Invariance(of("authenticity")),
    "copying": Invariance(
        lambda x, y: m.copying(x, x[::2] + 0.1 * (x[::2] - x[0]), y).value, order=False
    ),
    "retrieval_distance": Invariance(of("retrieval_distance"), scale=1, repeat=True),
    "retrieval_win_rate": Invariance(
        lambda x, y: m.retrieval_win_rate(x, y, x[::-1].copy()).value
    ),
    "retrieval_p_value": Invariance(
        lambda x, y: m.retrieval_p_value(x, y, y + (x - x[0]) / 9, rng=g()).value, order=False
    ),
    # A density has a unit: nats fall by d log c, bits per number rise by log2 c. The bandwidth is
    # accurate to 1e-3.
    "parzen_log_likelihood": Invariance(
        seeded("parzen_log_likelihood"),
        scale=lambda c: -3 * math.log(c),
        order=False,
        tolerance=1e-3,
    ),
    "coverage_metric": Invariance(seeded("coverage_metric"), order=False, tolerance=0.03),
    "description_length": Invariance(
        seeded("description_length", components=(1, 2)), scale=math.log2, order=False
    ),
    "mode_recovery": Invariance(
        lambda x, y: m.mode_recovery(y, x[:3], float(x[:, 0].std()))["high_quality"].value,
        order=False,
    ),
    "geometry_score": Invariance(
        seeded("geometry_score", repeats=3, landmarks=8), order=False, tolerance=1e-5
    ),
    "adversarial_metric": Invariance(
        lambda x, y: m.adversarial_metric(x, y, x[::-1].copy(), steps=20, rng=g()).value,
        order=False,
        tolerance=0.3,
    ),
    "tournament_win_rates": Invariance(players("tournament_win_rates", steps=20), **NETWORK),
    "skill_ratings": Invariance(players("skill_ratings", steps=20), order=False, tolerance=20.0),
    "relative_discriminative_scores": Invariance(
        players("relative_discriminative_scores", epochs=2, epoch_steps=3), **NETWORK
    ),
    "linear_probe": Invariance(
        lambda x, y: (
            m.linear_probe(
                torch.as_tensor(x),
                torch.as_tensor(LABELS),
                torch.as_tensor(y),
                torch.as_tensor(LABELS),
            )[0].value
        ),
        order=False,
        tolerance=1e-4,
    ),
    "mean_log_likelihood": Invariance(
        lambda x, y: m.mean_log_likelihood(x[:, 0]).value, scale=1, shift=False, repeat=True
    ),
    "bits_per_dimension": Invariance(
        lambda x, y: m.bits_per_dimension(x[:, 0], 3).value, scale=1, shift=False, repeat=True
    ),
    "block_mean": Invariance(
        lambda x, y: m.block_mean(x[:, 0]).value, scale=1, shift=False, repeat=True
    ),
    "d_p": Invariance(
        lambda x, y: m.d_p(torch.as_tensor(x), torch.as_tensor(y)).value,
        scale=1,
        order=False,
        repeat=True,
    ),
    "psnr": Invariance(lambda x, y: m.psnr(x, y, span=float(np.ptp(x))).value, data="images"),
    "ssim": Invariance(
        lambda x, y: m.ssim(x, y, span=float(np.ptp(x))).value, shift=False, data="images"
    ),
    "ms_ssim": Invariance(
        lambda x, y: m.ms_ssim(x, y, span=float(np.ptp(x))).value, shift=False, data="images"
    ),
    # As published: the square of the range over a gradient that is not squared, so it has a unit.
    "sharpness_difference": Invariance(
        lambda x, y: m.sharpness_difference(x, y, span=float(np.ptp(x))).value,
        scale=None,
        data="images",
    ),
    "spectrum_slope_difference": Invariance(of("spectrum_slope_difference"), data="images"),
    "contrast_difference": Invariance(
        of("contrast_difference"), scale=1, repeat=True, data="images"
    ),
    "filter_response_difference": Invariance(
        of("filter_response_difference"), repeat=True, data="images"
    ),
    "numerical_rank": Invariance(lambda x, y: m.numerical_rank(x.T @ x).value, shift=False),
    "epsilon_rank": Invariance(lambda x, y: float(m.epsilon_rank(x, 0.3)), shift=False),
    "epsilon_rank_lower": Invariance(
        lambda x, y: float(m.epsilon_rank_lower(x, 0.3 * float(np.abs(x).mean()))), shift=False
    ),
}
NO_NUMBERS_IN_A_UNIT = {
    # Functions of models or of other functions, of texts, of fields, of estimates; whole tables.
    "audit": "a study of the others",
    "score": "all of the others; its verdict is tested in test_verdict.py",
    "bits": "an estimate in another unit",
    "per_character": "an estimate in another unit",
    "perplexity": "an estimate in another unit",
    "shannon": "counts of symbols",
    "hindsight": "counts of symbols",
    "regret": "counts of symbols",
    "equivariance_error": "a function's",
    "sobol": "points, not a measure",
    "is_contextual_mapping": "a function's",
    "reconstruction_error": "a generator's, by a search with a rate of its own",
    "separation_rank": "a function's",
    "matricization": "a function's values",
    "template_rows": "points, not a measure",
    "generic_": "weights, not a measure",
    "prime_rank": "over a field, exact",
}


def test_every_public_metric_is_listed():
    assert set(INVARIANCES) | set(NO_NUMBERS_IN_A_UNIT) | TYPES == set(m.__all__)
    assert not set(INVARIANCES) & set(NO_NUMBERS_IN_A_UNIT)


def rows(seed, kind):
    rng = np.random.default_rng(seed)
    if kind == "images":
        return rng.normal(size=(6, 16, 16)), 0.2 + rng.normal(size=(6, 16, 16))
    x = rng.normal(size=(40, 3)) * [1.0, 2.0, 0.5]
    return x, 0.3 + 1.2 * rng.normal(size=(40, 3))


def measured(invariance, x, y):
    with one_thread():
        found = invariance.run(x, y)
    assert not isinstance(found, Estimate)
    return float(found)


def close(invariance, found, expected):
    return found == pytest.approx(
        expected, rel=invariance.tolerance, abs=invariance.tolerance * _unit(expected)
    )


def _unit(value):
    return max(1.0, abs(value)) if math.isfinite(value) else 1.0


SCALED = sorted(name for name, invariance in INVARIANCES.items() if invariance.scale is not None)


@pytest.mark.parametrize("name", SCALED)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 99), power=st.sampled_from([-40, -17, 3, 30]))
@example(seed=1, power=-40)
def test_the_unit_of_the_data(name, seed, power):
    invariance = INVARIANCES[name]
    x, y = rows(seed, invariance.data)
    c = 2.0**power
    assert invariance.scale is not None
    base, found = measured(invariance, x, y), measured(invariance, c * x, c * y)
    if callable(invariance.scale):
        assert close(invariance, found - invariance.scale(c), base)
    else:
        assert close(invariance, found / c**invariance.scale, base)


@pytest.mark.parametrize(
    "name", sorted(name for name, invariance in INVARIANCES.items() if invariance.shift)
)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 99), size=st.sampled_from([0.1, 1e3, 1e6]))
@example(seed=1, size=1e6)
def test_the_origin_of_the_data(name, seed, size):
    invariance = INVARIANCES[name]
    x, y = rows(seed, invariance.data)
    offset = size * np.array([1.0, -3.0, 2.0]) if invariance.data == "rows" else size
    if name in PROBABILITIES:
        offset = size
    if invariance.data == "rows" and name in ("mean_log_likelihood", "block_mean"):
        offset = size
    # Adding 1e6 rounds the data to 1e-10, and squares of that.
    slack = max(invariance.tolerance, 1e-14 * size**1.5)
    base, found = measured(invariance, x, y), measured(invariance, x + offset, y + offset)
    assert found == pytest.approx(base, rel=slack, abs=slack * _unit(base))


@pytest.mark.parametrize(
    "name", sorted(name for name, invariance in INVARIANCES.items() if invariance.order)
)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 99))
def test_the_order_of_rows(name, seed):
    invariance = INVARIANCES[name]
    x, y = rows(seed, invariance.data)
    rng = np.random.default_rng(seed)
    one, two = rng.permutation(len(x)), rng.permutation(len(y))
    two = one if invariance.data == "images" else two  # images are compared pair by pair
    assert close(invariance, measured(invariance, x[one], y[two]), measured(invariance, x, y))


@pytest.mark.parametrize(
    "name", sorted(name for name, invariance in INVARIANCES.items() if invariance.repeat)
)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 99))
def test_every_row_twice(name, seed):
    invariance = INVARIANCES[name]
    x, y = rows(seed, invariance.data)
    twice = measured(invariance, np.repeat(x, 2, 0), np.repeat(y, 2, 0))
    assert close(invariance, twice, measured(invariance, x, y))
