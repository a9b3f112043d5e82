"""Evaluation metrics: functions from samples, models or tensors to an `Estimate`."""

from allometry.measure.classifier_scores import (
    accuracy_on_samples,
    adversarial_accuracy,
    adversarial_divergence,
    boundary_distortion,
    classification,
    train_on_samples_accuracy,
)
from allometry.measure.code_length import description_length
from allometry.measure.contextual import Contextual, is_contextual_mapping
from allometry.measure.desiderata import Audit, audit
from allometry.measure.diversity import birthday_support, different_bins, vendi_score
from allometry.measure.entropy import hindsight, regret, shannon
from allometry.measure.features import Features
from allometry.measure.frechet import frechet_distance, frechet_distance_infinity
from allometry.measure.function_error import d_p, equivariance_error, sobol
from allometry.measure.image_similarity import ms_ssim, psnr, sharpness_difference, ssim
from allometry.measure.image_statistics import (
    contrast_difference,
    filter_response_difference,
    spectrum_slope_difference,
)
from allometry.measure.kernels import energy_distance, kid, mmd2
from allometry.measure.likelihood import bits, block_mean, per_character, perplexity
from allometry.measure.modes import mode_recovery
from allometry.measure.neighbours import (
    authenticity,
    copying,
    coverage,
    density,
    prdc,
    precision,
    recall,
)
from allometry.measure.parzen import (
    bits_per_dimension,
    coverage_metric,
    mean_log_likelihood,
    parzen_log_likelihood,
)
from allometry.measure.prime_field_rank import PRIMES, Field, prime_rank
from allometry.measure.probing import linear_probe
from allometry.measure.reconstruction import reconstruction_error
from allometry.measure.retrieval import retrieval_distance, retrieval_p_value, retrieval_win_rate
from allometry.measure.score_table import Scores, score
from allometry.measure.scores import (
    am_score,
    inception_score,
    label_divergence,
    mode_score,
    modified_inception_score,
)
from allometry.measure.separation import (
    epsilon_rank,
    epsilon_rank_lower,
    generic_,
    matricization,
    numerical_rank,
    separation_rank,
    template_rows,
)
from allometry.measure.topology import geometry_score
from allometry.measure.tournaments import (
    adversarial_metric,
    relative_discriminative_scores,
    skill_ratings,
    tournament_win_rates,
)
from allometry.measure.transport import sliced_wasserstein, wasserstein, wasserstein_critic
from allometry.measure.two_sample import (
    classifier_accuracy,
    classifier_p_value,
    efron_p_value,
    nearest_neighbour_accuracy,
    nearest_neighbour_p_value,
)

__all__ = [
    "PRIMES",
    "Audit",
    "Contextual",
    "Features",
    "Field",
    "Scores",
    "accuracy_on_samples",
    "adversarial_accuracy",
    "adversarial_divergence",
    "adversarial_metric",
    "am_score",
    "audit",
    "authenticity",
    "birthday_support",
    "bits",
    "bits_per_dimension",
    "block_mean",
    "boundary_distortion",
    "classification",
    "classifier_accuracy",
    "classifier_p_value",
    "contrast_difference",
    "copying",
    "coverage",
    "coverage_metric",
    "d_p",
    "density",
    "description_length",
    "different_bins",
    "efron_p_value",
    "energy_distance",
    "epsilon_rank",
    "epsilon_rank_lower",
    "equivariance_error",
    "filter_response_difference",
    "frechet_distance",
    "frechet_distance_infinity",
    "generic_",
    "geometry_score",
    "hindsight",
    "inception_score",
    "is_contextual_mapping",
    "kid",
    "label_divergence",
    "linear_probe",
    "matricization",
    "mean_log_likelihood",
    "mmd2",
    "mode_recovery",
    "mode_score",
    "modified_inception_score",
    "ms_ssim",
    "nearest_neighbour_accuracy",
    "nearest_neighbour_p_value",
    "numerical_rank",
    "parzen_log_likelihood",
    "per_character",
    "perplexity",
    "prdc",
    "precision",
    "prime_rank",
    "psnr",
    "recall",
    "reconstruction_error",
    "regret",
    "relative_discriminative_scores",
    "retrieval_distance",
    "retrieval_p_value",
    "retrieval_win_rate",
    "score",
    "separation_rank",
    "shannon",
    "sharpness_difference",
    "skill_ratings",
    "sliced_wasserstein",
    "sobol",
    "spectrum_slope_difference",
    "ssim",
    "template_rows",
    "tournament_win_rates",
    "train_on_samples_accuracy",
    "vendi_score",
    "wasserstein",
    "wasserstein_critic",
]
