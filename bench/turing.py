"""Networks that run Turing machines: every configuration against the simulator's.

    python bench/turing.py [--steps 10000]

One thread, CPU seconds. `--steps` is the number of steps of the five-state busy beaver, token by
token.
"""

import argparse
import time

import needs
import torch

from allometry.construct import turing
from allometry.targets.machines import binary_increment, busy_beaver, copy, palindrome

WORDS = {"increment": "1011", "palindrome": "abba", "copy": "ab"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'machine':<16}{'mode':<16}{'blocks':>7}{'parameters':>12}{'equal':>16}{'seconds':>9}")
    small = {"increment": binary_increment(), "palindrome": palindrome(), "copy": copy()}
    for states, steps in ((2, 6), (3, 21), (4, 107)):
        for mode in ("depth", "looped", "autoregressive"):
            compare(f"{states} states", busy_beaver(states), "", steps, mode)
    for name, machine in small.items():
        for mode in ("depth", "looped", "autoregressive"):
            compare(name, machine, WORDS[name], 40, mode)
    compare("5 states", busy_beaver(5), "", arguments.steps, "autoregressive")


def compare(name, machine, word, steps, mode):
    start = time.process_time()
    options = {"n": len(word)} if mode == "autoregressive" else {}
    made = turing(machine, steps=steps, mode=mode, **options)
    equal = total = 0
    for mine, theirs in zip(made.trace(word), machine.trace(word, steps=steps), strict=True):
        equal, total = equal + (mine == theirs), total + 1
    size = sum(p.numel() for p in made.model.parameters())
    blocks = 1 if made.model.shared else made.model.depth
    spent = time.process_time() - start
    print(
        f"{name:<16}{mode:<16}{blocks:>7}{size:>12,}{equal:>8,} of {total:<6,}{spent:>8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    needs.run(main)
