"""A Python function as a form.

Letters: m parameter vectors at once, p parameters, n runs, v variables.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry.laws.forms import Draws, Form, differences

_VARIABLES = ("N", "D", "C", "D_unique")


@final
class Formula(Form):
    """A Python function of variables and of parameters with default values.

    The defaults are the first starting point. A parameter whose default is positive stays
    positive. Derivatives are central differences.

    Args:
        function: Maps arrays to the loss (not its log), by broadcasting.
        variables: Names of its arguments that are variables. Default: N, D, C and D_unique.
        link: From responses to the scale of the residuals, if X holds the variables themselves.
            Default: X holds their logs, and residuals are of logs.

    Example:
        >>> import numpy as np
        >>> from allometry import laws
        >>> def mine(N, E=1.0, k=0.1):
        ...     return E + k * np.log(1e9 / N)
        >>> N = np.logspace(3, 6, 8)
        >>> law = laws.fit({"N": N, "loss": 1.5 + 0.2 * np.log(1e9 / N)}, mine, bootstrap=0)
        >>> round(law.params["k"].value, 3)
        0.2
    """

    centred = False

    def __init__(
        self,
        function: Callable[..., Any],
        variables: Sequence[str] = _VARIABLES,
        link: Callable[[ndarray], ndarray] | None = None,
    ) -> None:
        self.function, self.link = function, link
        self.name = getattr(function, "__name__", "formula")
        signature = inspect.signature(function).parameters
        self.variables = tuple(name for name in signature if name in variables)
        self.letters = tuple(name for name in signature if name not in variables)
        called = f"{self.name}({', '.join(signature)})"
        self.equation = f"L = {called}" if link is None else called
        usual = "N, D or C" if link is None else "a variable of the law"
        require(bool(self.variables), "formula", f"take {usual}", list(signature))
        require(bool(self.letters), "formula", "take a parameter beside its variables", "none")
        defaults = [signature[name].default for name in self.letters]
        for name, value in zip(self.letters, defaults, strict=True):
            if value is inspect.Parameter.empty or not np.isfinite(float(value)):
                raise InputError(
                    f"formula.{name} must have a finite default to start from; got none. "
                    f"Write {name}=1.0 in the function."
                )
        self.defaults = np.array(defaults, dtype=float)
        self.signs = (self.defaults > 0).astype(int)

    def _natural(self, theta: Float[ndarray, "m p"]) -> Float[ndarray, "m p"]:
        return np.where(self.signs, np.exp(np.where(self.signs, theta, 0.0)), theta)

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """The value on the scale of the residuals; not finite where its log is not."""
        at = dict(zip(self.variables, np.exp(X) if self.link is None else X, strict=True))
        columns = self._natural(theta).T[:, :, None]
        with np.errstate(all="ignore"):
            y = self.function(**at, **dict(zip(self.letters, columns, strict=True)))
            try:
                y = np.broadcast_to(np.asarray(y, float), (len(theta), X.shape[-1]))
            except (TypeError, ValueError):
                raise InputError(
                    f"formula must return a value for each run, by broadcasting; got "
                    f"{type(y).__name__} of shape {np.shape(y)} from {self.name}."
                ) from None
            return np.log(y) if self.link is None else self.link(y)

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """The value and its derivative by central differences with step 1e-6."""
        return differences(self, theta, X)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """The defaults, and random points around them."""
        mean, _ = self.prior(X, y)
        away = rng.normal(size=(count, self.p))
        away[0] = 0.0
        return mean + away

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The defaults, with a standard deviation of 1 (of the log, if positive)."""
        logs = np.log(np.where(self.signs, self.defaults, 1.0))
        return np.where(self.signs, logs, self.defaults), np.ones(self.p)

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by their names in the function."""
        return dict(zip(self.letters, self._natural(theta).T, strict=True))
