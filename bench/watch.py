"""Forecasts of the final loss while training: coverage, error and wrong stops on public logs.

    python bench/watch.py [--data ../shared/data] [--choose]

Every curve is cut at 25, 50 and 75 % of its training. The forecast sees the part before the cut
and the total number of steps. Without a learning-rate schedule in the data, it gets none.

Sources by group (record, task or model; the half is the parity of the CRC of the group's name):

    chosen on    speed runs (modded-nanogpt), RNN tasks (TaskSet) and misfitting, one half of the
                 groups each; with a schedule: multi-power-law curves of 25M and 100M, half of
                 Gemstones
    reported on  the other halves; OLMo's ladder and routed models, never used for a choice; with
                 a schedule: multi-power-law curves of 400M

`--choose` fits the constants of `laws/forecast_constants.py` on the first group and prints them.
"""

import argparse
import gzip
import io
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import needs
import numpy as np
from scipy import optimize, stats

from allometry.laws import forecast_constants, monitoring
from allometry.laws.training_forecast import forecast, points, predicted, trend_of

DECAY = 0.3
CUTS = (0.25, 0.5, 0.75)
CHOOSE_CUTS = (0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.9)
SHARES = {"speed runs": 1.0, "RNN tasks": 1.0, "misfitting": 0.5}


@dataclass
class Curve:
    """A training: its source, its group, and its losses."""

    source: str
    group: str
    step: np.ndarray
    loss: np.ndarray
    total: float
    schedule: object = None

    @property
    def half(self):
        """0 or 1 by the group's name."""
        return zlib.crc32(self.group.encode()) % 2

    @property
    def chosen_on(self):
        """Whether constants are chosen on this curve."""
        if self.source in ("OLMo ladder", "routed"):
            return False
        if self.source == "multi-power law":
            return not self.group.startswith("400M")
        return self.half == 0

    def before(self, cut):
        """The points up to a share of the training."""
        return self.step <= cut * self.total


def table(path, columns):
    """Columns of a CSV file as lists of strings."""
    import csv

    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    return [[row[c] for c in columns] for row in rows]


def grouped(rows, keys):
    """Rows by their first `keys` cells; the others as numbers."""
    found = defaultdict(list)
    for row in rows:
        if all(cell != "" for cell in row):
            found[tuple(row[:keys])].append([float(cell) for cell in row[keys:]])
    return {key: np.array(sorted(cells)) for key, cells in found.items()}


def load(data):
    """The curves of all sources."""
    curves = []
    names = ["record", "run", "step", "total_steps", "val_loss"]
    for (record, _), x in grouped(
        table(data / "modded_nanogpt/curves_half.csv", names), 2
    ).items():
        curves.append(Curve("speed runs", record, x[:, 0], x[:, 2], x[0, 1]))
    names = ["task", "family", "D", "loss"]
    for (task, _), x in grouped(
        table(data / "families/taskset_curves_half.csv", names), 2
    ).items():
        curves.append(Curve("RNN tasks", task, x[:, 0], x[:, 1], x[-1, 0]))
    names = ["model", "peak_lr", "sweep", "total_steps", "current_steps", "loss"]
    for key, x in grouped(table(data / "misfitting/scaling_results.csv", names), 4).items():
        _, keep = np.unique(x[:, 0], return_index=True)
        if x[-1, 0] >= 0.99 * float(key[3]):
            curves.append(Curve("misfitting", key[0], x[keep, 0], x[keep, 1], float(key[3])))
    names = ["model_size_label", "hyper_id", "step", "loss_validation"]
    for (size, _), x in grouped(table(data / "routing_unified/curves.csv.gz", names), 2).items():
        curves.append(Curve("routed", size, x[:, 0], x[:, 1], x[-1, 0]))
    for path in sorted((data / "olmo_ladder/ladder-runs").glob("*xC*.csv")):
        names = ["_step", "eval/c4_en-validation/CrossEntropyLoss"]
        x = grouped(table(path, names), 0)[()]
        curves.append(Curve("OLMo ladder", path.stem.split("-")[0], x[:, 0], x[:, 1], x[-1, 0]))
    for size in (25, 100, 400):
        for path in sorted((data / f"multipowerlaw/loss_curve_repo/csv_{size}").glob("*.csv")):
            x = grouped(table(path, ["step", "lr", "loss"]), 0)[()]
            given = np.append(0.0, x[:, 0]), np.append(0.0, x[:, 1])
            grid = np.linspace(0, x[-1, 0], 4097)
            rate = np.interp(grid, *given)
            group = f"{size}M {path.stem}"
            curves.append(Curve("multi-power law", group, x[:, 0], x[:, 2], x[-1, 0], rate))
    names = ["run_name", "step", "final_loss"]
    for (run,), x in grouped(table(data / "gemstones/hot_100b.csv", names), 1).items():
        curves.append(Curve("Gemstones", run, x[:, 0], x[:, 1], x[-1, 0], "constant"))
    return [c for c in curves if np.isfinite(c.loss).all() and (c.loss > 0).all()]


