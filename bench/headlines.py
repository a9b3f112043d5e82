"""Random studies, and whether any claim of their reports contradicts the table of runs.

python bench/headlines.py [studies] [processes]

Studies vary in the number of sizes, seeds and families, in the shape of the losses (decreasing,
rising, constant or random), in baselines, known entropy and limited data. The checker does not use
the guards in `allometry.report.guards`: it parses the sentences and numbers of the JSON output and
compares them with the runs.
"""

import json
import math
import multiprocessing
import re
import sys
import time

import needs
import numpy as np
import pandas as pd

from allometry.cli.study_json import plain
from allometry.report import analyse

UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
FLOPS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
NUMBER = r"-?\d+(?:\.\d+)?"
ROUNDED = 0.006
"""Relative error of three printed digits."""


class Made:
    """The part of a study's runs that a report uses."""

    def __init__(self, table, about):
        self.table, self.about = table, about

    def frame(self):
        """One row for each run."""
        return self.table

    def curves(self):
        """None are stored."""
        return pd.DataFrame(columns=["key", "step", "tokens", "flops", "loss"])

    def samples(self):
        """None are stored."""
        return {}


def study(seed):
    """A random study."""
    rng = np.random.default_rng(seed)
    entropy = rng.choice([None, 0.3, 0.8, 1.2])
    E = (entropy or 0.5) + rng.choice([0.0, 0.05, 0.4])
    rows = []
    for f in range(rng.choice([1, 1, 2])):
        rows += _family(rng, ("transformer", "lstm")[f], E * (1 + 0.05 * f), entropy)
    trained = [r["loss"] for r in rows if r["status"] == "done"]
    if rng.random() < 0.7:
        least, most = (min(trained), max(trained)) if trained else (1.0, 2.0)
        loss = float(rng.uniform(0.8 * least, 1.1 * most))
        if rng.random() < 0.2:
            loss = least * (1 + 1e-4 * rng.standard_normal())
        loss = loss if entropy is None else max(loss, entropy)
        rows.append(_row("ngram", 9e5, rng.choice([1e5, 1e6]), None, loss, 0, "done"))
    table = pd.DataFrame(rows)
    unique = rng.choice([None, 1e4, 1e6, 1e12])
    target = {"name": "notes", "unit": "nats per character", "D_unique": unique}
    target |= {} if entropy is None else {"entropy": {"value": entropy}}
    return Made(table, {"target": target})


def _row(family, N, D, C, loss, seed, status):
    made = {"key": f"{family} {N:.6g} {D:.6g} {seed}", "family": family, "target": "notes"}
    made |= {"shape": f"width {N:.6g}" if C else "order 5", "seed": seed, "N": N, "D": D, "C": C}
    return made | {"loss": loss, "loss_se": 0.004, "status": status, "error": ""}


def _family(rng, name, E, entropy):
    sizes = int(rng.choice([1, 2, 3, 4, 5, 7]))
    N = np.round(np.geomspace(1e3, 1e3 * 10 ** rng.uniform(0.3, 3), sizes))
    ratios = rng.choice([5.0, 20.0, 200.0], size=rng.choice([1, 1, 2]), replace=False)
    fixed = rng.random() < 0.3
    kind = rng.choice(["law", "law", "law", "rising", "constant", "wild"])
    a, alpha = rng.uniform(2, 20), rng.uniform(0.1, 0.5)
    noise = float(rng.choice([1e-4, 0.003, 0.03, 0.2]))
    rows = []
    for n in dict.fromkeys(N):
        for ratio in ratios:
            D = 1e4 * ratio if fixed else ratio * n
            loss = {
                "law": E + a / n**alpha + a / D**alpha,
                "rising": E + 0.3 * math.log(n),
                "constant": E + 0.7,
                "wild": E + rng.uniform(0.01, 3),
            }[kind]
            for seed in range(int(rng.choice([1, 1, 2, 3]))):
                got = loss * math.exp(noise * rng.standard_normal())
                got = got if entropy is None else max(got, entropy)
                status = rng.choice(["done", "diverged", "failed"], p=[0.94, 0.03, 0.03])
                value = got if status == "done" else math.nan
                rows.append(_row(name, n, D, 6.3 * n * D, value, seed, str(status)))
    return rows


