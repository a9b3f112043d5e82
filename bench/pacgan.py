"""Modes found on a ring of 8 and a grid of 25 Gaussians, by method, with PacGAN's published table.

Run: python bench/pacgan.py [--target grid] [--only GAN,PacGAN2] [--seeds 10] [--first 0] [--full]
     python bench/pacgan.py --compare pacgan.jsonl

Data and definitions are PacGAN's: 2,500 evaluated samples, high quality within 3 standard
deviations of the nearest mode, a mode found if it has one such sample. A packing discriminator
sees as many packs per step as another sees points. The reduced setting has narrower networks,
higher rates that decay at the end and fewer steps; training is vectorised over seeds and compiled:
minutes on one core. `--full` uses the paper's networks, rate and length (400,000 steps): hours per
method; `--steps` shortens it. Each method's line goes to standard output and, as JSON, to `--out`.
`--compare` compares the lines of such a file with the plain GAN of the same target, seeds, rates
and steps.
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import needs
import numpy as np
import torch
from scipy import stats

from allometry._core.files import atomic_write
from allometry.measure import mode_recovery
from allometry.models.gan import Discriminator, Generator
from allometry.targets.points import grid, ring
from allometry.train.game.gan import GANSettings, GANTraining, play
from allometry.train.gan_costs import MINIMAX, WASSERSTEIN
from allometry.train.packed.stack import StackedModels

TARGETS = {"ring": (ring, 0.01), "grid": (grid, 0.05)}
METHODS = {
    "GAN": {},
    "PacGAN2": {"pack": 2},
    "PacGAN3": {"pack": 3},
    "PacGAN4": {"pack": 4},
    "unrolled 1": {"unroll": 1},
    "unrolled 5": {"unroll": 5},
    "unrolled 10": {"unroll": 10},
    "WGAN-GP": {"wasserstein": True},
}
PAPER = {  # Lin et al. 2018, Table 1: modes, high quality %, reverse KL; mean ± se of 10 runs
    ("ring", "GAN"): "6.3 ± 0.5, 98.2 ± 0.2, 0.45 ± 0.09",
    ("ring", "PacGAN2"): "7.9 ± 0.1, 95.6 ± 2.0, 0.07 ± 0.03",
    ("ring", "PacGAN3"): "7.8 ± 0.1, 97.7 ± 0.3, 0.10 ± 0.02",
    ("ring", "PacGAN4"): "7.8 ± 0.1, 95.9 ± 1.4, 0.07 ± 0.02",
    ("grid", "GAN"): "17.3 ± 0.8, 94.8 ± 0.7, 0.70 ± 0.07",
    ("grid", "PacGAN2"): "23.8 ± 0.7, 91.3 ± 0.8, 0.13 ± 0.04",
    ("grid", "PacGAN3"): "24.6 ± 0.4, 94.2 ± 0.4, 0.06 ± 0.02",
    ("grid", "PacGAN4"): "24.8 ± 0.2, 93.6 ± 0.6, 0.04 ± 0.01",
}


FULL = (
    {"width": 400, "depth": 4, "init": 0.02},
    {"width": 200, "depth": 3, "pieces": 5, "init": 0.02},
)
REDUCED = (
    {"width": 64, "depth": 4, "init": 0.02},
    {"width": 48, "depth": 2, "pieces": 3, "init": 0.05},
)


def players(arguments, pack, wasserstein):
    maker, judge = FULL if arguments.full else REDUCED
    if wasserstein:
        # A gradient penalty needs units with a slope everywhere, and no dead units at the start.
        judge = judge | {"pieces": 1, "width": 2 * judge["width"], "init": None}
    rngs = [torch.Generator().manual_seed(i) for i in seeds(arguments)]
    G = StackedModels([Generator(2, rng=g, running=False, **maker).float() for g in rngs])
    return G, StackedModels([Discriminator(2, rng=g, pack=pack, **judge).float() for g in rngs])


def seeds(arguments):
    return range(arguments.first, arguments.first + arguments.seeds)


def rules(arguments, steps, pack, unroll, wasserstein):
    batch = pack * (100 if arguments.full else arguments.batch)
    # Unrolling uses the zero-sum value (Metz et al. 2017), the others the non-saturating cost.
    costs = {"costs": MINIMAX} if unroll else {}
    costs = {"costs": WASSERSTEIN, "penalty": 0.1, "turns": 3} if wasserstein else costs
    if arguments.full:
        return GANSettings(batch=batch, lr=1e-4, betas=(0.8, 0.999), unroll=unroll, **costs)
    return GANSettings(
        batch=batch, lr=arguments.lr, lr_discriminator=arguments.faster * arguments.lr,
        betas=(0.5, 0.999), unroll=unroll, decay=steps, hold=0.5, **costs,
    )  # fmt: skip


def interval(values):
    """Mean and the half-width of Student's 95 % interval over seeds; `None` for a single one."""
    if len(values) == 1:
        return float(values[0]), None
    se = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * se


