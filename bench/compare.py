"""Comparisons of recipes: false verdicts when looking after every run, coverage, power.

    python bench/compare.py [aa] [pooled] [coverage] [power] [--data ../shared/data] [--quick]

aa        400 pairs that differ in seed only, judged after every run: resampled public runs (drug
          response models over 20 splits, replicas of speed runs) and tiny trainings (an MLP of
          scikit-learn on its digits, 3 widths x 40 seeds), resampled as well.
pooled    Equal pairs among recipes whose noise is pooled with theirs, judged after every size and
          seed: drug response models among other models of the same data, replicas of a speed run
          among other records, tiny trainings, and synthetic ladders of 3 to 8 recipes whose noise
          differs (standard deviation of its log 0.35).
coverage  Synthetic ladders with random exponents, noise and gains: how often the 95 % interval of
          the multiplier covers the truth, at the largest size and 10 and 100 times beyond.
power     The share of ladders of 3 sizes that name the winner, by multiplier, noise and seeds.
"""

import argparse
import csv
import warnings
from collections import defaultdict
from pathlib import Path

import needs
import numpy as np

from allometry import laws
from allometry.laws.comparison import paired_runs, pooled_noise
from allometry.laws.comparison.linear_evidence import DECISIVE
from allometry.laws.comparison.sequential import evidence


def rows_of(path):
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- equal recipes


