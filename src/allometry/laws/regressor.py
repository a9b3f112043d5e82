"""A scaling law as a regressor of scikit-learn (extra `sklearn`).

Letters: n runs, v variables.
"""

from typing import Any, Literal, final, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require, require_extra
from allometry.laws.fitting import fit
from allometry.laws.law import Law
from allometry.laws.multivariate.law import VariableLaw
from allometry.laws.runs_table import VARIABLES

require_extra("sklearn", "sklearn")
from sklearn.base import BaseEstimator, RegressorMixin  # noqa: E402 - after the error for users
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

RESPONSE = "response"


@final
class ScalingLawRegressor(RegressorMixin, BaseEstimator):
    """A scaling law with `fit`, `predict` and `score`, for pipelines and cross-validation.

    The columns of X are the variables of the law. If all of them are named N, D or C, by the
    columns of a data frame or by `variables`, the law is one of `laws.fit` in size, data and
    compute. Otherwise it is a law in any variables.

    Do not scale X before: a power law of standardised sizes is no power law.

    Args:
        form: As for `laws.fit`: `auto`, the name of a form, or an expression in the variables.
        variables: Names of the columns of X. Default: those of a data frame, else x0, x1, ...
        roles: Roles of some variables; see `laws.fit`.
        starts: Number of starting points.
        random_state: Seed of the starts.

    Attributes:
        law_: The fitted `Law` or `VariableLaw`.
        n_features_in_: Number of variables.

    Example:
        >>> import numpy as np
        >>> from allometry.laws.regressor import ScalingLawRegressor
        >>> N = np.geomspace(1e3, 1e6, 12)
        >>> model = ScalingLawRegressor("floor", variables=["N"])
        >>> model = model.fit(N[:, None], 1.5 + 40 / N**0.5)
        >>> model.predict([[1e8]]).round(3)
        array([1.504])
    """

    def __init__(
        self,
        form: Any = "auto",
        *,
        variables: Any = None,
        roles: Any = None,
        starts: Any = 16,
        random_state: Any = 0,
    ) -> None:
        # The protocol of scikit-learn: anything is stored here, and `fit` checks it.
        self.form = form
        self.variables = variables
        self.roles = roles
        self.starts = starts
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "ScalingLawRegressor":
        """Fit the law to runs.

        Args:
            X: The variables, one row per run.
            y: The loss, or another response.
        """
        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=3, dtype=float)
        names = self._names(X.shape[1])
        columns: dict[str, Any] = dict(zip(names, X.T, strict=True))
        seed = int(self.random_state or 0)
        if set(names) <= set(VARIABLES):
            columns["loss"] = y
            options: dict[str, Any] = {"bootstrap": 200}
        else:
            columns[RESPONSE] = y
            options = {"variables": names, "response": RESPONSE, "roles": self.roles}
        self.law_: Law | VariableLaw = fit(
            columns, self.form, seed=seed, starts=self.starts, **options
        )
        return self

    @overload
    def predict(self, X: Any, return_interval: Literal[False] = False) -> ndarray: ...
    @overload
    def predict(self, X: Any, return_interval: Literal[True]) -> tuple[ndarray, ndarray]: ...
    def predict(
        self, X: Any, return_interval: bool = False
    ) -> Float[ndarray, " n"] | tuple[Float[ndarray, " n"], Float[ndarray, "n 2"]]:
        """The predicted response of each row.

        Args:
            X: The variables.
            return_interval: Also return the 95 % prediction interval of each row.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=float)
        columns: dict[str, Any] = dict(zip(self._names(X.shape[1]), X.T, strict=True))
        if not return_interval:
            return np.asarray(self.law_(**columns))
        lower, value, upper = self.law_.band(**columns)
        return value, np.stack([lower, upper], 1)

    def _names(self, count: int) -> list[str]:
        if self.variables is not None:
            names = list(self.variables)
            require(len(names) == count, "variables", f"name the {count} columns of X", names)
            return names
        known = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(count)] if known is None else [str(n) for n in known]
