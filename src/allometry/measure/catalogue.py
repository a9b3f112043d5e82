"""The catalogue: each metric of two sets, by its number in Borji's survey (0 for others)."""

from allometry._core.errors import InputError
from allometry._core.estimate import Estimate
from allometry.measure import (
    classifier_scores,
    code_length,
    diversity,
    frechet,
    image_similarity,
    image_statistics,
    kernels,
    neighbours,
    parzen,
    retrieval,
    scores,
    topology,
    tournaments,
    transport,
    two_sample,
)
from allometry.measure.context import MeasureContext, NotApplicableError
from allometry.measure.entries import INF, Entry, entry

_SHARE = (0.0, 1.0)


def _frechet(c: MeasureContext) -> dict[str, Estimate]:
    found = {"frechet_distance": frechet.frechet_distance(*c.pair)}
    try:
        found["frechet_distance_infinity"] = frechet.frechet_distance_infinity(*c.pair, rng=c.rng)
    except InputError:
        return found  # too few rows to extrapolate
    return found


def _discrepancies(c: MeasureContext) -> dict[str, Estimate]:
    x, y = c.pair
    width = kernels.median_distance(x, y, c.rng)
    laplace = kernels.laplacian(width)
    return {
        "mmd2_rbf": kernels.mmd2(x, y, rng=c.rng),
        "mmd2_laplacian": kernels.mmd2(x, y, kernel=laplace),
        "mmd2_rational_quadratic": kernels.mmd2(
            x / width, y / width, kernel=kernels.rational_quadratic()
        ),
        "energy_distance": kernels.energy_distance(x, y),
        "kid": kernels.kid(x, y, subsets=c.effort.kid_subsets, rng=c.rng),
    }


def _nearest(c: MeasureContext) -> dict[str, Estimate]:
    found = two_sample.nearest_neighbour_test(
        *c.pair, permutations=c.effort.permutations, rng=c.rng
    )
    return {
        "nearest_neighbour_accuracy": found["both"],
        "nearest_neighbour_accuracy_real": found["real"],
        "nearest_neighbour_accuracy_samples": found["samples"],
        "nearest_neighbour_p_value": found["p_value"],
    }


def _network(c: MeasureContext) -> dict[str, Estimate]:
    found = two_sample.classifier_test(
        *c.pair, permutations=c.effort.permutations, steps=c.effort.steps, rng=c.rng
    )
    return {"classifier_accuracy": found["accuracy"], "classifier_p_value": found["p_value"]}


def _classification(c: MeasureContext) -> dict[str, Estimate]:
    return classifier_scores.classification(
        c.real, c.known_labels, c.samples, c.sample_labels, steps=c.effort.steps, rng=c.rng
    )


def _retrieval(c: MeasureContext) -> dict[str, Estimate]:
    x, y = c.pair
    rival = next(rows for name, rows in c.players.items() if name != "samples")
    return {
        "retrieval_distance": retrieval.retrieval_distance(x, y),
        "retrieval_win_rate": retrieval.retrieval_win_rate(x, y, rival, rng=c.rng),
    }


def _games(c: MeasureContext) -> dict[str, Estimate]:
    return tournaments.all_games(c.pair[0], c.players, steps=c.effort.steps, rng=c.rng)


def _relative(c: MeasureContext) -> Estimate:
    found = tournaments.relative_discriminative_scores(
        c.pair[0], c.players, epoch_steps=c.effort.curve_steps, rng=c.rng
    )
    return found["samples"]


def _geometry(c: MeasureContext) -> Estimate:
    effort = c.effort
    return topology.geometry_score(
        *c.pair, repeats=effort.geometry_repeats, most=effort.geometry_rows, rng=c.rng
    )


def _similarity(c: MeasureContext) -> dict[str, Estimate]:
    near, own = image_similarity.nearest_pairs(*c.images)
    first, second = image_similarity.random_pairs(c.images[1], c.rng)
    return {
        "ssim_to_nearest": image_similarity.ssim(near, own, span=c.span),
        "psnr_to_nearest": image_similarity.psnr(near, own, span=c.span),
        "sharpness_to_nearest": image_similarity.sharpness_difference(near, own, span=c.span),
        "ms_ssim_between_samples": image_similarity.ms_ssim(first, second, span=c.span),
    }


def _low_level(c: MeasureContext) -> dict[str, Estimate]:
    return {
        "spectrum_slope_difference": image_statistics.spectrum_slope_difference(*c.images),
        "contrast_difference": image_statistics.contrast_difference(*c.images),
        "filter_response_difference": image_statistics.filter_response_difference(*c.images),
    }


def _description(c: MeasureContext) -> dict[str, Estimate]:
    return {
        "description_length": code_length.description_length(*c.pair, rng=c.rng),
        "efron_p_value": two_sample.efron_p_value(*c.pair, most=500, rng=c.rng),
    }


def _copying(c: MeasureContext) -> dict[str, Estimate]:
    x, y = c.pair
    return {
        "authenticity": neighbours.authenticity(c.copies_of, y),
        "copying": neighbours.copying(c.copies_of, x, y),
    }


def _transport(c: MeasureContext) -> dict[str, Estimate]:
    x, y = c.pair
    return {
        "sliced_wasserstein": transport.sliced_wasserstein(x, y, projections=200, rng=c.rng),
        "wasserstein_critic": transport.wasserstein_critic(
            x, y, steps=c.effort.critic_steps, rng=c.rng
        ),
    }


