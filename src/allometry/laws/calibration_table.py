"""The constants of extrapolation that `bench/calibrate.py` learns across public families of runs.

The table is data: its version, the groups of families that it was learnt from, a hash of their
errors, and the constants. Nothing in it was chosen on the runs that are being fitted.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

Kind = Literal["grid", "line", "curve"]
"""Size and data vary independently; sizes along one line; only the data vary."""

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
        tau: Median of the further error per e-fold beyond the runs.
        tau_sd: Standard deviation of its log.
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


def constants(kind: Kind, form: str | None = None) -> KindConstants:
    """The constants of a kind; a form asked for by name may have its own mean and spread."""
    known = dict(TABLE["kinds"][kind])
    if form is not None:
        known |= TABLE["named"].get(kind, {}).get(form, {})
    return KindConstants(**known)
