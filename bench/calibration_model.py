"""The hierarchical model of extrapolation error that `bench/calibrate.py` fits, in torch.

The same formulas as `allometry.laws.calibration` and `allometry.laws.intervals`, for all hold-outs
at once and differentiable in the constants. Fitted are the log density of the larger runs and the
logs of the absolute error and of the 95 and 80 % interval scores, averaged over the points of a
hold-out, the hold-outs of a group, and the groups. Each kind of family has constants of its own.
Each constant has a weak normal prior (`START`, `WIDTH`), worth one group.

Letters: c hold-outs, q points of each, f folds, r points of a fold, k kinds.
"""

import numpy as np
import torch
from scipy import special

from allometry.laws.calibration import LARGEST
from allometry.laws.calibration_table import FEW_CONFIGURATIONS
from allometry.laws.intervals import bin_shares

KINDS = ("grid", "line", "curve")
POINTS, FOLDS, HELD = 9, 6, 8
TAU = torch.exp(torch.linspace(np.log(2e-4), np.log(0.2), 13, dtype=torch.float64))
NODES = (np.arange(3) + 0.5) / 3
PRIOR_RUNS = 8
PER_E_FOLD = 0.09
"""Log error per e-fold of a law with one degree of freedom: the mean over synthetic power laws
with irreducible loss and noise of 0.3 to 3 %. No public hold-out has so few runs."""

NAMES = (
    "kappa", "rate", "kappa_sd", "own_sd", "tau", "tau_sd", "own_runs", "own_scatter", "trust",
    "draws", "per_decline", "power", "noise",
)  # fmt: skip
START = {
    "kappa": [0.0, 0.0, 0.0],
    "rate": [0.0, 0.0, 0.0],
    "kappa_sd": [0.15, 0.1, 0.25],
    "own_sd": [0.15, 0.15, 0.15],
    "tau": [0.0025, 0.001, 0.01],
    "tau_sd": [0.8, 0.6, 0.9],
    "own_runs": [8.0] * 3,
    "own_scatter": [1.0] * 3,
    "trust": [1.0, 0.5, 0.5],
    "draws": [1.0] * 3,
    "per_decline": [0.1] * 3,
    "power": [3.0] * 3,
    "noise": [0.004, 0.003, 0.003],
}
STRONG = 0.2
"""Prior standard deviation of the log of how far backtests of grids are to be believed. Its centre
is the constants of 0.9: with a weak prior, groups with accurate backtests would decide it, and
a family with misleading ones (protein models, if left out) would be covered to 0.58."""

WIDTH = {
    "tau": (STRONG, 1.5, 1.5),
    "tau_sd": (STRONG, 1.0, 1.0),
    "trust": (STRONG, 1.0, 1.0),
    "noise": (STRONG, 1.0, 1.0),
    "draws": 0.5,
    "kappa": 0.2,
    "rate": 0.004,
    "per_decline": 1.5,
    "power": 1.0,
}
"""Prior standard deviation of a constant, or of its log (1 by default), for all or each kind."""

SMOOTH = 0.003
"""Error below which the absolute error is quadratic."""

ROUNDS = 3
"""The optimiser starts so many times, each from where it stopped."""

LINEAR = ("kappa", "rate", "power")
"""Constants that are not positive by nature; of the others the log is fitted."""


def start():
    """The vector of constants to start from."""
    return _vector(START)


def _vector(values):
    out = []
    for name in NAMES:
        x = np.array(values[name], dtype=float)
        out.append(x if name in LINEAR else np.log(x))
    return np.concatenate(out)


def widths():
    return np.concatenate([np.broadcast_to(WIDTH.get(name, 1.0), len(KINDS)) for name in NAMES])


def named(theta):
    """Constants by name, from the vector: a row of three kinds each."""
    found, i = {}, 0
    for name in NAMES:
        x = theta[i : i + len(KINDS)]
        i += len(KINDS)
        if name not in LINEAR:
            x = x.exp() if isinstance(x, torch.Tensor) else np.exp(x)
        found[name] = x
    return found


def _thin(order, most):
    return order[
        np.unique(np.linspace(0, len(order) - 1, min(len(order), most)).round().astype(int))
    ]


