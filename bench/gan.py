"""Speed of packed adversarial games beside loops over seeds, and of one game beside a bare loop.

Run: python bench/gan.py [--rounds 5]

Ours and the loops take turns in one process on one thread, least CPU seconds of each; then the
same work on two cores: two processes of packed seeds against the loop at torch's two threads.
"""

import argparse
import subprocess
import sys
import time

import torch
from torch import optim
from torch.nn import functional

from allometry.models.gan import Discriminator, Generator
from allometry.train.game.gan import Contest, Rules
from allometry.train.packed import Packed

SEEDS, BATCH, WIDTH = 10, 100, 64


def pair(seed):
    rng = torch.Generator().manual_seed(seed)
    return (
        Generator(2, WIDTH, 3, norm=False, rng=rng),
        Discriminator(2, WIDTH // 2, 2, pieces=3, rng=rng),
    )


def loop(seeds):
    """What a person writes: each seed its own models and optimisers, one after another."""
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


def packed(seeds):
    G, D = zip(*(pair(seed) for seed in range(seeds)), strict=True)
    game = Contest(Packed(G), Packed(D), torch.randn(10_000, 2), Rules(batch=BATCH))
    return game.step


def seconds(step, times, clock=time.process_time):
    started = clock()
    for _ in range(times):
        step()
    return (clock() - started) / times


def alone(kind, seeds, times, threads):
    """Seconds of `times` steps in this process, printed when done."""
    torch.set_num_threads(threads)
    step = (packed if kind == "packed" else loop)(seeds)
    for _ in range(3):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    print(seconds(step, times, time.perf_counter) * times, flush=True)


def two_cores(times):
    """Wall seconds: the loop at two threads, then two processes of half the seeds each, packed."""

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

    return run("loop", SEEDS, 2, 1), run("packed", SEEDS // 2, 1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", choices=["packed", "loop"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--times", type=int, default=150)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    if a.alone:
        alone(a.alone, a.seeds, a.times, a.threads)
        return
    torch.set_num_threads(1)
    ours, theirs, one, bare = packed(SEEDS), loop(SEEDS), packed(1), loop(1)
    times = {"ours": [], "theirs": [], "one": [], "bare": []}
    for _ in range(a.rounds):
        for name, step, n in (
            ("ours", ours, 30), ("theirs", theirs, 10), ("one", one, 60), ("bare", bare, 60),
        ):  # fmt: skip
            times[name].append(seconds(step, n))
    best = {name: 1e3 * min(found) for name, found in times.items()}
    print("CPU ms a step, one thread:", {k: round(v, 2) for k, v in best.items()})
    print(f"{SEEDS} seeds packed against the loop: {best['theirs'] / best['ours']:.2f}x")
    print(f"one seed against a bare loop: {best['one'] / best['bare']:.2f} of its time")
    slow, fast = two_cores(a.times)
    print(f"two cores: loop {slow:.1f} s, two packed processes {fast:.1f} s: {slow / fast:.2f}x")


if __name__ == "__main__":
    main()
