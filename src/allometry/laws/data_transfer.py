"""Effective data transferred by pre-training, as a scaling law in data and size.

Letters: m parameter vectors at once, p parameters, n runs, v variables.
"""

from dataclasses import replace
from typing import Any, Unpack, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

from allometry._core.errors import require
from allometry.laws.fitting import FitOptions, estimates, fit
from allometry.laws.forms import WIDE, Draws, Form
from allometry.laws.inverse import crossing
from allometry.laws.law import Law
from allometry.laws.solver import Problem, minimise


@final
class Product(Form):
    r"""$y = k\,D^\alpha N^\beta$, linear in the logs.

    With y the effective data transferred this is the law of Hernandez et al.; text to Python has
    $k = 1.9 \times 10^4$, $\alpha = 0.18$, $\beta = 0.38$.

    References:
        `hernandez2021` Eq. (1.1).
    """

    name = "transfer"
    variables = ("D", "N")
    letters = ("k", "alpha", "beta")
    equation = "y = k D^alpha N^beta"

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """The log of y."""
        return theta[:, 0, None] + theta[:, 1, None] * X[0] + theta[:, 2, None] * X[1]

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """The log of y and its derivative, which is constant."""
        f = self.value(theta, X)
        return f, np.stack([np.ones_like(f), *(np.broadcast_to(x, f.shape) for x in X)], 1)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Random slopes; the problem is convex."""
        return np.concatenate(
            [np.full((count, 1), np.median(y)), rng.uniform(0.0, 1.0, (count, 2))], 1
        )

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Exponents of a few tenths."""
        return np.array([float(np.median(y)), 0.2, 0.4]), np.array([WIDE, 0.4, 0.4])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        with np.errstate(over="ignore"):
            k = np.exp(theta[:, 0] - theta[:, 1:] @ centre)
        return {"k": k, "alpha": theta[:, 1], "beta": theta[:, 2]}


def transfer(scratch: Law, *, N: Any, D: Any, loss: Any, **options: Unpack[FitOptions]) -> Law:
    r"""Fit the law of effective data transferred to fine-tuned runs, given a law from scratch.

    For each fine-tuned run, $D_E$ is the data with which a model of its size would reach its loss
    from scratch, by the law `scratch`; $D_T = D_E - D_F$ is the effective data transferred. Runs
    that pre-training did not help, or whose loss no amount of data reaches from scratch, are left
    out and named in the law's warnings. Each draw of the result uses the $D_E$ of a bootstrap
    draw of `scratch`, so its intervals include the uncertainty of both laws.

    Args:
        scratch: A law in N and D of models trained from scratch on the same task.
        N: Sizes of the fine-tuned models.
        D: Fine-tuning data of each, $D_F$.
        loss: Their losses.
        **options: As for `fit`.

    References:
        `hernandez2021` sections 2 and 3.1.
    """
    require(
        {"N", "D"} <= set(scratch.variables),
        "transfer.scratch",
        "be a law in N and D",
        " and ".join(scratch.variables),
    )
    n, d, y = (np.asarray(a, float).reshape(-1) for a in (N, D, loss))
    require(len(n) == len(d) == len(y), "transfer", "have N, D, loss of one length", len(n))
    for name, column in (("N", n), ("D", d), ("loss", y)):
        require(bool((column > 0).all()), f"transfer.{name}", "be positive", column.min())
    effective = np.array(
        [
            scratch.solve(float(loss_), "D", N=float(size)).value
            for size, loss_ in zip(n, y, strict=True)
        ]
    )
    transferred = effective - d
    good = np.isfinite(transferred) & (transferred > 0)
    require(
        int(good.sum()) >= 4,
        "transfer",
        "have 4 runs that pre-training helped and whose loss can be reached from scratch",
        int(good.sum()),
    )
    law = fit({"N": n[good], "D": d[good], "loss": transferred[good]}, Product(), **options)
    law = _with_scratch_uncertainty(law, scratch, n[good], d[good], y[good], effective[good])
    if not good.all():
        rows = ", ".join(str(i) for i in np.flatnonzero(~good)[:5])
        one = int((~good).sum()) == 1
        left = "1 run was" if one else f"{int((~good).sum())} runs were"
        law.warnings.append(
            f"{left} left out ({'row' if one else 'rows'} {rows}): pre-training did not help "
            "them, or no amount of data reaches their loss from scratch."
        )
    return law


def _with_scratch_uncertainty(
    law: Law,
    scratch: Law,
    n: Float[ndarray, " n"],
    d: Float[ndarray, " n"],
    y: Float[ndarray, " n"],
    effective: Float[ndarray, " n"],
) -> Law:
    """The law with draws that include the uncertainty of the law from scratch."""
    member, spread = law.members[0], len(scratch.members[0].draws)
    if not len(member.draws):
        return law
    if not spread:
        law.warnings.append(
            "The law from scratch has no bootstrap draws, so these intervals do not include its "
            "uncertainty. Fit it with bootstrap=1000."
        )
        return law
    logs = np.stack(
        [
            _data_to_reach(scratch, *run)
            for run in zip(n, np.log(y), np.log(effective), strict=True)
        ],
        1,
    )
    transferred = np.exp(logs) - d
    valid = np.isfinite(transferred) & (transferred > 0)
    target = np.log(np.where(valid, transferred, 1.0))
    # Runs without a valid value have weight 0; draws with too few valid runs are dropped.
    used = valid.sum(1) > member.form.p
    target, weights = target[used], valid[used].astype(float)
    X = member.at(law.table.logs)
    starts = np.repeat(member.theta[None], len(target), 0)
    problem = Problem(member.form, X, target, weights, law.criterion.delta, member.prior)
    found = minimise(problem, starts).theta
    # The first row is the law from scratch itself.
    shifts = (found[1:] - found[0])[np.arange(len(member.draws)) % max(1, len(found) - 1)]
    own = _small_sample_factor(law) * (member.draws - member.theta)
    inherited = _small_sample_factor(scratch) * shifts
    wider = replace(member, draws=member.theta + own + inherited)
    return replace(law, members=(wider, *law.members[1:]), params=estimates(wider, law.n))


def _small_sample_factor(law: Law) -> float:
    """The factor by which the draws of a law of few runs understate the parameters' spread.

    Few residuals require Student's t. And a robust fit whose threshold lies below the noise passes
    through p of the runs, so that their zero residuals are resampled with the others.
    """
    dof = max(law.n - law.shape.p, 2)
    factor = float(special.stdtrit(dof, 0.975) / special.ndtri(0.975))
    return factor * (law.n / dof) ** 0.5 if law.criterion.delta < law.noise else factor


def _data_to_reach(scratch: Law, size: float, loss: float, about: float) -> Float[ndarray, " m"]:
    """Log data at which the law from scratch, and each draw, reaches a log loss."""
    x = about + np.linspace(-9.0, 9.0, 181)
    logs = scratch.points({"N": size, "D": np.exp(x)})[0]
    return crossing(x, scratch.curves(logs), loss)
