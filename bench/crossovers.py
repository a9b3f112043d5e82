"""Pairs of families whose losses cross beyond the runs fitted, for `bench/calibrate_answers.py`.

Families of one key (one data set, task or text) are comparable. Both are cut at the same value of
their variable, and laws are fitted to the runs below. The true crossover is where the losses of
all runs, interpolated on log scales, change their order. Pairs whose order changes once beyond the
cut have a known crossover. Pairs whose order never changes have none up to the last run. All
others (several changes, or one among the runs fitted) are left out. Synthetic pairs of additive
laws on grids have an exact crossover of their frontiers.
"""

import itertools
import zlib

import coverage
import families_registry as registry
import holdouts
import numpy as np
import pandas as pd

import allometry as al

FAMILIES, KEYS = 6, 14
"""At most so many families of one key, and keys of one group."""

SYNTHETIC = 8


def some(names, most):
    """At most so many names, by their hash."""
    return sorted(names, key=lambda s: zlib.crc32(str(s).encode()))[:most]


def tables():
    """Group, variable and a frame of key, name, variable and loss."""
    drugs = registry.families("drug_response_learning_curves").dropna(subset=["loss"])
    drugs = drugs.groupby(["dataset", "model", "D"], as_index=False).loss.mean()
    yield "drug_response", "D", drugs.rename(columns={"dataset": "key", "model": "name"})
    tuned = registry.families("finetuning_rectified")
    tuned = tuned[tuned.D > 0].rename(columns={"dataset": "key", "model": "name"})
    yield "fine_tuning", "D", tuned
    learners = registry.families("lcdb11_test_error_half")
    yield "lcdb", "D", learners.rename(columns={"dataset": "key", "learner": "name"})
    folder = holdouts.DATA / "google_learning_curves"
    curves = pd.concat([pd.read_csv(p) for p in sorted(folder.glob("benchmark.*.csv"))])
    curves = curves.rename(columns={"Seen Examples": "D", "Loss": "loss", "Task": "key"})
    curves = curves.rename(columns={"Model": "name"})
    for group, domain in (("image_curves", "IC"), ("translation_curves", "NMT")):
        yield group, "D", curves[domain == curves.Domain]
    arms = registry.families("ab_qlabs_loop_ladders").assign(key="arms")
    yield "qlabs", "C", arms.rename(columns={"recipe": "name"})
    routed = [f.assign(key="routing", name=n) for n, f in holdouts.ladders()]
    yield "routing", "N", pd.concat(routed)
    texts = registry.families("ab_llmline_pythia_vs_mamba")
    texts = texts.sort_values("D").groupby(["family", "N"], as_index=False).last()
    texts = texts.drop(columns="name")
    yield "pythia", "N", texts.rename(columns={"eval": "key", "recipe": "name"})
    mlp = registry.best(registry.families("teacher_student_mlp"), "family", "N", "D")
    yield "teacher_student", "C", mlp.assign(key="students", name=mlp.family)
    clip = registry.best(registry.families("ab_laion_clip_vs_mammut"), "family", "N", "D")
    yield "laion", "C", clip.assign(key="segmentation", name=clip.family)


def keys():
    """Group, variable, key and the runs of each name."""
    for group, variable, frame in tables():
        frame = frame[["key", "name", *("NDC" if variable == "C" else variable), "loss"]].dropna()
        frame = frame[frame.loss > 0]
        for key in some(frame.key.unique(), KEYS):
            part = frame[frame.key == key]
            runs = {n: p.drop(columns=["key", "name"]).astype(float).sort_values(variable)
                    for n, p in part.groupby("name")}  # fmt: skip
            runs = {n: runs[n] for n in some(runs, FAMILIES) if len(runs[n]) >= 6}
            if len(runs) > 1:
                yield group, variable, key, runs


def line(frame, variable):
    """Logs of the variable and of the lowest loss up to there (of the loss itself on a curve)."""
    frame = frame.groupby(variable, as_index=False).loss.min()
    loss = np.minimum.accumulate(frame.loss) if variable == "C" else frame.loss
    return np.log(frame[variable].to_numpy(float)), np.log(np.asarray(loss, float))


