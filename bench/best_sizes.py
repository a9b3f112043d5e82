"""Best sizes and lowest losses of held-out budgets, for `bench/calibrate_answers.py`.

The runs of one budget, or of a window of compute of a grid, show the best size there: the minimum
of a parabola in log size, with a slope in log compute within a window. It counts if it lies among
five sizes or more and is known to within a third. Synthetic grids have exact values.

The interval of a predicted best size depends on four constants of `allometry.laws.allocation`:
mean and spread of the exponent of the best size (`GROWTH`), and median and spread of the error
per e-fold (`ERROR_PRIOR`). Here they are chosen anew without each group, by the interval score of
the others.
"""

import itertools

import families_registry as registry
import numpy as np
import split

import allometry as al
from allometry.laws import allocation
from allometry.laws.intervals import extrapolation_posterior
from allometry.laws.inverse import lowest_sizes

WINDOW = 0.4
"""Width of a window in log compute."""

GROUPS = ("chinchilla", "llama3", "misfitting", "protein", "characters", "teacher_student",
          "gemstones")  # fmt: skip
SYNTHETIC = 12
KNOWN = 0.35
SETTINGS = list(
    itertools.product((0.4, 0.45, 0.5), (0.05, 0.1, 0.15), (0.03, 0.05, 0.08), (0.3, 0.5, 0.8))
)
"""Mean and spread of the exponent, median and log spread of the error per e-fold."""

TODAY = (*allocation.GROWTH, *allocation.ERROR_PRIOR)


def best(runs, rng, draws=200):
    """Log best size, its log loss and log compute; None if the runs do not show it."""
    n, c, y = (np.log(runs[k].to_numpy(float)) for k in ("N", "C", "loss"))
    if len(np.unique(n.round(3))) < split.LEAST:
        return None
    middle, centre = n.mean(), c.mean()
    n, c = n - middle, c - centre
    columns = [n**2, n, np.ones_like(n)] + ([c] if np.ptp(c) > 0.02 else [])
    X = np.stack(columns, 1)
    if len(n) < X.shape[1] + 2:
        return None

    def lowest(y):
        a, b, level, *_ = np.linalg.lstsq(X, y, rcond=None)[0]
        return (-b / (2 * a), level - b**2 / (4 * a)) if a > 0 else (np.nan, np.nan)

    at, loss = lowest(y)
    if not n.min() <= at <= n.max():
        return None
    smooth = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    noise = np.sqrt(((y - smooth) ** 2).sum() / (len(n) - X.shape[1]))
    again = [lowest(smooth + noise * rng.standard_normal(len(n)))[0] for _ in range(draws)]
    return (middle + at, loss, centre) if np.nanstd(again) < KNOWN else None


def known(frame, rng):
    """Best size, loss and compute, all in logs, of each window of compute that shows them."""
    c = np.log(frame.C.to_numpy(float))
    found = [best(part, rng) for _, part in frame.groupby(np.floor((c - c.min() + 0.02) / WINDOW))]
    return [f for f in found if f is not None]


def cases():
    """Group, family, runs to fit, and what is known of larger budgets."""
    rng = np.random.default_rng(0)
    for group in GROUPS:
        for family, frame in registry.GROUPS[group][1]():
            frame = frame.assign(C=(frame.C if "C" in frame else 6.0 * frame.N * frame.D))
            frame = frame.astype(float)
            for small, large in registry.cuts(frame):
                ahead = known(large, rng)
                if ahead and len(small) >= 12:
                    yield group, family, small, ahead
    for seed in range(1000, 1000 + SYNTHETIC):
        _, small, ahead = split.synthetic(seed)
        exact = [(n, np.log(loss), np.log(C)) for C, (n, loss) in ahead.items()]
        yield "well_specified", f"seed {seed}", small, exact


def measured(draws):
    """The law of every hold-out, with what its intervals of best sizes are made of."""
    rows = []
    for group, family, small, ahead in cases():
        law = al.laws.fit(small, bootstrap=draws)
        own = law.allocation
        if not own.backtested:
            continue
        top, decade = own.max_log_compute, float(np.log(10.0))
        start, later = lowest_sizes(own.law, top + np.array([0.0, decade]))[1:].T
        rows.append(
            {
                "group": group,
                "family": family,
                "law": law,
                "ahead": ahead,
                "top": top,
                "variance": float(((later - start) / decade).var()),
                "ends": lowest_sizes(own.law, np.array([top, *(c for *_, c in ahead)])),
                "backtests": allocation.size_backtests(own.law, own.member_criteria),
            }
        )
    return rows


def sizes(row, setting, level=0.95):
    """Lower end, value and upper end of each log best size, by some constants."""
    mean, sd, tau, tau_sd = setting
    error, variance, far = (list(v[:, None]) for v in row["backtests"])
    posterior = extrapolation_posterior(error, variance, far, (tau, tau_sd), allocation.TAU)
    own = allocation.Allocation(row["law"].allocation.law, backtested=True)
    own.__dict__["extrapolation_error"] = posterior
    share = row["variance"] / (sd**2 + row["variance"])
    start, out = row["ends"][:, 0], []
    growth = np.random.default_rng(0).normal(mean, sd, len(start))
    growth[0] = mean
    for (*_, c), end in zip(row["ahead"], row["ends"].T[1:], strict=True):
        moved = end + share * (growth * (c - row["top"]) - (end - start))
        found = own.size_estimate(moved, c, level)
        out.append(np.log([found.interval[0], found.value, found.interval[1]]))
    return np.array(out)


def scored(row, ends, level=0.95):
    """Coverage, error, signed error, width and interval score of a hold-out's best sizes."""
    truth = np.array([n for n, *_ in row["ahead"]])
    lo, value, hi = ends.T
    outside = np.maximum(np.maximum(lo - truth, truth - hi), 0.0)
    return {
        "group": row["group"],
        "covered": float((outside == 0).mean()),
        "error": float(np.abs(value - truth).mean()),
        "signed": float((value - truth).mean()),
        "width": float((hi - lo).mean()),
        "score": float((hi - lo + 2 / (1 - level) * outside).mean()),
    }


def chosen(rows):
    """The setting with the lowest scores on the other groups, for each group and for none.

    As for losses, the logs of the 95 and 80 % interval scores are averaged over groups.
    """
    groups = np.array([str(row["group"]) for row in rows])
    total = {g: np.zeros(len(SETTINGS)) for g in dict.fromkeys(groups)}
    for level in (0.95, 0.8):
        score = [[scored(r, sizes(r, s, level), level)["score"] for s in SETTINGS] for r in rows]
        for g in total:
            total[g] += np.log(np.array(score)[groups == g].mean(0))
    return {
        left: SETTINGS[int(np.sum([v for k, v in total.items() if k != left], axis=0).argmin())]
        for left in (*total, "none")
    }
