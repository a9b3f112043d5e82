"""The constants of extrapolation that `bench/calibrate.py` learns across public families of runs.

The table is data: its version, the groups of families that it was learnt from, a hash of their
errors, and the constants. Nothing in it was chosen on the runs that are being fitted.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

Kind = Literal["grid", "line", "curve"]
"""Size and data vary independently; sizes along one line; only the data vary."""

USUAL_NOISE = 0.01
"""Noise in log loss for which the table states tau."""

NOISES = (0.0005, 0.2)
"""Range of the noise by which tau is scaled."""

FEW_CONFIGURATIONS = 15
"""For n configurations the share of the draws' variance that counts has the power n / (n + this):
draws of few runs are too alike rather than too different."""

TABLE: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


@final
@dataclass(frozen=True)
class KindConstants:
    """The distribution of extrapolation errors between families of one kind.

    Args:
        kappa: Mean over families of the error per unit of predicted decline.
        rate: Further error per e-fold beyond the runs, the same for all families.
        kappa_sd: Standard deviation of kappa between families.
        own_sd: Standard deviation of a family's error about the one that its backtests show.
        tau: Median of the further error per e-fold beyond runs with a noise of `USUAL_NOISE`.
        tau_sd: Standard deviation of its log.
        noise_power: Power of the noise of the runs to which `tau` is proportional.
        draws: Share of the variance of the bootstrap draws that counts an e-fold or more beyond
            very many runs.
        own_runs: Configurations at which a family's own backtests are twice as uncertain.
        own_scatter: Share of the scatter between backtests that their mean keeps as error.
        trust: Power of the likelihood of backtests for tau: below 1 as they share runs.
        per_decline: Error of a law with one degree of freedom, per unit of predicted decline.
        power: Power of the degrees of freedom with which the error per e-fold of such laws falls.
        noise: Noise of the runs that the prior expects.
        reach: E-folds (of size or data, or half of compute) beyond the runs up to which errors
            were measured.
    """

    kappa: float
    rate: float
    kappa_sd: float
    own_sd: float
    tau: float
    tau_sd: float
    reach: float
    own_runs: float
    own_scatter: float
    trust: float
    per_decline: float
    power: float
    noise: float
    noise_power: float = 0.0
    draws: float = 1.0

    def median_error(self, noise: float) -> float:
        """Median of tau for runs of some noise: smooth families are extrapolated better."""
        return self.tau * (float(np.clip(noise, *NOISES)) / USUAL_NOISE) ** self.noise_power

    @property
    def few_runs(self) -> tuple[float, float, float]:
        """Constants of `intervals.few_runs_variance`."""
        return TABLE["per_e_fold"], self.per_decline, self.power

    @property
    def noise_prior(self) -> tuple[float, float]:
        """So many runs of this noise are the prior of the noise."""
        return TABLE["noise_runs"], self.noise

    def share_of_draws(self, configurations: int) -> float:
        """Share of the variance of the draws that counts far beyond so many configurations."""
        return self.draws ** (configurations / (configurations + FEW_CONFIGURATIONS))


def constants(kind: Kind, form: str | None = None) -> KindConstants:
    """The constants of a kind; a form asked for by name may have its own mean and spread."""
    known = dict(TABLE["kinds"][kind])
    if form is not None:
        known |= TABLE["named"].get(kind, {}).get(form, {})
    return KindConstants(**known)
