"""Speed of GAN training vectorised over seeds, and of one GAN, compared with bare loops.

Run: python bench/gan.py [--rounds 5]

Ours (vectorised, also traced, also compiled) and the loops are interleaved in one process on one
thread; minimum CPU seconds of each. One GAN is also traced, as in long studies. Then the same work
on two cores: two processes of vectorised seeds, compiled and not, against the loop at torch's two
threads.
"""

import argparse
import subprocess
import sys
import time

import needs
import torch
from torch import optim
from torch.nn import functional

from allometry.models.gan import Discriminator, Generator
from allometry.train.game.gan import GANSettings, GANTraining
from allometry.train.packed.stack import StackedModels

SEEDS, BATCH, WIDTH = 10, 100, 64


def pair(seed):
    rng = torch.Generator().manual_seed(seed)
    return (
        Generator(2, WIDTH, 3, norm=False, rng=rng),
        Discriminator(2, WIDTH // 2, 2, pieces=3, rng=rng),
    )


def loop(seeds):
    """The usual loop: each seed has its own models and optimisers, one after another."""
    teams = []
    for seed in range(seeds):
        G, D = pair(seed)
        teams.append(
            (G, D, optim.Adam(G.parameters(), 1e-3, (0.5, 0.999)),
             optim.Adam(D.parameters(), 1e-3, (0.5, 0.999)))
        )  # fmt: skip
    data = torch.randn(10_000, 2)

    def step():
        for G, D, g, d in teams:
            x = data[torch.randint(10_000, (BATCH,))]
            with torch.no_grad():
                made = G(torch.randn(BATCH, 2))
            real, fake = D(torch.cat([x, made])).chunk(2)
            loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
            d.zero_grad()
            loss.backward()
            d.step()
            loss = functional.softplus(-D(G(torch.randn(BATCH, 2)))).mean()
            g.zero_grad()
            loss.backward()
            g.step()

    return step


def packed(seeds, traced=False):
    G, D = zip(*(pair(seed) for seed in range(seeds)), strict=True)
    rules = GANSettings(batch=BATCH)
    return GANTraining(
        StackedModels(G), StackedModels(D), torch.randn(10_000, 2), rules, traced=traced
    ).step


KINDS = {
    "packed": packed,
    "traced": lambda seeds: packed(seeds, True),
    "fused": lambda seeds: packed(seeds, "fused"),
    "loop": loop,
}


def seconds(step, times, clock=time.process_time):
    started = clock()
    for _ in range(times):
        step()
    return (clock() - started) / times


def alone(kind, seeds, times, threads):
    """Print the seconds of `times` steps in this process."""
    torch.set_num_threads(threads)
    step = KINDS[kind](seeds)
    for _ in range(3):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    print(seconds(step, times, time.perf_counter) * times, flush=True)


def two_cores(times):
    """Wall seconds: the loop at two threads, and two processes of half the seeds each, by kind."""

    def run(kind, seeds, threads, processes):
        command = [sys.executable, __file__, "--alone", kind, "--seeds", str(seeds)]
        command += ["--times", str(times), "--threads", str(threads)]
        pipe = subprocess.PIPE
        made = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
                for _ in range(processes)]  # fmt: skip
        for p in made:
            p.stdout.readline()
        started = time.perf_counter()
        for p in made:
            p.stdin.write("\n")
            p.stdin.flush()
        for p in made:
            p.stdout.readline()
        spent = time.perf_counter() - started
        for p in made:
            p.communicate()
        return spent

    ours = {kind: run(kind, SEEDS // 2, 1, 2) for kind in ("packed", "fused")}
    # The loop may be faster with one thread than with two: the faster counts.
    return min(run("loop", SEEDS, threads, 1) for threads in (1, 2)), ours


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", choices=list(KINDS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--times", type=int, default=150)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    if a.alone:
        alone(a.alone, a.seeds, a.times, a.threads)
        return
    torch.set_num_threads(1)
    steps = {
        "packed": (packed(SEEDS), 30),
        "traced": (packed(SEEDS, traced=True), 30),
        "fused": (packed(SEEDS, traced="fused"), 30),
        "loop": (loop(SEEDS), 10),
        "one": (packed(1), 60),
        "one traced": (packed(1, traced=True), 60),
        "bare": (loop(1), 60),
    }
    for step, _ in steps.values():
        step()
    times = {name: [] for name in steps}
    for _ in range(a.rounds):
        for name, (step, n) in steps.items():
            times[name].append(seconds(step, n))
    best = {name: 1e3 * min(found) for name, found in times.items()}
    print("CPU ms per step, one thread:", {k: round(v, 2) for k, v in best.items()})
    for kind in ("packed", "traced", "fused"):
        print(f"{SEEDS} seeds, {kind}, compared with the loop: {best['loop'] / best[kind]:.2f}x")
    for kind in ("one", "one traced"):
        print(f"{kind}, compared with a bare loop: {best[kind] / best['bare']:.2f} of its time")
    slow, fast = two_cores(a.times)
    for kind, spent in fast.items():
        print(f"two cores: loop {slow:.1f} s, two {kind} processes {spent:.1f} s: "
              f"{slow / spent:.2f}x")  # fmt: skip


if __name__ == "__main__":
    needs.run(main)