def trends(curves, cuts):
    """Trend, final log loss, source, group and cut of every curve and cut with two points."""
    rows = []
    for curve in curves:
        for cut in cuts:
            seen = curve.before(cut)
            if (curve.step[seen] > 0).sum() >= 2:
                at, loss = points(curve.step[seen], curve.loss[seen], curve.total)
                trend = trend_of(at, loss, curve.total, curve.schedule)
                rows.append((trend, np.log(curve.loss[-1]), curve.source, curve.group, cut))
    return rows


def weights(rows):
    """Equal weight to each source's share, less to each of many replicas of a group."""
    count = defaultdict(int)
    for row in rows:
        count[row[2:4]] += 1
    raw = np.array([count[row[2:4]] ** -0.5 for row in rows])
    total = defaultdict(float)
    for row, w in zip(rows, raw, strict=True):
        total[row[2]] += w
    return np.array(
        [w * SHARES.get(row[2], 1.0) / total[row[2]] for row, w in zip(rows, raw, strict=True)]
    )


def evaluate(p, rows, prior):
    """Mean and scale by the parameter vector `p`; see `Constants`."""
    made = forecast_constants.Constants(tuple(p[:4]), tuple(p[4:8]), DECAY, {}, prior)
    return np.array([predicted(row[0], made) for row in rows]).T


def fit(rows, prior, start, known):
    """Student-t likelihood with 3 degrees of freedom, with a weak penalty towards the start."""
    w = weights(rows)
    y = np.array([row[1] for row in rows])

    def objective(p):
        mean, scale = evaluate(p, rows, prior)
        density = stats.t.logpdf((y - mean) / scale, 3) - np.log(scale)
        return -(w @ density) / w.sum() + (0.03 if known else 2e-3) * np.sum((p - start) ** 2)

    return optimize.minimize(objective, start, method="L-BFGS-B", options={"maxiter": 60}).x


def quantiles(z, w, low, high):
    """Weighted quantiles."""
    order = np.argsort(z)
    share = np.cumsum(w[order]) / w.sum()
    return tuple(float(np.round(z[order][np.searchsorted(share, q)], 3)) for q in (low, high))