def trial(arguments, name, pack=1, unroll=0, wasserstein=False):
    make, sd = TARGETS[arguments.target]
    target = make(sd=sd)
    steps = arguments.steps or (400_000 if arguments.full else 10_000)
    data = torch.from_numpy(target.draw(100_000, np.random.default_rng(7))).float()
    G, D = players(arguments, pack, wasserstein)
    played = rules(arguments, steps, pack, unroll, wasserstein)
    traced = "fused" if arguments.fuse else True
    contest = GANTraining(G, D, data, played, list(seeds(arguments)), traced=traced)
    kept = Path(f"{arguments.keep}-{arguments.target}-{name}.npz") if arguments.keep else None
    if kept is not None and kept.exists():
        resume(kept, contest)
    started = time.process_time()
    for part in range(1, arguments.parts + 1):
        if contest.taken >= steps * part // arguments.parts:
            continue
        play(contest, steps * part // arguments.parts - contest.taken)
        if kept is not None:
            save(kept, contest)
        found = [mode_recovery(x, target.means, sd) for x in contest.samples(2500)]
        row = {
            "target": arguments.target,
            "method": name,
            "step": contest.taken,
            "steps": steps,
            "seeds": list(seeds(arguments)),
            "full": arguments.full,
            "lr": arguments.lr,
            "faster": arguments.faster,
            "batch": played.batch,
            "seconds": time.process_time() - started,
        }
        for key in ("modes", "high_quality", "reverse_kl"):
            row[key] = interval([f[key].value for f in found])
            row[f"{key}_each"] = [round(f[key].value, 4) for f in found]
        with open(arguments.out, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(row) + "\n")
        if part == arguments.parts or arguments.all:
            print_row(row)


def save(path, contest):
    """Save the state for a later resume; at every hundredth step all draws are whole chunks."""
    kept = {"taken": contest.taken}
    for name, pack, stepper in (
        ("G", contest.G, contest.step_G),
        ("D", contest.D, contest.step_D),
    ):
        state = stepper.inner.state[stepper.rows[0]]
        kept |= {f"{name}_{key}": state[key].numpy() for key in ("step", "exp_avg", "exp_avg_sq")}
        kept[f"{name}_flat"] = pack.flat.detach().numpy()
    kept["streams"] = np.stack([g.get_state().numpy() for g in contest.draws.streams])
    with atomic_write(path, "wb") as file:
        np.savez(file, allow_pickle=False, **kept)


def resume(path, contest):
    with np.load(path, allow_pickle=False) as kept:
        contest.taken = int(kept["taken"])
        for name, pack, stepper in (
            ("G", contest.G, contest.step_G), ("D", contest.D, contest.step_D),
        ):  # fmt: skip
            with torch.no_grad():
                pack.flat.copy_(torch.from_numpy(kept[f"{name}_flat"]))
            stepper.inner.state[stepper.rows[0]] = {
                key: torch.from_numpy(kept[f"{name}_{key}"]).clone()
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
        for stream, state in zip(contest.draws.streams, kept["streams"], strict=True):
            stream.set_state(torch.from_numpy(state))


SHOWN = (("modes", 1, 1), ("high_quality", 100, 1), ("reverse_kl", 1, 2))


def print_row(row):
    cells = []
    for key, scale, d in SHOWN:
        value, half = row[key]
        within = "" if half is None else f" ± {scale * half:.{d}f}"
        cells.append(f"{scale * value:.{d}f}{within}")
    paper = PAPER.get((row["target"], row["method"]), "")
    line = f"| {row['target']} | {row['method']} | {' | '.join(cells)} | {paper} |"
    print(line, f"({row['step']} steps, {row['seconds']:.0f} CPU s)", flush=True)


def compare(path):
    """Difference of every method from the plain GAN, with Welch's 95 % intervals and p."""
    last = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["step"] == row["steps"]:
            last[_setting(row), row["method"], row["batch"]] = row
    for (setting, method, batch), row in last.items():
        plain = last.get((setting, "GAN", 96))
        if plain is None or plain is row:
            continue
        cells = []
        for key, scale, d in SHOWN:
            new, old = (scale * np.array(r[f"{key}_each"]) for r in (row, plain))
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
                # If all seeds find all modes, the variance is 0.
                test = stats.ttest_ind(new, old, equal_var=False)
            low, high = test.confidence_interval()
            gain = new.mean() - old.mean()
            cells.append(f"{gain:+.{d}f} ({low:.{d}f} to {high:.{d}f}; p = {test.pvalue:.2g})")
        print(f"| {row['target']} | {method} | {batch} | {row['step']} | {' | '.join(cells)} |")


def _setting(row):
    return row["target"], row["full"], row["lr"], row["faster"], row["step"], tuple(row["seeds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="grid", choices=list(TARGETS))
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument(
        "--parts", type=int, default=4, help="number of evaluations during training"
    )
    parser.add_argument("--batch", type=int, default=96, help="packs per step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--faster", type=float, default=2.0, help="ratio of the discriminator's rate to it"
    )
    parser.add_argument("--fuse", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--all", action="store_true", help="print every part")
    parser.add_argument("--out", default="pacgan.jsonl")
    parser.add_argument("--compare", help="a file of rows to compare with the plain GAN")
    parser.add_argument("--keep", default="", help="prefix of a file to save after every part and "
                        "resume from; parts must be multiples of 100 steps")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return
    torch.set_num_threads(1)
    print("| target | method | modes | high quality, % | reverse KL | PacGAN's table |")
    print("|---|---|---|---|---|---|")
    for name in arguments.only.split(","):
        trial(arguments, name, **METHODS[name])


if __name__ == "__main__":
    needs.run(main)
