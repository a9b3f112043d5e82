"""Verdicts of our own: AdamW against Muon, GELU against SwiGLU, on two texts.

    python bench/own_verdicts.py [--folder runs/own-verdicts] [--shakespeare PATH] [--seeds 4]

Transformers of three sizes (3K, 12K and 48K parameters) see 20 tokens per parameter. Each recipe
has two learning rates, of hidden matrices and of everything else. Both are tuned on a grid at 12K
parameters with a seed that is not judged, by validation loss. The parametrisation carries them to
the other sizes; at the largest one, a half and a quarter of both are tried too. `compare_recipes`
judges the test losses of the other seeds. The same command resumes.
"""

import argparse
import functools
import json
from pathlib import Path

import needs
import numpy as np

import allometry as al
from allometry import Spec
from allometry.study import Study, recipes
from allometry.study.recipes.transformer_variants import VariantRun
from allometry.study.referee import ChosenRuns
from allometry.targets import Text

SIZES = (3e3, 12e3, 48e3)
TUNED_AT = 12e3
TOKENS = 20
RECIPES = {"adamw": {}, "muon": {"optimizer": "muon"}, "swiglu": {"activation": "swiglu"}}
RATES = (0.016, 0.032, 0.064, 0.128)
HIDDEN = {
    "adamw": (0.05, 0.1, 0.2, 0.4),
    "muon": (0.1, 0.2, 0.4, 0.8),
    "swiglu": (0.05, 0.1, 0.2, 0.4),
}
PAIRS = (("adamw", "muon"), ("adamw", "swiglu"))


def requests(text, recipe, size, seeds, lr, hidden):
    """The runs of a recipe at one size: the seeds given, at two rates."""
    common = {"tokens": [TOKENS * size], "seeds": 1}
    options = RECIPES[recipe] | {"lr": lr, "hidden_rate": hidden}
    (spec,) = recipes.transformer(text, [size], **common, **options)
    rung = SIZES.index(size)
    return [Spec(VariantRun, **spec.arguments | {"seed": seed, "rung": rung}) for seed in seeds]


def run(text, specs, folder, seeds):
    """The finished runs of the requests as rows."""
    study = Study(
        text, [ChosenRuns(tuple(specs))], list(SIZES), seeds=seeds, tokens=[TOKENS * SIZES[-1]]
    )
    frame = study.run(folder, al.study.local(1, threads=1)).frame()
    keys = {spec.key for spec in specs}
    return [
        row for row in frame.to_dict("records") if row["key"] in keys and row["status"] == "done"
    ]


def tuned(text, recipe, folder):
    """The best pair of rates at the middle size, and the whole grid."""
    grid = {}
    for lr in RATES:
        for hidden in HIDDEN[recipe]:
            (spec,) = requests(text, recipe, TUNED_AT, [100], lr, hidden)
            grid[spec.key] = (lr, hidden, spec)
    rows = run(text, [spec for *_, spec in grid.values()], folder / "tuning" / recipe, 1)
    losses = {grid[row["key"]][:2]: row["loss"] for row in rows}
    return min(losses, key=losses.get), losses, sum(row["seconds"] for row in rows)


def tuned_at_largest(text, recipe, folder, rates):
    """The best of the rates carried over, and a half and a quarter of them."""
    lr, hidden = rates
    tried = {}
    for part in (1.0, 0.5, 0.25):
        (spec,) = requests(text, recipe, SIZES[-1], [100], part * lr, hidden)
        tried[spec.key] = (part * lr, spec)
    rows = run(text, [spec for _, spec in tried.values()], folder / "tuning-large" / recipe, 1)
    losses = {tried[row["key"]][0]: row["loss"] for row in rows}
    return (min(losses, key=losses.get), hidden), losses


def judged(text, folder, seeds):
    """Rates, rows and seconds of every recipe."""
    found = {}
    for recipe in RECIPES:
        rates, losses, seconds = tuned(text, recipe, folder)
        edge = rates[0] in (RATES[0], RATES[-1]) or rates[1] in (
            HIDDEN[recipe][0],
            HIDDEN[recipe][-1],
        )
        where = ", at an edge of the grid" if edge else ""
        print(f"{text.name} {recipe}: lr {rates[0]}, hidden x {rates[1]}{where}", flush=True)
        print(
            f"  tuning: {min(losses.values()):.4f} to {max(losses.values()):.4f}; {seconds:.0f} s"
        )
        largest, tried = tuned_at_largest(text, recipe, folder, rates)
        shown = ", ".join(f"{lr}: {loss:.4f}" for lr, loss in tried.items())
        print(f"  at the largest size {shown}", flush=True)
        by_size = dict.fromkeys(SIZES, rates) | {SIZES[-1]: largest}
        specs = [
            s for size in SIZES for s in requests(text, recipe, size, range(seeds), *by_size[size])
        ]
        rows = run(text, specs, folder / "runs" / recipe, seeds)
        found[recipe] = rows
        for size in sorted({row["N"] for row in rows}):
            losses = [row["test_loss"] for row in rows if row["N"] == size]
            seconds = sum(row["seconds"] for row in rows if row["N"] == size)
            mean, spread = np.mean(losses), np.std(losses, ddof=1)
            print(f"  N={size:.0f}: {mean:.4f} +- {spread:.4f}; {seconds:.0f} s", flush=True)
    return found


def verdict(found, pair):
    """The comparison of two recipes by their test losses."""
    rows = [row | {"recipe": name} for name in pair for row in found[name]]
    frame = {
        name: np.array([row[name] for row in rows], float) for name in ("N", "D", "C", "seed")
    }
    frame |= {"loss": np.array([row["test_loss"] for row in rows])}
    frame |= {"recipe": np.array([row["recipe"] for row in rows], object)}
    return al.laws.compare_recipes(frame, by="recipe")


def main():
    """Tune, run, judge and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=Path("runs/own-verdicts"))
    arguments.add_argument(
        "--shakespeare", type=Path, default=Path("../shared/data/tinyshakespeare/input.txt")
    )
    arguments.add_argument("--text", help="Only this text: embedded or shakespeare.")
    arguments.add_argument("--seeds", type=int, default=4)
    given = arguments.parse_args()
    texts = {"embedded": Text.embedded}
    if given.shakespeare.exists():
        texts["shakespeare"] = functools.partial(Text, given.shakespeare)
    for name, make in texts.items():
        if given.text not in (None, name):
            continue
        found = judged(make(), given.folder / name, given.seeds)
        for pair in PAIRS:
            answer = verdict(found, pair)
            print(f"{name}, {pair[0]} against {pair[1]}: {answer.verdict}", flush=True)
            (given.folder / f"{name}-{pair[1]}.json").write_text(
                json.dumps(answer.to_dict(), default=str)
            )


if __name__ == "__main__":
    needs.run(main)