def _exact_transport(c: MeasureContext) -> Estimate:
    return transport.wasserstein(*c.pair, most=c.effort.transport_rows, rng=c.rng)


def _vendi(c: MeasureContext) -> Estimate:
    y = c.pair[1]
    if bool((y.norm(dim=1) == 0).any()):
        raise NotApplicableError("needs nonzero rows for the cosine")
    return diversity.vendi_score(y, rng=c.rng)


def _parzen(c: MeasureContext) -> Estimate:
    return parzen.parzen_log_likelihood(*c.pair, rng=c.rng)


ENTRIES: tuple[Entry, ...] = (
    entry(1, _parzen, parzen_log_likelihood=("higher", -INF, INF)),
    entry(
        2,
        lambda c: parzen.coverage_metric(*c.pair, rng=c.rng),
        coverage_metric=("near 0.95", *_SHARE),
    ),
    entry(
        3,
        lambda c: scores.inception_score(c.probabilities[1]),
        "classifier",
        inception_score=("higher", 1.0, INF),
    ),
    entry(
        4,
        lambda c: scores.modified_inception_score(c.probabilities[1]),
        "classifier",
        modified_inception_score=("higher", 1.0, INF),
    ),
    entry(
        5,
        lambda c: scores.mode_score(*c.probabilities),
        "classifier",
        mode_score=("higher", 1.0, INF),
    ),
    entry(
        6,
        lambda c: {
            "am_score": scores.am_score(*c.probabilities),
            "label_divergence": scores.label_divergence(*c.probabilities),
        },
        "classifier",
        am_score=("lower", 0.0, INF),
        label_divergence=("lower", 0.0, INF),
    ),
    entry(
        7,
        _frechet,
        frechet_distance=("lower", 0.0, INF),
        frechet_distance_infinity=("lower", 0.0, INF),
    ),
    entry(
        8,
        _discrepancies,
        mmd2_rbf=("lower", 0.0, 2.0),
        mmd2_laplacian=("lower", 0.0, 2.0),
        mmd2_rational_quadratic=("lower", 0.0, 10.0),
        energy_distance=("lower", 0.0, INF),
        kid=("lower", 0.0, INF),
    ),
    entry(9, _exact_transport, wasserstein=("lower", 0.0, INF)),
    entry(
        9,
        _transport,
        sliced_wasserstein=("lower", 0.0, INF),
        wasserstein_critic=("lower", 0.0, INF),
    ),
    entry(
        10,
        lambda c: diversity.birthday_support(*c.pair),
        birthday_support=("higher", 1.0, INF),
    ),
    entry(
        11,
        _nearest,
        nearest_neighbour_accuracy=("near 0.5", *_SHARE),
        nearest_neighbour_accuracy_real=("near 0.5", *_SHARE),
        nearest_neighbour_accuracy_samples=("near 0.5", *_SHARE),
        nearest_neighbour_p_value=("higher", *_SHARE),
    ),
    entry(
        11,
        _network,
        classifier_accuracy=("near 0.5", *_SHARE),
        classifier_p_value=("higher", *_SHARE),
    ),
    entry(
        12,
        _classification,
        "data",
        train_on_samples_accuracy=("higher", *_SHARE),
        accuracy_on_samples=("higher", *_SHARE),
        boundary_distortion=("lower", -1.0, 1.0),
        adversarial_accuracy=("higher", 0.0, INF),
        adversarial_divergence=("lower", 0.0, INF),
    ),
    entry(
        14,
        lambda c: diversity.different_bins(*c.pair, rng=c.rng),
        different_bins=("lower", *_SHARE),
    ),
    entry(
        15,
        _retrieval,
        retrieval_distance=("lower", 0.0, INF),
        retrieval_win_rate=("higher", *_SHARE),
    ),
    entry(
        17,
        _games,
        adversarial_metric=("higher", -INF, INF),
        tournament_win_rate=("higher", *_SHARE),
        skill_rating=("higher", -INF, INF),
    ),
    entry(18, _relative, relative_discriminative_score=("higher", *_SHARE)),
    entry(20, _geometry, geometry_score=("lower", 0.0, INF)),
    entry(
        22,
        _similarity,
        "pixels",
        ssim_to_nearest=("higher", -1.0, 1.0),
        psnr_to_nearest=("higher", -INF, 100.0),
        sharpness_to_nearest=("higher", -INF, 100.0),
        ms_ssim_between_samples=("lower", 0.0, 1.0),
    ),
    entry(
        23,
        _low_level,
        "pixels",
        spectrum_slope_difference=("near 0", -INF, INF),
        contrast_difference=("near 0", -INF, INF),
        filter_response_difference=("near 0", -INF, INF),
    ),
    entry(
        24,
        _description,
        description_length=("lower", -INF, INF),
        efron_p_value=("higher", *_SHARE),
    ),
    entry(
        0,
        lambda c: neighbours.prdc(*c.pair),
        precision=("higher", *_SHARE),
        recall=("higher", *_SHARE),
        density=("near 1", 0.0, INF),
        coverage=("higher", *_SHARE),
    ),
    entry(0, _vendi, vendi_score=("higher", 1.0, INF)),
    entry(0, _copying, authenticity=("higher", *_SHARE), copying=("near 0.5", *_SHARE)),
)
"""Reconstruction error (21), which needs the generator, and exact likelihood are not computed from
two sets and therefore not listed."""