def pack(rows):
    """The hold-outs as padded arrays.

    Each row has `group`, `kind`, `configurations`, `variables`, `noise`, `dof`,
    `irreducible` (weight of the forms with an irreducible loss), `folds`, and at
    the larger runs `error` (log loss minus average of forms), `below`, `above`, `distance`,
    `decline` and `beyond`.
    """
    n = len(rows)
    at = {
        k: np.zeros((n, POINTS))
        for k in ("error", "below", "above", "distance", "decline", "beyond")
    }
    held = {
        k: np.zeros((n, FOLDS, HELD))
        for k in ("error", "variance", "distance", "decline", "beyond")
    }
    mask, share = np.zeros((n, POINTS), bool), np.zeros((n, FOLDS, HELD))
    trained = np.zeros((n, FOLDS))
    for i, row in enumerate(rows):
        pick = _thin(np.argsort(row["distance"], kind="stable"), POINTS)
        mask[i, : len(pick)] = True
        for k in at:
            at[k][i, : len(pick)] = row[k][pick]
        for j, fold in enumerate(row["folds"][-FOLDS:]):
            pick = _thin(np.argsort(fold.distance, kind="stable"), HELD)
            whole = bin_shares(fold.distance)
            values = {
                "error": fold.error,
                "variance": fold.variance + fold.noise**2,
                "distance": fold.distance,
                "decline": np.maximum(fold.decline, 0.0),
                "beyond": fold.beyond,
            }
            for k, v in values.items():
                held[k][i, j, : len(pick)] = v[pick]
            share[i, j, : len(pick)] = whole[pick] * whole.sum() / whole[pick].sum()
            trained[i, j] = fold.trained
    dof = np.array([row["dof"] for row in rows], float) + PRIOR_RUNS
    data = {
        "at": at,
        "held": held,
        "mask": mask,
        "share": share,
        "trained": trained,
        "kind": np.array([KINDS.index(row["kind"]) for row in rows]),
        "configurations": np.array([row["configurations"] for row in rows], float),
        "free": np.array([max(r["configurations"] - r["variables"] - 1, 1) for r in rows], float),
        "noise": np.array([row["noise"] for row in rows]),
        "irreducible": np.array([row["irreducible"] for row in rows]),
        "dof": dof,
        "inflation": dof[:, None] / special.chdtri(dof[:, None], NODES),
    }
    return _tensors(data) | {"group": np.array([row["group"] for row in rows])}


def _tensors(data):
    return {k: _tensors(v) if isinstance(v, dict) else torch.as_tensor(v) for k, v in data.items()}


def subset(data, use):
    out = {}
    for k, v in data.items():
        if isinstance(v, dict):
            out[k] = {name: x[torch.as_tensor(use)] for name, x in v.items()}
        else:
            out[k] = v[torch.as_tensor(use)] if isinstance(v, torch.Tensor) else v[use]
    return out


def posterior(data, c):
    """Mean and variance of each family's kappa given its backtests."""
    held, kind = data["held"], data["kind"]
    few = (1 + c["own_runs"][kind] / data["configurations"]) ** 2
    excess = c["own_sd"][kind] ** 2 * few
    noise = held["variance"] + (c["tau"][kind][:, None, None] * held["distance"]) ** 2
    weight = data["share"] / noise.clamp_min(1e-8)
    precision = (weight * held["decline"] ** 2).sum(2)
    known = precision > 1e-6
    safe = precision.clamp_min(1e-6)
    rate = c["rate"][kind] * data["irreducible"]
    rest = held["error"] + rate[:, None, None] * held["beyond"]
    slope = (-(weight * held["decline"] * rest).sum(2) / safe).clamp(-LARGEST, LARGEST)
    w = torch.where(known, data["trained"] / (1 / safe + excess[:, None]), 0.0)
    total = w.sum(1)
    has = total > 0
    w = w / torch.where(has, total, 1.0)[:, None]
    own = (w * slope).sum(1)
    variance = (w / safe).sum(1) + excess
    variance = variance + few * c["own_scatter"][kind] * (w * (slope - own[:, None]) ** 2).sum(1)
    prior = c["kappa_sd"][kind] ** 2
    share = torch.where(has, prior / (prior + variance), 0.0)
    mean = c["kappa"][kind]
    return mean + share * (own - mean), prior * (1 - share)


def tau_weights(data, c, kappa, variance):
    """Posterior of the further error per e-fold."""
    held, kind = data["held"], data["kind"]
    log = -0.5 * ((TAU.log() - c["tau"][kind].log()[:, None]) / c["tau_sd"][kind][:, None]) ** 2
    error = held["error"] + kappa[:, None, None] * held["decline"]
    rate = c["rate"][kind] * data["irreducible"]
    error = error + rate[:, None, None] * held["beyond"]
    known = held["variance"] + variance[:, None, None] * held["decline"] ** 2
    total = known[..., None] + (TAU * held["distance"][..., None]) ** 2 + 1e-12
    each = -0.5 * (total.log() + error[..., None] ** 2 / total) * data["share"][..., None]
    return torch.softmax(log + c["trust"][kind][:, None] * each.sum((1, 2)), 1)


