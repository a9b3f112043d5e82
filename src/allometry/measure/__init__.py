"""The measure room: functions from samples, models or tensors to an `Estimate`."""

from allometry.measure.classify import (accuracy_on_samples, adversarial_accuracy, adversarial_divergence, boundary_distortion, classification, train_on_samples_accuracy,)
from allometry.measure.description import (audit, description_length from allometry.measure.desiderata import Audit,)
from allometry.measure.diversity import (birthday_support, different_bins, vendi_score from allometry.measure.features import Features,)
from allometry.measure.entropy import (hindsight, regret, shannon =======,)
from allometry.measure.frechet import (frechet_distance, frechet_distance_infinity from allometry.measure.games import (     adversarial_metric, relative_discriminative_scores, skill_ratings, tournament_win_rates,)
from allometry.measure.kernels import (energy_distance, kid, mmd2 >>>>>>> d2631f3 (Add measures of two sets with intervals,)
from allometry.measure.likelihood import (bits, block_mean, filter_response_difference, per_character, perplexity from allometry.measure.natural import (     contrast_difference, spectrum_slope_difference,)
from allometry.measure.neighbours import (authenticity, copying, coverage, density, prdc, precision, recall,)
from allometry.measure.parzen import (bits_per_dimension, coverage_metric, mean_log_likelihood, parzen_log_likelihood,)
from allometry.measure.reconstruction import (reconstruction_error from allometry.measure.retrieval import retrieval_distance, retrieval_p_value, retrieval_win_rate,)
from allometry.measure.scores import (am_score, inception_score, label_divergence, mode_score, modified_inception_score,)
from allometry.measure.similarity import (ms_ssim, psnr, score, sharpness_difference, ssim from allometry.measure.table import Scores,)
from allometry.measure.topology import (geometry_score from allometry.measure.transport import sliced_wasserstein, wasserstein, wasserstein_critic,)
from allometry.measure.twosample import (classifier_accuracy, classifier_p_value, efron_p_value, nearest_neighbour_accuracy, nearest_neighbour_p_value,)

__all__ = [
    "accuracy_on_samples",
    "adversarial_accuracy",
    "adversarial_divergence",
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
    "copying",
    "coverage",
    "coverage_metric",
    "density",
    "description_length from allometry.measure.desiderata import Audit",
    "different_bins",
    "efron_p_value",
    "energy_distance",
    "filter_response_difference",
    "frechet_distance",
    "frechet_distance_infinity from allometry.measure.games import (     adversarial_metric",
    "geometry_score from allometry.measure.transport import sliced_wasserstein",
    "hindsight",
    "inception_score",
    "kid",
    "label_divergence",
    "mean_log_likelihood",
    "mmd2 >>>>>>> d2631f3 (Add measures of two sets with intervals",
    "mode_score",
    "modified_inception_score",
    "ms_ssim",
    "nearest_neighbour_accuracy",
    "nearest_neighbour_p_value",
    "parzen_log_likelihood",
    "per_character",
    "perplexity from allometry.measure.natural import (     contrast_difference",
    "prdc",
    "precision",
    "psnr",
    "recall",
    "reconstruction_error from allometry.measure.retrieval import retrieval_distance",
    "regret",
    "relative_discriminative_scores",
    "retrieval_p_value",
    "retrieval_win_rate",
    "score",
    "shannon =======",
    "sharpness_difference",
    "skill_ratings",
    "spectrum_slope_difference",
    "ssim from allometry.measure.table import Scores",
    "tournament_win_rates",
    "train_on_samples_accuracy",
    "vendi_score from allometry.measure.features import Features",
    "wasserstein",
    "wasserstein_critic",
]
