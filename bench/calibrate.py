"""Learn the table of extrapolation error across public families, and judge it on each left out.

Every family of `bench/families_registry.py` is cut at several computes. The runs below a cut are
fitted with `auto`; the runs at three times its compute or more are predicted. The constants of
`allometry.laws.calibration_table` are fitted to the errors of all groups but one
(`bench/calibration_model.py`) and judged on that one: no group has a say in its own figures. The
table that is written with `--write` is fitted to all groups.

Baselines: (a) `auto` of 0.9, with its forms and constants and no correction; (b) a pairs
bootstrap of the additive law (or of a power law with irreducible loss) with residual noise;
(c) the same, with widths scaled by a constant of the other groups; (d) `auto` of 0.9 less the mean
slope of its error per decade of compute over the other groups, with the spread of slopes and of
residuals as width.

Run: `python bench/calibrate.py [--draws 100] [--cache FILE] [--write] [--json FILE]`
"""

import argparse
import contextlib
import copy
import hashlib
import json
import pickle
import time
from dataclasses import replace
from pathlib import Path

import calibration_model as model
import families_registry as registry
import needs
import numpy as np
import pandas as pd

import allometry as al
from allometry.laws import calibration_table, fitting, selection
from allometry.laws.backtests import distance, error_prior, extrapolation_error
from allometry.laws.calibration import UNCALIBRATED, calibrate, irreducible_weight
from allometry.laws.coupled_forms import Coupled, Kaplan
from allometry.laws.forms import chinchilla
from allometry.laws.frontier_form import Frontier
from allometry.laws.objective import FORECAST, SPREAD

DECADE = float(np.log(10.0))
BEFORE = {
    "kinds": {
        "grid": {"tau": 0.0025, "tau_sd": 0.8, "trust": 1.0, "draws": 1.0},
        "line": {"tau": 0.001, "tau_sd": 0.6, "trust": 1.0},
        "curve": {"tau": 0.015, "tau_sd": 0.9, "trust": 1.0},
    }
}
"""The constants before any calibration across families."""


def measured(draws):
    """The law of each hold-out with the larger runs."""
    for group, (modality, load) in registry.GROUPS.items():
        for family, frame in load():
            for small, large in registry.cuts(frame):
                if float(np.ptp(small.loss)) == 0:  # nothing to fit
                    continue
                law = al.laws.fit(small, bootstrap=draws)
                before = law
                if registry.kind(small) == "grid":
                    with forms_before():
                        before = al.laws.fit(small, bootstrap=draws)
                points = {k: large[k].to_numpy(float) for k in "NDC" if k in large}
                row = {"group": group, "modality": modality, "family": family, "law": law}
                row |= {
                    "before": before,
                    "points": points,
                    "truth": np.log(large.loss.to_numpy(float)),
                }
                yield row | {"named": named_forms(small, points, draws)}


@contextlib.contextmanager
def forms_before():
    """`auto` as in 0.9: the additive form in place of the frontier forms, one weight of runs."""
    candidates, objective = selection.candidates, fitting._auto_objective

    def earlier(table, x=None):
        found = candidates(table, x)
        grid = any(isinstance(form, Frontier) for form in found)
        return [found[0], Kaplan(), chinchilla(), Coupled()] if grid else found

    selection.candidates = earlier
    fitting._auto_objective = lambda table, grid, *rest: SPREAD if grid else FORECAST
    try:
        yield
    finally:
        selection.candidates, fitting._auto_objective = candidates, objective


def named_forms(small, points, draws):
    """Log predictions of named forms; the first has the ends of a pairs bootstrap."""
    law = al.laws.fit(small, "power", bootstrap=0)
    plane = registry.kind(small) == "grid" and law.table.configurations >= 7
    found = {}
    for name in ("chinchilla", "coupled", "kaplan", "tied") if plane else ("floor",):
        first = not found
        with contextlib.suppress(al.InputError):
            law = al.laws.fit(
                small, name, bootstrap=draws if first else 0, resample="pairs", starts=16
            )
            logs, _ = law.points(points)
            found[name] = {"mid": law.average(logs), "decline": law.beyond_runs(logs)[0]}
            if first:
                curves = law.curves(logs)[1:]
                noise = law.noise * np.random.default_rng(0).standard_normal(curves.shape)
                ends = np.quantile(curves + noise, [0.025, 0.1, 0.9, 0.975], axis=0)
                found["baseline"] = {"mid": law.average(logs), "ends": ends}
    return found


