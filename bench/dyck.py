"""A million strings, random and adversarial, through each Dyck recogniser.

    python bench/dyck.py [--strings 1e6] [--form compact] [--language 8,10] [--seed 7]

Lengths up to 512, uniform in their logarithm: a third words drawn uniformly, two thirds near
misses (see `Dyck.near_misses`). The reference is the language itself, with a stack. Without
`--form` and `--language` all are run in sequence; results of different seeds can be added.
"""

import argparse
import time

import needs
import numpy as np
import torch

from allometry.construct import dyck
from allometry.construct.dyck import samples

LANGUAGES = ((2, 3), (8, 10), (128, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strings", type=float, default=1e6)
    parser.add_argument("--form", choices=("compact", "layered"))
    parser.add_argument("--language", help="k,D")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    forms = [arguments.form] if arguments.form else ["compact", "layered"]
    chosen = [tuple(map(int, arguments.language.split(",")))] if arguments.language else LANGUAGES
    print(f"{'k':>4} {'D':>3} {'form':>8} {'strings':>9} {'wrong':>5} {'margin':>8} {'CPU s':>8}")
    for form in forms:
        for k, D in chosen:
            tried, wrong, margin, seconds = attempt(k, D, form, arguments.strings, arguments.seed)
            row = f"{k:>4} {D:>3} {form:>8} {tried:>9,} {wrong:>5} {margin:>8.5f} {seconds:>8.0f}"
            print(row, flush=True)


def attempt(k, D, form, strings, seed):
    made = dyck(k, D, 512, form=form)
    begin, tried, wrong, margin = time.process_time(), 0, 0, np.inf
    for words, lengths in samples(made.language, 512, np.random.default_rng(seed)):
        count, bad, least, _ = made.compare(words, lengths)
        tried, wrong, margin = tried + count, wrong + bad, min(margin, least)
        if tried >= strings:
            break
    return tried, wrong, margin, time.process_time() - begin


if __name__ == "__main__":
    needs.run(main)
