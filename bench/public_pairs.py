"""Public pairs of recipes: the winner at the largest size, predicted from a tenth of its compute.

    python bench/public_pairs.py [pooled] [unknown] [stated] [--data ../shared/data]

For every pair of recipes of a source, the winner at the largest compute C* of both is known
(losses between runs are interpolated on log scales). `compare_recipes` sees the runs of at most
C*/10. The baseline ranks the recipes at the largest such compute that both reach, which spends
nearly all of the same budget; "small" ranks them at a tenth of that.

The runs have no replicates. Three tables differ in what is known about the noise of a run:

pooled   Only the source's runs of at most C*/10, of all its recipes, as `compare_recipes` has them
         in one table.
unknown  The runs of the two recipes alone.
stated   0.003 for cross-entropies (twice that of any of 22 groups of replicas of speed runs), and
         for DCLM's error, 1 - CORE, that of its repeated runs at equal settings.
"""

import argparse
import csv
import itertools
from collections import defaultdict
from pathlib import Path

import needs
import numpy as np

from allometry.laws.comparison import paired_runs
from allometry.laws.comparison.gain import gain_of
from allometry.laws.comparison.linear_evidence import DECISIVE
from allometry.laws.comparison.pooled_noise import pooled_noise
from allometry.laws.comparison.run_noise import RunNoise
from allometry.laws.comparison.sequential import evidence

FOLDER = "families"


def number(text):
    """A cell as a number."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return np.nan


def rows_of(data, name):
    """The rows of one table."""
    with (data / FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def sources(data):
    """Groups of comparable runs: (source, group, rows of recipe, N, D, C, loss)."""
    plain = {
        "ab_dclm_data_recipes": (lambda r: "", lambda r: r["recipe"]),
        "ab_qlabs_loop_ladders": (lambda r: "", lambda r: r["recipe"]),
        "ab_qlabs_loop_grid": (lambda r: r["regime"] + r["wd"], lambda r: r["recipe"]),
        "ab_quest_precision": (lambda r: "", lambda r: r["family"]),
        "ab_protein_transfer": (lambda r: "", lambda r: r["recipe"]),
        "ab_laion_clip_vs_mammut": (lambda r: r["family"].split("_")[-1], lambda r: r["recipe"]),
        "ab_llmline_pythia_vs_mamba": (lambda r: r["eval"], lambda r: r["recipe"]),
        "ab_pythia_dedup_lambada": (lambda r: r["version"], lambda r: r["variant"]),
    }
    for name, (group_of, recipe_of) in plain.items():
        groups = defaultdict(list)
        for row in rows_of(data, name):
            values = {k: number(row.get(k)) for k in ("N", "D", "C", "loss")}
            if values["loss"] > 0 and values["C"] > 0:
                groups[group_of(row)].append({"recipe": recipe_of(row), **values})
        for group, rows in groups.items():
            yield name.removeprefix("ab_"), group, best_of_each(rows)


def best_of_each(rows):
    """The lowest loss of each recipe and configuration: rates and repeats."""
    best = {}
    for row in rows:
        key = (row["recipe"], row["N"], row["D"], row["C"])
        if key not in best or row["loss"] < best[key]["loss"]:
            best[key] = row
    return list(best.values())


def frontier(rows):
    """Log C and log loss of the runs that no cheaper run of the recipe beats."""
    points, low = [], np.inf
    for row in sorted(rows, key=lambda r: (r["C"], r["loss"])):
        if row["loss"] < low:
            low = row["loss"]
            points.append((np.log(row["C"]), np.log(row["loss"])))
    return np.array(points)


def better(first, second, x):
    """-1 if the first has the lower loss at log compute x, 1 if the second; 0 if unknown."""
    ends = max(first[0, 0], second[0, 0]), min(first[-1, 0], second[-1, 0])
    if not ends[0] - 0.05 <= x <= ends[1] + 0.05:
        return 0
    a, b = (np.interp(x, f[:, 0], f[:, 1]) for f in (first, second))
    return int(np.sign(a - b))


def replicate_noise(data):
    """Standard deviation of DCLM's log error between runs at equal settings."""
    same = ("recipe", "N", "D", "lr", "wd", "batch", "mult", "eval_version")
    groups = defaultdict(list)
    for row in rows_of(data, "ab_dclm_data_recipes"):
        groups[tuple(row[k] for k in same)].append(np.log(number(row["loss"])))
    squares = [(np.var(v) * len(v), len(v) - 1) for v in groups.values() if len(v) > 1]
    return float(np.sqrt(sum(s for s, _ in squares) / sum(n for _, n in squares)))