def choose(curves):
    """Print constants chosen on the curves for that; quantiles come from folds by group."""
    for name, known in (("KNOWN", True), ("UNKNOWN", False)):
        mine = [c for c in curves if c.chosen_on and (c.schedule is not None) == known]
        rows = trends(mine, CHOOSE_CUTS)
        old = getattr(forecast_constants, name)
        start = np.array([0.9, -0.2 if known else 0.0, 0, 0, -0.5, 1, 0.2, 0.2])
        w, y = weights(rows), np.array([row[1] for row in rows])
        fold = np.array([zlib.crc32((row[3] + "fold").encode()) // 7 % 4 for row in rows])
        z = np.empty(len(rows))
        for k in range(4):
            part = fit(
                [row for row, f in zip(rows, fold, strict=True) if f != k], old.prior, start, known
            )
            mean, scale = evaluate(part, rows, old.prior)
            z[fold == k] = ((y - mean) / scale)[fold == k]
        p = fit(rows, old.prior, start, known)
        regular = np.array([row[0].regular for row in rows])
        print(name, "slope", np.round(p[:4], 3).tolist(), "scale", np.round(p[4:8], 3).tolist(),
              "rows", len(rows))  # fmt: skip
        for kind in (False, True):
            part = regular == kind
            if part.sum() > 20:
                print("   ", kind, part.sum(), {
                    0.95: quantiles(z[part], w[part], 0.025, 0.975),
                    0.99: quantiles(z[part], w[part], 0.005, 0.995),
                })  # fmt: skip
        for source in sorted({row[2] for row in rows}):
            part = np.array([row[2] == source for row in rows])
            print("   ", source, quantiles(z[part], w[part], 0.025, 0.975))


def report(curves, title):
    """Coverage and errors at each cut."""
    print(f"\n{title}\n{'source':18}{'cut':>5}{'curves':>8}{'coverage':>10}"
          f"{'median error':>14}{'mean error':>12}{'median width':>14}")  # fmt: skip
    pooled = defaultdict(list)
    for source in sorted({c.source for c in curves}):
        for cut in CUTS:
            rows = []
            for c in curves:
                seen = c.before(cut)
                if c.source == source and (c.step[seen] > 0).sum() >= 2:
                    f = forecast(c.step[seen], c.loss[seen], c.total, c.schedule)
                    final = c.loss[-1]
                    error = abs(np.log(f.value / final))
                    rows.append((f.covers(final), error, np.log(f.hi / f.lo)))
            if rows:
                pooled[cut] += rows
                show(source, cut, np.array(rows))
    for cut, rows in pooled.items():
        show("all", cut, np.array(rows))


def show(source, cut, rows):
    covered, error, width = rows.T
    print(f"{source:18}{cut:5.0%}{len(rows):8}{covered.mean():10.3f}{np.median(error):14.4f}"
          f"{error.mean():12.4f}{np.median(width):14.4f}")  # fmt: skip


def stops(curves):
    """Runs watched at every point from a tenth on, against the median final loss of the group."""
    finals = defaultdict(list)
    for c in curves:
        finals[c.source, c.group].append(c.loss[-1])
    counts = defaultdict(lambda: [0, 0, 0, 0.0])
    for c in curves:
        others = finals[c.source, c.group]
        if len(others) < 3:
            continue
        target = float(np.median(others))
        count = counts[c.source]
        count[0] += 1
        for k in range(2, len(c.step)):
            if c.step[k] < 0.1 * c.total or c.step[k] >= c.total:
                continue
            seen = slice(0, k + 1)
            state = monitoring.watch(c.step[seen], c.loss[seen], c.total, c.schedule, beat=target)
            if state.stop:
                count[1] += 1
                count[2] += c.loss[-1] < target
                count[3] += 1 - c.step[k] / c.total
                break
    print("\nStops against the median final loss of the group, looking at every point")
    print(f"{'source':18}{'watched':>9}{'stopped':>9}{'wrong':>7}{'steps saved by a stop':>23}")
    counts["all"] = [sum(c[i] for c in counts.values()) for i in range(4)]
    for source, (watched, stopped, wrong, saved) in counts.items():
        share = f"{saved / stopped:.0%}" if stopped else "-"
        print(f"{source:18}{watched:9}{stopped:9}{wrong:7}{share:>23}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    curves = load(options.data)
    if options.choose:
        choose(curves)
        return
    report([c for c in curves if c.chosen_on], "Curves that constants were chosen on")
    held_out = [c for c in curves if not c.chosen_on]
    report(held_out, "Held-out curves")
    stops(held_out)


if __name__ == "__main__":
    needs.run(main)