def features(row):
    """What the model needs to know of a hold-out."""
    law = row["law"]
    logs, _ = law.points(row["points"])
    mid, below, above = law._spread(logs)
    far = np.stack([distance(m.form, logs, law.table.logs) for m in law.members]).max(0)
    order = next(v for v in "CND" if law.table.varies(v))
    given = np.log(row["points"][order]) if order in row["points"] else logs[order]
    return {
        "group": row["group"],
        "kind": calibrate([], law.table).kind,
        "configurations": law.table.configurations,
        "variables": len(law.variables),
        "noise": law.noise,
        "dof": law.dof,
        "irreducible": irreducible_weight(law.members),
        "folds": law.folds,
        "mid": mid,
        "error": row["truth"] - mid,
        "below": below,
        "above": above,
        "distance": far,
        "decline": law.beyond_runs(logs)[0],
        "beyond": law.beyond_runs(logs)[1],
        "decades": (given - law.table.logs[order].max()) / DECADE,
    }


@contextlib.contextmanager
def constants(table):
    """The package with other constants."""
    kept = copy.deepcopy(calibration_table.TABLE)
    calibration_table.TABLE.update(copy.deepcopy(table))
    for kind, entry in calibration_table.TABLE["kinds"].items():
        calibration_table.TABLE["kinds"][kind] = kept["kinds"][kind] | entry
    yield
    calibration_table.TABLE.update(kept)


def recalibrated(law, calibrated=True):
    """The law with intervals by the current constants."""
    folds = list(law.folds)
    weight = irreducible_weight(law.members)
    own = calibrate(folds, law.table, irreducible=weight) if calibrated else UNCALIBRATED
    error = extrapolation_error(folds, error_prior(law.table), own)
    return replace(law, calibration=own, extrapolation_error=error)


def bands(row, calibrated=True):
    """Lower ends, centre and upper ends of the 95 and 80 % intervals, by the current constants."""
    law = recalibrated(row["law"], calibrated)
    logs, _ = law.points(row["points"])
    (lo, mid, hi), (low, _, high) = law.log_band(logs), law.log_band(logs, 0.8)
    return {"lo": lo, "low": low, "mid": mid, "high": high, "hi": hi}


def leave_one_out(rows, data):
    """Bands of every hold-out by constants of the other groups."""
    groups = data["group"]
    whole, tables = left_out(data)
    out = [None] * len(rows)
    for g, table in tables.items():
        with constants(table):
            for i in np.flatnonzero(groups == g):
                out[i] = bands(rows[i])
    return whole, out


def left_out(data):
    """The constants of all groups, and the table without each group."""
    groups = data["group"]
    whole = model.fit(data)
    tables = {}
    for g in np.unique(groups):
        kinds = np.unique(data["kind"][groups == g])
        rest = model.subset(data, groups != g)
        tables[g] = model.table(model.fit(rest, whole, kinds=kinds))
    return whole, tables


def pairs_bootstrap(rows):
    out = []
    for row in rows:
        b = row["named"].get("baseline")
        if b is None:  # no such form for so few runs
            b = {"mid": np.full(len(row["truth"]), np.nan), "ends": np.full((4, 1), np.nan)}
        lo, low, high, hi = b["ends"] + 0 * b["mid"]
        out.append({"lo": lo, "low": low, "mid": b["mid"], "high": high, "hi": hi})
    return out


def scaled(rows, bands_of, groups):
    """Widths times the constant that gives 95 % coverage on the other groups."""
    ratio = [
        np.abs(r["truth"] - b["mid"]) / np.maximum((b["hi"] - b["lo"]) / 2, 1e-9)
        for r, b in zip(rows, bands_of, strict=True)
    ]
    out = []
    for i, b in enumerate(bands_of):
        other = [k for k in np.unique(groups) if k != groups[i]]
        each = [_quantile(np.concatenate([ratio[j] for j in np.flatnonzero(groups == k)]))
                for k in other]  # fmt: skip
        factor = float(np.nanmedian(each))
        out.append({k: b["mid"] + factor * (v - b["mid"]) for k, v in b.items()})
    return out