def contradictions(made, answer):
    """Claims of the JSON output that contradict the runs."""
    done = made.table[(made.table["status"] == "done") & made.table["loss"].notna()]
    keys = ["family", "shape", "N", "D"]
    table = done.groupby(keys).agg(loss=("loss", "mean"), C=("C", "mean")).reset_index()
    entropy = (made.about["target"].get("entropy") or {}).get("value")
    unique = made.about["target"]["D_unique"]
    found = [*_typed(answer), *_stated(answer["headline"], table)]
    for claim in answer["claims"]:
        own = table[table["family"] == claim["family"]]
        if claim["status"] != "supported":
            if "Predicted" in claim["text"]:
                found.append(f"states an unsupported claim: {claim['text']}")
            if not claim["reason"]:
                found.append(f"no reason: {claim['text']}")
            continue
        found += {"forecast": _forecast, "crossover": _crossover, "best": _best}[claim["claim"]](
            claim, own, table[table["family"] == "ngram"], entropy, unique
        )
    for family in answer["families"]:
        own = table[table["family"] == family["family"]]
        for reach in family["reaches"]:
            found += _loss(reach["loss"], own, entropy)
    return found


def _typed(answer):
    """Unreadable numbers, and plurals after 1."""
    text = json.dumps([answer["headline"], [c["text"] for c in answer["claims"]]])
    found = [f"absurd number {x}" for x in re.findall(r"\d{7,}|0\.0{4,}\d+", text)]
    one = r"(?<![\d.])1 (?:parameters|runs|sizes|seeds|characters|passes|configurations)\b"
    return [*found, *(f"plural after 1: {x}" for x in re.findall(one, text))]


def _stated(headline, table):
    """Check the numbers in the sentences of the headline."""
    found = []
    start = rf"reaches ({NUMBER}) nats per character"
    better = re.search(rf"{start} and is better than .*? at ({NUMBER})", headline)
    if better and not float(better[1]) < float(better[2]):
        found.append(f"better but not lower: {better[0]}")
    worse = re.search(rf"{start}; .*? reaches ({NUMBER}) and is better", headline)
    if worse and not float(worse[2]) < float(worse[1]):
        found.append(f"worse but not higher: {worse[0]}")
    if better or worse:
        trained = table[table["family"] != "ngram"]["loss"].min()
        stated = float((better or worse)[1])
        if abs(stated - trained) > 6e-4:
            found.append(f"reaches {stated}, the table has {trained}")
    ahead = re.search(rf"Predicted loss at ten times the compute: ({NUMBER})", headline)
    reached = re.search(rf"reaches ({NUMBER}) nats", headline)
    if ahead and reached and float(ahead[1]) > float(reached[1]) + 1e-3:
        found.append(f"more compute, higher loss: {headline}")
    return found


def _loss(loss, own, entropy):
    value, lo, hi = (loss[k] for k in ("value", "lo", "hi"))
    found = []
    if value is None or lo is None or hi is None:
        return [f"a forecast without an interval: {loss}"]
    if value > own["loss"].min() * (1 + 1e-6):
        found.append(f"forecast {value} above the reached {own['loss'].min()}")
    if entropy is not None and min(value, lo) < entropy - 1e-9:
        found.append(f"forecast {value} ({lo}) below the entropy {entropy}")
    if not lo <= value <= hi or hi > 3 * lo:
        found.append(f"an unusable interval: {loss}")
    return found


def _forecast(claim, own, baseline, entropy, unique):
    values = claim["values"]
    found = _loss(values["loss"], own, entropy)
    said = re.search(rf"({NUMBER}) nats per character \(95 % interval ({NUMBER}) to ({NUMBER})\)",
                     claim["text"])  # fmt: skip
    if said is None:
        return [*found, f"a forecast without a number: {claim['text']}"]
    if abs(float(said[1]) - values["loss"]["value"]) > 6e-4:
        found.append(f"text and value differ: {claim['text']}")
    if not values["C"] > own["C"].max():
        found.append("a forecast for no more compute than was used")
    for name in ("N", "D"):
        planned = (values[name] or {}).get("value")
        if planned is not None and planned < 0.99 * own[name].min():
            found.append(f"more compute for less {name}: {claim['text']}")
    return [*found, *_data(claim, values, unique)]