def crossing(first, second, cut):
    """Whether the first leads at the cut, and the log crossover (infinite if none is seen).

    None if the order changes among the runs fitted or more than once.
    """
    low, high = max(first[0][0], second[0][0]), min(first[0][-1], second[0][-1])
    x = np.unique(np.concatenate([first[0], second[0], [cut]]))
    x = x[(x >= low) & (x <= high)]
    if not len(x) or not low <= cut < high:
        return None
    gap = np.interp(x, *first) - np.interp(x, *second)
    change = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
    leads = bool(gap[np.searchsorted(x, cut)] < 0)
    if len(change) == 0:
        return leads, np.inf, high
    i = change[0]
    at = x[i] + (x[i + 1] - x[i]) * gap[i] / (gap[i] - gap[i + 1])
    return (leads, float(at), high) if len(change) == 1 and at > cut else None


def measured(draws):
    """Laws of both families of every pair with a known answer, the leader at the cut first."""
    rows = []
    for group, variable, key, runs in keys():
        lines = {n: line(f, variable) for n, f in runs.items()}
        top = np.median([x[-1] for x, _ in lines.values()])
        span = top - np.median([x[0] for x, _ in lines.values()])
        for part in (0.5, 0.7):
            cut, laws = top - (1 - part) * span, {}
            for pair in itertools.combinations(runs, 2):
                truth = crossing(*(lines[n] for n in pair), cut)
                if truth is None:
                    continue
                for n in pair:
                    if n not in laws:
                        laws[n] = fitted(runs[n][np.log(runs[n][variable]) <= cut + 1e-9], draws)
                if any(laws[n] is None for n in pair):
                    continue
                leads, at, last = truth
                order = pair if leads else pair[::-1]
                row = {"group": group, "key": str(key), "variable": variable, "cut": cut}
                rows.append(row | {"laws": [laws[n] for n in order], "at": at, "last": last})
    return rows + [synthetic(seed, draws) for seed in range(3000, 3000 + SYNTHETIC)]


def synthetic(seed, draws):
    """Two grids of additive laws whose frontiers cross at 3 to 30 times the compute fitted."""
    rng = np.random.default_rng(seed)
    N, D = (
        g.reshape(-1) for g in np.meshgrid(np.geomspace(1e6, 1e8, 8), np.geomspace(1e8, 1e10, 8))
    )
    top = float(np.log(6 * N * D).max())
    at = top + rng.uniform(np.log(3), np.log(30))
    pair = [coverage.synthetic_law(rng) for _ in range(2)]
    low = [optimum(law, np.array([at, at - 3.0])) for law in pair]
    # The second law is scaled to be equal there; the one that falls faster is behind before.
    scale = low[0][0] / low[1][0]
    made = []
    for (E, A, alpha, B, beta), factor in zip(pair, (1.0, scale), strict=True):
        loss = factor * (E + A / N**alpha + B / D**beta)
        loss = loss * np.exp(0.003 * rng.standard_normal(len(N)))
        runs = pd.DataFrame({"N": N, "D": D, "C": 6 * N * D, "loss": loss})
        made.append(al.laws.fit(runs, bootstrap=draws))
    leads = low[0][1] < scale * low[1][1]
    return {"group": "well_specified", "key": f"seed {seed}", "variable": "C", "cut": top,
            "laws": made if leads else made[::-1], "at": float(at), "last": at + 10.0}  # fmt: skip


def optimum(law, c):
    """The lowest loss of an additive law at each log compute."""
    E, A, alpha, B, beta = law
    N = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (np.exp(c) / 6) ** (
        beta / (alpha + beta)
    )
    return E + A / N**alpha + B / (np.exp(c) / 6 / N) ** beta


def fitted(small, draws):
    """The law of the runs below the cut; None if they are too few."""
    if len(small) < 4 or float(np.ptp(small.loss)) == 0:
        return None
    try:
        return al.laws.fit(small, bootstrap=draws)
    except al.InputError:
        return None


def scored(row, found):
    """Whether the interval agrees with the runs, its width and the error of its value."""
    lo, hi = (float(np.log(v)) if np.isfinite(v) else np.inf for v in found.interval)
    value = float(np.log(found.value)) if np.isfinite(found.value) else np.inf
    crosses = np.isfinite(row["at"])
    covered = lo <= row["at"] <= hi if crosses else hi >= row["last"]
    # Beyond the last run nothing is known, so widths and errors end there.
    lo, value, hi, at = (min(v, row["last"]) for v in (lo, value, hi, row["at"]))
    return {
        "group": row["group"],
        "crosses": crosses,
        "covered": float(covered),
        "error": abs(value - at),
        "width": max(hi - max(lo, row["cut"]), 0.0) / (row["last"] - row["cut"]),
    }