def _quantile(x):
    x = x[np.isfinite(x)]
    return np.quantile(x, 0.95) if len(x) else np.nan


def pooled_slope(found):
    """The naive correction: the other groups' mean slope per decade, by kind."""
    slope, rest = [], []
    for f in found:
        u, e = np.maximum(f["decades"], 0.0), -f["error"]
        slope.append(float(u @ e / (u @ u)) if (u @ u) > 0 else 0.0)
        rest.append(float(np.sqrt(np.mean((e - slope[-1] * u) ** 2))))
    frame = pd.DataFrame({"slope": slope, "rest": rest})
    frame["group"] = [f["group"] for f in found]
    frame["kind"] = [f["kind"] for f in found]
    each = frame.groupby(["kind", "group"], as_index=False)[["slope", "rest"]].mean()
    out = []
    for f in found:
        other = each[(each.kind == f["kind"]) & (each.group != f["group"])]
        u = np.maximum(f["decades"], 0.0)
        mid = f["mid"] - other.slope.mean() * u
        sd = np.hypot(other.slope.std() * u, other.rest.mean())
        out.append({"mid": mid} | {k: mid + z * sd for k, z in _NORMAL.items()})
    return out


_NORMAL = {"lo": -1.96, "low": -1.2816, "high": 1.2816, "hi": 1.96}


def judged(rows, found, bands_of):
    """One line per hold-out: coverage, scores, errors and width, in log loss."""
    lines = []
    for row, f, b in zip(rows, found, bands_of, strict=True):
        y, half = row["truth"], (b["hi"] - b["lo"]) / 2
        outside = np.maximum(np.maximum(b["lo"] - y, y - b["hi"]), 0.0)
        outer = np.maximum(np.maximum(b["low"] - y, y - b["high"]), 0.0)
        pinball = (b["hi"] - b["lo"] + 40 * outside) * 0.025
        pinball = pinball + (b["high"] - b["low"] + 10 * outer) * 0.1 + np.abs(y - b["mid"])
        lines.append(
            {
                "group": row["group"],
                "modality": row["modality"],
                "family": row["family"],
                "kind": f["kind"],
                "n": row["law"].n,
                "covered": float((outside == 0).mean()),
                "covered 80": float((outer == 0).mean()),
                "score": float((2 * half + 40 * outside).mean()),
                "crps": float(pinball.mean() / 2.5),
                "signed": float((b["mid"] - y).mean()),
                "absolute": float(np.abs(b["mid"] - y).mean()),
                "width": float(np.median(2 * half)),
                "decades": float(np.median(f["decades"])),
            }
        )
    return pd.DataFrame(lines)


def by_group(frame):
    numbers = ["covered", "covered 80", "score", "crps", "signed", "absolute", "width"]
    return frame.groupby("group")[numbers].mean()


def describe(name, frame, ours=None):
    g = by_group(frame).dropna()
    text = (
        f"{name:28s} coverage {g.covered.mean():.3f} (worst {g.covered.min():.2f} "
        f"{g.covered.idxmin()}), 80 %: {g['covered 80'].mean():.3f}, score "
        f"{g.score.median():.4f}, CRPS {g.crps.median():.4f}, signed {g.signed.median():+.2%}, "
        f"absolute {g.absolute.median():.2%}, width {g.width.median():.2%}"
    )
    if ours is not None:
        o = by_group(ours).loc[g.index]
        text += f"; our score / its: {(o.score / g.score).median():.3f}"
    return text


def spec_measure(rows, found, frames):
    """The measure of the fixed cuts: 40 and 60 % of the runs of grids of losses."""
    out = {}
    for name, frame in frames.items():
        part = frame[frame.spec & frame.group.isin(SPEC)]
        g = by_group(part)
        out[name] = (
            f"coverage {g.covered.mean():.3f}, width {g.width.median():.2%}, "
            f"absolute {g.absolute.mean():.2%}, signed {g.signed.mean():+.2%}"
        )
    return out


SPEC = ("oellm", "protein", "chinchilla", "llama3", "misfitting", "gadre", "olmo", "gemstones")