def _data(claim, values, unique):
    """A claim that needs more data than exist must mention repeated passes."""
    D = (values.get("D") or {}).get("value")
    said = "passes over the data" in claim["text"]
    if said or D is None or unique is None or D / unique <= 1.02:
        return []
    return [f"{D:.3g} of {unique:.3g} without mention: {claim['text']}"]


def _amount(text, units):
    number, unit = re.fullmatch(rf"({NUMBER}) ?([A-Za-z]?)(?:FLOP)?", text.strip()).groups()
    return float(number) * units[unit]


def _crossover(claim, own, baseline, entropy, unique):
    level, values = baseline["loss"].min(), claim["values"]
    if "measured" in values:
        first = own[own["loss"] <= level]
        if not len(first) or not math.isclose(first["C"].min(), values["C"], rel_tol=1e-9):
            return [f"not what was measured: {claim['text']}"]
        return []
    found = []
    if not own["loss"].min() > level:
        found.append(f"a predicted crossover that was already reached: {claim['text']}")
    if entropy is not None and level <= entropy:
        found.append(f"crosses the entropy: {claim['text']}")
    said = re.search(
        rf"({NUMBER} [kMGTPEZ]?FLOP), 95 % interval ({NUMBER}(?: [kMGTPEZ]?FLOP)?) to "
        rf"({NUMBER} [kMGTPEZ]?FLOP)",
        claim["text"],
    )
    if said is None:
        return [*found, f"a crossover without compute or interval: {claim['text']}"]
    unit = said[3].split()[1]
    value, lo, hi = (_amount(x if "FLOP" in x else f"{x} {unit}", FLOPS) for x in said.groups())
    worst = own[own["C"] >= value * (1 + ROUNDED)]
    if len(worst) and (worst["loss"] > level).any():
        found.append(f"runs with more compute have not crossed: {claim['text']}")
    if not lo <= value * (1 + ROUNDED) or not value <= hi * (1 + ROUNDED) or hi > 200 * lo:
        found.append(f"an unusable interval: {claim['text']}")
    return [*found, *_data(claim, values, unique)]


def _best(claim, own, baseline, entropy, unique):
    found = []
    if not math.isclose(claim["values"]["loss"]["value"], own["loss"].min(), rel_tol=1e-9):
        found.append(f"not the best of the table: {claim['text']}")
    exact = entropy is not None and len(baseline) and baseline["loss"].min() <= entropy
    if exact and "is better than" in claim["text"]:
        found.append(f"better than an exact baseline: {claim['text']}")
    if len(baseline) and "is better than" in claim["text"]:
        unequal = own.loc[own["loss"].idxmin(), "D"] / baseline["D"].iloc[0]
        if abs(math.log(unequal)) > 0.06 and "training data differ" not in claim["text"]:
            found.append(f"unequal data without mention: {claim['text']}")
    return found


def one(seed):
    """Contradictions in the study of a seed, and the kinds of claims it states."""
    made = study(seed)
    answer = plain(analyse(made, bootstrap=40))
    stated = [c["claim"] for c in answer["claims"] if c["status"] == "supported"]
    stated += [f"no {c['claim']}" for c in answer["claims"] if c["status"] != "supported"]
    return seed, contradictions(made, answer), stated, answer["headline"]


def main():
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    begun, bad, counts = time.monotonic(), 0, {}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for i, (seed, found, stated, headline) in enumerate(
            pool.imap_unordered(one, range(many), chunksize=8), start=1
        ):
            for kind in stated:
                counts[kind] = counts.get(kind, 0) + 1
            if found:
                bad += 1
                print(f"study {seed}: {headline}", *found, sep="\n  ", flush=True)
            if i % 500 == 0:
                print(f"{i} studies, {time.monotonic() - begun:.0f} s, {bad} bad", flush=True)
    print(f"{many} studies, {bad} with a contradiction; claims: {dict(sorted(counts.items()))}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    needs.run(main)
