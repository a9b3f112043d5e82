"""Modes found on a ring of 8 and a grid of 25 Gaussians, by method, beside PacGAN's table.

Run: python bench/pacgan.py [--target grid] [--only GAN,PacGAN2] [--seeds 10] [--full]

Data and definitions are PacGAN's: 2,500 samples judged, high quality within 3 standard deviations
of the nearest mode, a mode found by one such sample. The bounded setting has narrower networks
without batch norm and a falling rate, all seeds packed: minutes on one core. `--full` has the
paper's networks, rate and length (400,000 steps): many hours; `--steps` cuts it short. Each
method's line goes to standard output and, as JSON, to `--out`.
"""

import argparse
import json
import math
import time

import numpy as np
import torch
from scipy import stats

from allometry.measure import mode_recovery
from allometry.models.gan import Discriminator, Generator
from allometry.targets.points import grid, ring
from allometry.train.adversarial import WASSERSTEIN
from allometry.train.game.gan import Contest, Rules, play
from allometry.train.packed import Packed

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
PAPER = {  # lin2018, Table 1: modes, high quality %, reverse KL; mean and standard error of 10
    ("ring", "GAN"): "6.3 ± .5, 98.2 ± .2, .45 ± .09",
    ("ring", "PacGAN2"): "7.9 ± .1, 95.6 ± 2.0, .07 ± .03",
    ("ring", "PacGAN3"): "7.8 ± .1, 97.7 ± .3, .10 ± .02",
    ("ring", "PacGAN4"): "7.8 ± .1, 95.9 ± 1.4, .07 ± .02",
    ("grid", "GAN"): "17.3 ± .8, 94.8 ± .7, .70 ± .07",
    ("grid", "PacGAN2"): "23.8 ± .7, 91.3 ± .8, .13 ± .04",
    ("grid", "PacGAN3"): "24.6 ± .4, 94.2 ± .4, .06 ± .02",
    ("grid", "PacGAN4"): "24.8 ± .2, 93.6 ± .6, .04 ± .01",
}


def players(arguments, pack, wasserstein):
    full, M = arguments.full, arguments.seeds
    wide = {"width": 400, "depth": 4, "init": 0.02} if full else {
        "width": arguments.width, "depth": 3, "norm": arguments.norm}  # fmt: skip
    judge = {"width": 200, "depth": 3, "pieces": 5, "init": 0.02} if full else {
        "width": arguments.width * 3 // 4, "depth": 2, "pieces": 3}  # fmt: skip
    judge |= {"pieces": 1} if wasserstein else {}
    rngs = [torch.Generator().manual_seed(i) for i in range(M)]
    G = Packed([Generator(2, rng=g, **wide) for g in rngs])
    return G, Packed([Discriminator(2, rng=g, pack=pack, **judge) for g in rngs])


def rules(arguments, steps, unroll, wasserstein):
    if arguments.full:
        return Rules(batch=arguments.batch, lr=1e-4, betas=(0.8, 0.999), unroll=unroll)
    costs = {"costs": WASSERSTEIN, "penalty": 0.1, "turns": 3} if wasserstein else {}
    return Rules(
        batch=arguments.batch, lr=arguments.lr, betas=(0.5, 0.999), unroll=unroll, decay=steps,
        lr_discriminator=arguments.judge_lr or None,
        **costs,
    )  # fmt: skip


def interval(values):
    """Mean and the half-width of Student's 95 % interval over seeds."""
    se = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * se


def trial(arguments, name, pack=1, unroll=0, wasserstein=False):
    make, sd = TARGETS[arguments.target]
    sd = arguments.sd or sd
    law = make(sd=sd)
    steps = arguments.steps or (400_000 if arguments.full else 6000)
    data = torch.from_numpy(law.draw(100_000, np.random.default_rng(7))).float()
    G, D = players(arguments, pack, wasserstein)
    contest = Contest(G, D, data, rules(arguments, steps, unroll, wasserstein))
    started = time.process_time()
    for quarter in range(1, 5):
        play(contest, steps // 4)
        found = [mode_recovery(x, law.means, sd) for x in contest.samples(2500)]
        row = {
            "target": arguments.target,
            "method": name,
            "step": contest.taken,
            "seeds": arguments.seeds,
            "full": arguments.full,
            "width": arguments.width,
            "lr": arguments.lr,
            "judge_lr": arguments.judge_lr,
            "sd": sd,
            "norm": arguments.norm,
            "seconds": time.process_time() - started,
        }
        for key in ("modes", "high_quality", "reverse_kl"):
            row[key] = interval([f[key].value for f in found])
        row["each"] = [f["modes"].value for f in found]
        with open(arguments.out, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(row) + "\n")
        if quarter == 4 or arguments.all:
            tell(row)


def tell(row):
    said = [
        f"{scale * row[key][0]:.{d}f} ± {scale * row[key][1]:.{d}f}"
        for key, scale, d in (("modes", 1, 1), ("high_quality", 100, 1), ("reverse_kl", 1, 2))
    ]
    paper = PAPER.get((row["target"], row["method"]), "")
    line = f"| {row['target']} | {row['method']} | {' | '.join(said)} | {paper} |"
    print(line, f"({row['step']} steps, {row['seconds']:.0f} CPU s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="grid", choices=list(TARGETS))
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--judge-lr", type=float, default=0.0, help="the discriminator's; --lr")
    parser.add_argument(
        "--sd", type=float, default=0.0, help="of the modes; the paper's if not given"
    )
    parser.add_argument("--norm", action="store_true", help="batch norm in the bounded setting")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--all", action="store_true", help="print every quarter")
    parser.add_argument("--out", default="pacgan.jsonl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| law | method | modes | high quality, % | reverse KL | PacGAN's table |")
    print("|---|---|---|---|---|---|")
    for name in arguments.only.split(","):
        trial(arguments, name, **METHODS[name])


if __name__ == "__main__":
    main()
