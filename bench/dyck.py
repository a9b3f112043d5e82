"""A million strings, random and made to deceive, through each recogniser of brackets.

    python bench/dyck.py [--strings 1e6] [--form compact] [--language 8,10] [--seed 7]

Lengths to 512, spread evenly in their logarithm: a third words drawn uniformly, two thirds near
misses (see `Dyck.near_misses`). The language itself, with a stack, tells the truth. Without
`--form` and `--language` all are tried in turn; seeds make parts that can be added up.
"""

import argparse
import time

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
    given = parser.parse_args()
    torch.set_num_threads(1)
    forms = [given.form] if given.form else ["compact", "layered"]
    chosen = [tuple(map(int, given.language.split(",")))] if given.language else LANGUAGES
    print(f"{'k':>4} {'D':>3} {'form':>8} {'strings':>9} {'wrong':>5} {'margin':>8} {'CPU s':>8}")
    for form in forms:
        for k, D in chosen:
            tried, wrong, margin, seconds = attempt(k, D, form, given.strings, given.seed)
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
    main()