def digest(found):
    """A hash of the errors that the table is learnt from, to nine digits."""
    text = json.dumps([[f["group"], [f"{e:.6g}" for e in f["error"]]] for f in found])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(theta, rows, found):
    """Write the package's table."""
    table = model.table(theta)
    for kind, entry in table["kinds"].items():
        far = [float(np.max(f["beyond"])) for f in found if f["kind"] == kind]
        entry["reach"] = round(float(np.quantile(far, 0.9)), 2)
    groups = sorted({row["group"] for row in rows})
    head = {
        "version": time.strftime("%Y.%m.%d"),
        "groups": groups,
        "cuts": len(rows),
        "hash": digest(found),
    }
    path = Path(calibration_table.__file__).with_suffix(".json")
    whole = head | table | {"named": named_biases(rows, found)}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def named_biases(rows, found):
    """Mean and spread of kappa between groups for forms asked for by name."""
    each = []
    for row, f in zip(rows, found, strict=True):
        for name, fit in row["named"].items():
            if name == "baseline":
                continue
            d, e = np.maximum(fit["decline"], 0.0), fit["mid"] - row["truth"]
            slope = float(d @ e / (d @ d)) if (d @ d) > 1e-6 else 0.0
            each.append({"kind": f["kind"], "form": name, "group": row["group"],
                         "kappa": np.clip(slope, -1.0, 1.0)})  # fmt: skip
    frame = pd.DataFrame(each).groupby(["kind", "form", "group"]).kappa.median()
    out = {}
    for (kind, form), part in frame.groupby(level=[0, 1]):
        if len(part) >= 4:
            spread = 1.4826 * float((part - part.median()).abs().median())
            out.setdefault(str(kind), {})[str(form)] = {
                "kappa": round(float(part.median()), 4),
                "kappa_sd": round(max(spread, 0.02), 4),
            }
    return out


def cached(path, make):
    """What the file holds; made and kept there if it does not exist."""
    file = Path(path) if path else None
    if file is not None and file.exists():
        return pickle.loads(file.read_bytes())
    made = make()
    if file is not None:
        file.write_bytes(pickle.dumps(made))
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--cache", help="keep the fits in this file")
    parser.add_argument("--write", action="store_true", help="write the package's table")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = cached(options.cache, lambda: list(measured(options.draws)))
    found = [features(row) for row in rows]
    data = model.pack(found)
    theta, ours = leave_one_out(rows, data)
    earlier = [row | {"law": row["before"]} for row in rows]
    with constants(BEFORE):
        before = [bands(row, calibrated=False) for row in earlier]
        uncorrected = [bands(row, calibrated=False) for row in rows]
    plain = pairs_bootstrap(rows)
    frames = {
        "calibrated, left out": judged(rows, found, ours),
        "without correction": judged(rows, found, uncorrected),
        "(a) before": judged(rows, found, before),
        "(b) pairs bootstrap": judged(rows, found, plain),
        "(c) the same, scaled": judged(rows, found, scaled(rows, plain, data["group"])),
        "(d) pooled slope": judged(rows, found, pooled_slope([features(r) for r in earlier])),
    }
    quantile = spec_rows(rows)
    for frame in frames.values():
        frame["spec"] = quantile
    first = frames["calibrated, left out"]
    pd.set_option("display.width", 200)
    both = by_group(first).join(by_group(frames["(a) before"]).add_suffix(" before"))
    print((both * 100).round(1).to_string())
    for name, frame in frames.items():
        print(describe(name, frame, first))
    for kind in model.KINDS:
        for name, frame in frames.items():
            print(kind, describe(name, frame[frame.kind == kind], first[first.kind == kind]))
    for name, text in spec_measure(rows, found, frames).items():
        print(f"fixed cuts {name:28s} {text}")
    print(json.dumps(model.table(theta)))
    if options.json:
        both = pd.concat([f.assign(method=n) for n, f in frames.items()])
        both.to_json(options.json, orient="records", lines=True)
    if options.write:
        write(theta, rows, found)


def spec_rows(rows):
    """Whether a hold-out is a grid cut at about 40 or 60 % of its runs."""
    seen, out = {}, []
    for row in rows:
        key = row["group"], row["family"]
        seen[key] = seen.get(key, -1) + 1
        out.append(seen[key] in (1, 2))
    return out


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        needs.run(main, needs.DATA)
