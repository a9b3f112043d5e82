"""Sampling: transforms of uniform numbers, MCMC, change of variables, unseen species."""

from allometry.models.sampling.change_of_variables import (
    expectation,
    linear_log_density,
    many_to_one_log_density,
    mapped_log_density,
)
from allometry.models.sampling.mcmc import (
    Chains,
    effective_sample_size,
    hamiltonian,
    metropolis,
    rhat,
)
from allometry.models.sampling.transforms import (
    Rejected,
    box_muller,
    gumbel_max,
    inverse_transform,
    inverse_transform_table,
    rejection,
)
from allometry.models.sampling.unseen_species import good_turing, laplace

__all__ = [
    "Chains",
    "Rejected",
    "box_muller",
    "effective_sample_size",
    "expectation",
    "good_turing",
    "gumbel_max",
    "hamiltonian",
    "inverse_transform",
    "inverse_transform_table",
    "laplace",
    "linear_log_density",
    "many_to_one_log_density",
    "mapped_log_density",
    "metropolis",
    "rejection",
    "rhat",
]