def drug_response(data):
    """Losses by family and size over splits."""
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows_of(data / "families" / "drug_response_learning_curves.csv"):
        if row["D"] and row["loss"]:
            groups[row["family"]][float(row["D"])].append(float(row["loss"]))
    for name, sizes in groups.items():
        full = {D: losses for D, losses in sizes.items() if len(losses) >= 8}
        if len(full) >= 3:
            chosen = sorted(full)[:: max(1, len(full) // 4)][:4]
            yield name, {D: full[D] for D in chosen}


def speed_runs(data):
    """Final losses of the replicas of each record: one size."""
    last = {}
    for row in rows_of(data / "modded_nanogpt" / "curves_half.csv"):
        run = next(row[k] for k in ("run", "name", "file", "log") if k in row)
        record = next(row[k] for k in ("record", "family", "group") if k in row)
        loss = row.get("val_loss") or row.get("loss")
        step = float(row.get("step") or 0)
        if loss and (run not in last or step >= last[run][1]):
            last[run] = (record, step, float(loss))
    groups = defaultdict(list)
    for record, _, loss in last.values():
        groups[record].append(loss)
    for name, losses in groups.items():
        if len(losses) >= 10:
            yield name, {1.0: losses}


def tiny_trainings(quick):
    """Validation losses of small networks on digits: 3 widths x 40 seeds."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    found = defaultdict(list)
    for width in (4, 8, 16):
        for seed in range(12 if quick else 40):
            model = MLPClassifier(
                (width,), max_iter=12, random_state=seed, learning_rate_init=0.01
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x[:1200], y[:1200])
            found[float(width)].append(log_loss(y[1200:], model.predict_proba(x[1200:])))
    return dict(found)


def false_verdicts(sizes, pairs, rng):
    """Of `pairs` resampled comparisons of equal recipes, how many ever get a verdict."""
    wrong = 0
    seeds = min(5, min(map(len, sizes.values())) // 2)
    for _ in range(pairs):
        rows = []
        for size, losses in sizes.items():
            drawn = rng.permutation(losses)[: 2 * seeds].reshape(seeds, 2)
            rows += [(s, size, i, drawn[s, i]) for s in range(seeds) for i in (0, 1)]
        rows.sort(key=lambda r: (r[0], r[1]))
        frame = {
            "seed": np.array([r[0] for r in rows]),
            "D": np.array([r[1] for r in rows]),
            "recipe": np.array(["AB"[r[2]] for r in rows]),
            "loss": np.array([r[3] for r in rows]),
        }
        at = np.log(max(sizes))
        wrong += any(
            judged({k: v[:n] for k, v in frame.items()}, at) for n in range(3, len(rows) + 1)
        )
    return wrong


def judged(frame, at):
    """Whether the runs give a verdict."""
    if len(set(frame["recipe"])) < 2:
        return False
    return evidence(paired_runs.read(frame, "recipe").two(0, 1), at).value >= DECISIVE


def equal_recipes(data, quick):
    """Print the shares of false verdicts."""
    rng = np.random.default_rng(0)
    share = 0.2 if quick else 1.0
    total = wrong = 0
    for name, groups, count in (
        ("drug response", list(drug_response(data)), 150),
        ("speed runs", list(speed_runs(data)), 100),
        ("tiny trainings", [("digits", tiny_trainings(quick))], 150),
    ):
        each = max(1, round(share * count / len(groups)))
        found = [false_verdicts(sizes, each, rng) for _, sizes in groups]
        pairs = each * len(groups)
        print(f"{name}: {sum(found)} verdicts in {pairs} pairs ({len(groups)} groups)", flush=True)
        total, wrong = total + pairs, wrong + sum(found)
    print(f"all: {wrong} of {total} = {wrong / total:.3f}")


# --- equal recipes among others


def among(first, others, rng, seeds):
    """Whether two equal recipes, drawn from `first`, get a verdict among other recipes.

    `first` and `others` map sizes to losses; the arms differ in their draws only, or in all.
    """
    rows = []
    sizes = sorted(first)
    drawn = {size: rng.permutation(first[size])[: 2 * seeds].reshape(2, seeds) for size in sizes}
    arms = [{size: drawn[size][i] for size in sizes} for i in (0, 1)]
    arms += [{size: rng.permutation(other[size])[:seeds] for size in sizes} for other in others]
    for seed in range(seeds):
        for size in sizes:
            rows += [("ABCDEFGHIJ"[i], size, seed, arm[size][seed]) for i, arm in enumerate(arms)]
    names = ("recipe", "D", "seed", "loss")
    frame = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    step = len(arms)
    for n in range(2 * step, len(rows) + 1, step):
        runs = paired_runs.read({k: v[:n] for k, v in frame.items()}, "recipe")
        noise = pooled_noise.pooled_noise(runs, 0, 1)
        if evidence(runs.two(0, 1), np.log(sizes[-1]), noise).value >= DECISIVE:
            return True
    return False


def synthetic_arms(rng):
    """Losses of 3 to 8 recipes of unequal noise at 3 or 4 sizes; the first two are equal."""
    C = np.logspace(17, 20, int(rng.integers(3, 5)))
    noise = float(np.exp(rng.uniform(np.log(0.001), np.log(0.01))))
    arms = []
    for _ in range(int(rng.integers(2, 8))):
        a, share = rng.uniform(0.1, 0.2), rng.uniform(0.3, 0.6)
        own = noise * np.exp(0.35 * rng.normal())
        law = share + (1 - share) * (C / 10**18.5) ** -a
        arms.append(
            {c: v * np.exp(own * rng.normal(size=12)) for c, v in zip(C, law, strict=True)}
        )
    return arms[0], arms[1:]


def equal_among_others(data, quick):
    """Print the shares of false verdicts of pairs whose noise is pooled with other recipes."""
    rng = np.random.default_rng(3)
    count = 20 if quick else 100
    drugs, kinds = list(drug_response(data)), defaultdict(list)
    for name, sizes in drugs:
        kinds[name.split(".")[0], *sorted(sizes)].append(sizes)
    models = [group for group in kinds.values() if len(group) > 1]
    records = [sizes for _, sizes in speed_runs(data)]
    digits = tiny_trainings(quick)

    def drug():
        group = models[rng.integers(len(models))]
        first = int(rng.integers(len(group)))
        return group[first], group[:first] + group[first + 1 :]

    def record():
        order = rng.permutation(len(records))[:6]
        return records[order[0]], [records[i] for i in order[1:]]

    def tiny():
        return digits, [digits] * int(rng.integers(1, 6))

    for name, draw, seeds in (
        ("drug response", drug, 4),
        ("speed runs", record, 4),
        ("tiny trainings", tiny, 4),
        ("synthetic", lambda: synthetic_arms(rng), 3),
    ):
        wrong = sum(among(*draw(), rng, seeds) for _ in range(count))
        print(f"among others, {name}: {wrong} verdicts in {count}", flush=True)


# --- known gains


def ladder(rng, *, sizes, seeds, noise, a, share, shared, mu, nu=0.0, floor=0.0, decades=3.0):
    """Runs of two recipes, and the true log multiplier of the first at a log10 scale."""
    C = np.logspace(20 - decades, 20, sizes)
    middle = 10 ** (20 - decades / 2)

    def loss(c, second):
        h = (mu + nu * np.log(c / 1e20)) * second
        return share * np.exp(floor * second) + (1 - share) * (c * np.exp(h) / middle) ** -a

    rows = []
    for c in C:
        for s in range(seeds):
            common = rng.normal()
            for second in (0, 1):
                chance = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal()
                rows.append(("AB"[second], c, s, loss(c, second) * np.exp(noise * chance)))
    names = ("recipe", "C", "seed", "loss")
    frame = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))

    def truth(at):
        """Log of A's compute over B's for B's loss at `at` (negative if A is better)."""
        part = (loss(at, 1) - share) / (1 - share)
        return np.inf if part <= 0 else np.log(part ** (-1 / a) * middle / at)

    return frame, truth


def coverage(quick):
    """Print the coverage of the multiplier's interval by kind of gain and scale."""
    rng = np.random.default_rng(1)
    count = 40 if quick else 200
    for kind in ("constant gain", "own exponents", "own floors"):
        inside = {1e20: 0, 1e21: 0, 1e22: 0}
        width = {at: [] for at in inside}
        for i in range(count):
            frame, truth = ladder(
                rng,
                sizes=int(rng.integers(3, 7)),
                seeds=int(rng.integers(2, 5)),
                noise=float(np.exp(rng.uniform(np.log(0.001), np.log(0.01)))),
                a=float(rng.uniform(0.08, 0.3)),
                share=float(rng.uniform(0.2, 0.8)),
                shared=float(rng.uniform(0, 0.8)),
                mu=float(rng.normal(0, 0.4)),
                nu=float(rng.normal(0, 0.08)) if kind == "own exponents" else 0.0,
                floor=float(rng.normal(0, 0.01)) if kind == "own floors" else 0.0,
            )
            for at in inside:
                found = laws.compare_recipes(frame, at=at, seed=i)
                lo, hi = found.multiplier.interval
                value = truth(at)
                if found.leader == "A":
                    # What B needs at A's scale: the curve of B inverted at A's loss.
                    value = inverse(truth, at)
                inside[at] += lo <= np.exp(value) <= hi
                width[at].append(np.log(hi / lo))
        print(
            f"{kind}: "
            + ", ".join(
                f"at {at:.0e} {inside[at] / count:.3f} (median width {np.median(width[at]):.2f})"
                for at in inside
            ),
            flush=True,
        )


def inverse(truth, at):
    """Log of what B needs over A at A's scale `at`: -truth(b) where b exp(truth(b)) = at."""
    low, high = np.log(at) - 30, np.log(at) + 30
    for _ in range(80):
        middle = (low + high) / 2
        if middle + truth(np.exp(middle)) < np.log(at):
            low = middle
        else:
            high = middle
    return (low + high) / 2 - np.log(at)


def power(quick):
    """Print the share of verdicts at the largest size and ten times beyond."""
    rng = np.random.default_rng(2)
    count = 10 if quick else 60
    print("multiplier | noise | seeds | verdict at the largest size | at 10 times | wrong")
    for m in (1.05, 1.1, 1.2, 1.5):
        for noise in (0.001, 0.003):
            for seeds in (2, 4, 8):
                hits, wrong = [0, 0], 0
                for _ in range(count):
                    frame, _ = ladder(
                        rng, sizes=3, seeds=seeds, noise=noise, a=0.15, share=0.5, shared=0.5,
                        mu=float(np.log(m)),
                    )  # fmt: skip
                    runs = paired_runs.read(frame, "recipe").two(0, 1)
                    for j, at in enumerate((1e20, 1e21)):
                        found = evidence(runs, np.log(at))
                        hits[j] += found.value >= DECISIVE and found.sign > 0
                        wrong += found.value >= DECISIVE and found.sign < 0
                shares = " | ".join(f"{h / count:.2f}" for h in hits)
                print(f"{m} | {noise} | {seeds} | {shares} | {wrong}", flush=True)


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["aa", "pooled", "coverage", "power"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if "coverage" in asked.parts:
        coverage(asked.quick)
    if "power" in asked.parts:
        power(asked.quick)
    if "pooled" in asked.parts:
        equal_among_others(asked.data, asked.quick)
    if "aa" in asked.parts:
        equal_recipes(asked.data, asked.quick)


if __name__ == "__main__":
    needs.run(main)
