"""A million strings, random and made to deceive, through each recogniser of brackets.

    python bench/dyck.py [strings]

Lengths to 512, spread evenly in their logarithm: a third words drawn uniformly, two thirds near
misses (see `Dyck.near_misses`). The language itself, with a stack, tells the truth.
"""

import sys
import time

import numpy as np

from allometry.construct import dyck
from allometry.construct.dyck import samples


def main(strings):
    print(
        f"{'k':>4} {'D':>3} {'form':>8} {'strings':>9} {'wrong':>5} {'margin':>8} {'seconds':>8}"
    )
    for form in ("compact", "layered"):
        for k, D in ((2, 3), (8, 10), (128, 10)):
            made = dyck(k, D, 512, form=form)
            begin, tried, wrong, margin = time.time(), 0, 0, np.inf
            for words, lengths in samples(made.language, 512, np.random.default_rng(7)):
                count, bad, least, _ = made.compare(words, lengths)
                tried, wrong, margin = tried + count, wrong + bad, min(margin, least)
                if tried >= strings:
                    break
            seconds = time.time() - begin
            row = f"{k:>4} {D:>3} {form:>8} {tried:>9,} {wrong:>5} {margin:>8.5f} {seconds:>8.0f}"
            print(row, flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