def judged(pair, rows, noise=None, *, pooled=False):
    """Truth, baseline, small-size ranking, leader and verdict of a pair; None without data."""
    arms = [[r for r in rows if r["recipe"] == name] for name in pair]
    if min(map(len, arms)) < 3:
        return None
    lines = [frontier(arm) for arm in arms]
    top = min(line[-1, 0] for line in lines)
    truth = better(*lines, top)
    allowed = [r for r in rows if np.log(r["C"]) <= top - np.log(10) + 0.02]
    seen = [[r for r in allowed if r["recipe"] == name] for name in pair]
    if truth == 0 or min(map(len, seen)) < 2:
        return None
    known = [frontier(arm) for arm in seen]
    largest = min(line[-1, 0] for line in known)
    baseline = better(*known, largest)
    small = better(*known, max(largest - np.log(10), max(line[0, 0] for line in known)))
    if not pooled:
        allowed = [r for arm in seen for r in arm]
    columns = ("recipe", "N", "D", "C", "loss")
    frame = {k: np.array([r[k] for r in allowed]) for k in columns}
    for k in ("N", "D"):
        if not np.isfinite(frame[k]).all():
            del frame[k]
    return truth, baseline, small, *answer(frame, pair, top, noise)


def answer(frame, pair, x, noise):
    """Leader, verdict (0 while undecided) and whether the interval excludes 1."""
    runs = paired_runs.read(frame, "recipe")
    first, second = (runs.names.index(name) for name in pair)
    known = RunNoise.known(noise) or pooled_noise(runs, first, second)
    two = runs.two(first, second)
    gain = gain_of(two, np.random.default_rng(0), known)
    leader = gain.leader(x)
    excludes = gain.multiplier(x, leader).interval[0] > 1
    found = evidence(two, x, known)
    agree = found.sign == (1 if leader == 1 else -1)
    side = 1 if leader == 1 else -1
    return side, side * (found.value >= DECISIVE and agree and excludes), excludes


def main():
    """Judge every pair, by what is known about the noise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=["pooled", "unknown", "stated"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    asked = parser.parse_args()
    measured = {"dclm_data_recipes": replicate_noise(asked.data)}
    for table in asked.tables:
        print(f"\nnoise {table}")
        by_source = defaultdict(list)
        for source, _, rows in sources(asked.data):
            noise = measured.get(source, 0.003) if table == "stated" else None
            for pair in itertools.combinations(sorted({r["recipe"] for r in rows}), 2):
                found = judged(pair, rows, noise, pooled=table == "pooled")
                if found is not None:
                    by_source[source].append(found)
        show(by_source)


def show(by_source):
    """Print a line per source and the total."""
    print("source | pairs | compare | largest small size | a tenth of it | decided | right")
    everything = [found for group in by_source.values() for found in group]
    for source, found in (*by_source.items(), ("all", everything)):
        table = np.array([[int(v) for v in f] for f in found])
        truth = table[:, 0]
        shares = [(table[:, i] == truth).mean() for i in (3, 1, 2)]
        decided = table[:, 4] != 0
        right = (table[decided, 4] == truth[decided]).mean() if decided.any() else np.nan
        cells = " | ".join(f"{s:.3f}" for s in shares)
        sure = table[:, 5] == 1
        inside = (table[sure, 3] == truth[sure]).mean() if sure.any() else np.nan
        print(
            f"{source} | {len(truth)} | {cells} | {decided.sum()} | {right:.3f} "
            f"| interval excludes 1: {sure.sum()}, right {inside:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    needs.run(main)