def errors(theta, data):
    """Errors of the corrected predictions, scales of their mixture below and above, weights."""
    c, at, kind = named(theta), data["at"], data["kind"]
    kappa, variance = posterior(data, c)
    weight = tau_weights(data, c, kappa, variance)
    noise = (data["dof"] - PRIOR_RUNS) * data["noise"] ** 2 + PRIOR_RUNS * c["noise"][kind] ** 2
    noise = (noise / data["dof"])[:, None]
    error = at["error"] + kappa[:, None] * at["decline"]
    rate = c["rate"][kind] * data["irreducible"]
    error = error + rate[:, None] * at["beyond"]
    free = data["free"][:, None]
    few = (PER_E_FOLD * at["distance"] / free ** c["power"][kind][:, None]) ** 2
    few = few + (c["per_decline"][kind][:, None] * at["decline"] / free**1.5) ** 2
    extra = few + variance[:, None] * at["decline"] ** 2 + noise
    beyond = (TAU * at["distance"][..., None, None]) ** 2
    inflation = data["inflation"][:, None, :, None]
    share = data["configurations"] / (data["configurations"] + FEW_CONFIGURATIONS)
    # Ladders and curves have too few runs to tell draws that are too wide from few runs.
    share = c["draws"][kind].log() * share * (kind == KINDS.index("grid"))
    counted = torch.exp(share[:, None] * at["distance"].clamp(max=1.0))
    sides = [
        ((at[side] * counted + extra)[..., None, None] * inflation + beyond).sqrt().flatten(2)
        for side in ("below", "above")
    ]
    weight = (weight / len(NODES))[:, None].expand(-1, len(NODES), -1).flatten(1)
    return error, *sides, weight[:, None]


def half_width(scale, weight, level):
    """Half-width that covers with probability `level`, differentiable by one Newton step."""
    target = 0.5 + level / 2

    def step(half, scale, weight):
        z = half[..., None] / scale
        short = target - (torch.special.ndtr(z) * weight).sum(-1)
        slope = (torch.exp(-0.5 * z**2) / scale * weight).sum(-1) / np.sqrt(2 * np.pi)
        return short, slope.clamp_min(1e-300)

    with torch.no_grad():
        half = special.ndtri(target) * scale.amin(-1)
        for _ in range(14):
            short, slope = step(half, scale, weight)
            half = half + torch.minimum(short.clamp_min(0.0) / slope, half)
        slope = step(half, scale, weight)[1]
    return half + step(half, scale, weight)[0] / slope


def score(theta, data, share):
    """Mean over groups of the negative log density and the logs of error and interval scores."""
    error, below, above, weight = errors(theta, data)
    scale = torch.where((error < 0)[..., None], below, above)
    density = (torch.exp(-0.5 * (error[..., None] / scale) ** 2) / scale * weight).sum(-1)
    count = data["mask"].sum(1)

    def mean(x):
        """Mean of each group."""
        return share @ ((x * data["mask"]).sum(1) / count)

    total = mean(-torch.log(density.clamp_min(1e-9)))
    # Smooth at an error of 0: the optimiser stops at kinks.
    total = total + torch.log(mean((error**2 + SMOOTH**2).sqrt()))
    for level in (0.95, 0.8):
        lo, hi = half_width(below, weight, level), half_width(above, weight, level)
        outside = torch.relu(error - hi) + torch.relu(-error - lo)
        total = total + torch.log(mean(lo + hi + 2 / (1 - level) * outside))
    return total.mean()


def fit(data, others=None, iterations=60, kinds=None):
    """The constants that predict the larger runs of all groups best, each kind by its own groups.

    Args:
        data: The hold-outs.
        others: Constants of the kinds that are not fitted.
        iterations: Steps of each round of the optimiser.
        kinds: Indices of the kinds to fit. Default: all.
    """
    theta = np.array(start() if others is None else others)
    for k in np.unique(data["kind"]) if kinds is None else kinds:
        own = np.arange(len(theta)) % len(KINDS) == k
        part = subset(data, (data["kind"] == k).numpy())
        theta[own] = _fit(part, iterations)[own]
    return theta


def _fit(data, iterations):
    names = data["group"]
    groups = np.unique(names)
    share = torch.as_tensor(np.stack([(names == g) / (names == g).sum() for g in groups]))
    centre, width = torch.as_tensor(start()), torch.as_tensor(widths())
    z = torch.zeros_like(centre).requires_grad_()

    def closure():
        optimiser.zero_grad()
        loss = score(centre + width * z, data, share) + 0.5 * (z**2).sum() / len(groups)
        loss.backward()
        return loss

    for _ in range(ROUNDS):
        optimiser = torch.optim.LBFGS(
            [z], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-7
        )
        optimiser.step(closure)
    return (centre + width * z).detach().numpy()


def table(theta):
    """The entries of the package's table."""
    c = named(theta)
    kinds = {k: {n: round(float(c[n][i]), 5) for n in NAMES} for i, k in enumerate(KINDS)}
    for kind in KINDS:
        if kind != "grid":
            kinds[kind]["draws"] = 1.0
    # Slopes of learning curves break more often than those of grids.
    kinds["curve"]["tau"] = max(kinds["curve"]["tau"], round(1.01 * kinds["grid"]["tau"], 5))
    return {"kinds": kinds, "per_e_fold": PER_E_FOLD, "noise_runs": PRIOR_RUNS}
