"""Compiling programs: seconds, parameters and correct answers, ours and Tracr's.

    python bench/programs.py [--tracr PYTHON:CHECKOUT] [--repeats 3]

CHECKOUT is a copy of Tracr's repository and PYTHON an interpreter with jax and haiku. Without it,
Tracr's columns are omitted. Each program is compiled `--repeats` times by both, interleaved; the
figures are medians of CPU seconds. Answers are compared with plain Python: 6 inputs of full length
for Tracr; every input up to length 4 and 60 of full length for ours. Inputs of full length are
random; for brackets every second one is balanced.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import time

import needs
import numpy as np
import torch

from allometry.construct import program
from allometry.construct.programs import library
from allometry.targets import ShuffleDyck


def balanced(pairs):
    both = str.maketrans("{}", "[]")
    return lambda w: [ShuffleDyck(pairs).accepts("".join(w).translate(both))] * len(w)


CASES = {
    "length 5": (library.length(), "abc", 5, lambda w: [len(w)] * len(w)),
    "length 12": (library.length(), "abc", 12, lambda w: [len(w)] * len(w)),
    "reverse 5": (library.reverse(), "abcde", 5, lambda w: w[::-1]),
    "histogram 8": (library.histogram(), "abcdefgh", 8, lambda w: [w.count(t) for t in w]),
    "sort 5": (library.sort(), [1, 2, 3, 4, 5], 5, sorted),
    "sort 16": (library.sort(), [1, 2, 3, 4, 5], 16, sorted),
    "sort by frequency 5": (
        library.sort_by_frequency(),
        "abcde",
        5,
        lambda w: sorted(w, key=lambda t: -w.count(t)),
    ),
    "shuffle-Dyck-1 10": (library.shuffle_dyck(["()"]), "()", 10, balanced(1)),
    "shuffle-Dyck-2 10": (library.shuffle_dyck(["()", "{}"]), "(){}", 10, balanced(2)),
    "shuffle-Dyck-2 20": (library.shuffle_dyck(["()", "{}"]), "(){}", 20, balanced(2)),
}

# Runs under the other interpreter: names and inputs in, seconds, parameters and answers out.
PEER = r"""
import json, sys, time
import jax
from tracr.compiler import compiling, lib
from tracr.rasp import rasp
makers = {
    "length": lambda n: lib.make_length(),
    "reverse": lambda n: lib.make_reverse(rasp.tokens),
    "histogram": lambda n: lib.make_hist(),
    "sort": lambda n: lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=n, min_key=1),
    "sort by frequency": lambda n: lib.make_sort_freq(n),
    "shuffle-Dyck-1": lambda n: lib.make_shuffle_dyck(["()"]),
    "shuffle-Dyck-2": lambda n: lib.make_shuffle_dyck2(),
}
for line in sys.stdin:
    job = json.loads(line)
    kind, _, size = job["name"].rpartition(" ")
    start = time.process_time()
    made = compiling.compile_rasp_to_model(
        makers[kind](int(size)), vocab=set(job["alphabet"]), max_seq_len=job["n"],
        compiler_bos="BOS")
    seconds = time.process_time() - start
    count = sum(x.size for x in jax.tree_util.tree_leaves(made.params))
    out = [list(made.apply(["BOS", *w]).decoded[1:]) for w in job["words"]]
    print(json.dumps({"seconds": seconds, "parameters": count, "out": out}, default=float),
          flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracr", help="PYTHON:CHECKOUT")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    peer = None
    if arguments.tracr:
        python, checkout = arguments.tracr.split(":")
        peer = subprocess.Popen(
            [python, "-c", PEER], cwd=checkout, stdin=-1, stdout=-1, stderr=-3, text=True
        )
    print(f"{'program':<22}{'ours':>24}{'wrong of':>14}{'Tracr':>28}{'wrong of':>14}")
    for name, (expr, alphabet, n, oracle) in CASES.items():
        ours, theirs, made, answer = [], [], None, None
        rng = np.random.default_rng(0)
        words = [[alphabet[i] for i in w] for w in rng.integers(len(alphabet), size=(60, n))]
        if "Dyck" in name:
            words[::2] = [shuffled(alphabet, n, rng) for _ in words[::2]]
        for _ in range(arguments.repeats):
            start = time.process_time()
            made = program(expr, alphabet=alphabet, n=n)
            ours.append(time.process_time() - start)
            if peer is not None:
                answer = ask(peer, name, alphabet, n, words[:6])
                theirs.append(answer["seconds"])
        tried, wrong = checked(made, alphabet, words, oracle)
        size = sum(p.numel() for p in made.model.parameters())
        row = f"{name:<22}{size:>12,} {statistics.median(ours):>9.3f} s{wrong:>6} {tried:>7,}"
        if answer is not None:
            bad = sum(a != oracle(w) for a, w in zip(answer["out"], words[:6], strict=True))
            row += (
                f"{answer['parameters']:>14,} {statistics.median(theirs):>9.2f} s{bad:>6} {6:>7}"
            )
        print(row, flush=True)
    if peer is not None:
        peer.stdin.close()


def shuffled(alphabet, n, rng):
    """A word of n symbols in which each type of bracket is balanced."""
    word, waiting = [], []
    while len(word) < n:
        free = n - len(word) - len(waiting)
        if free > 0 and (not waiting or rng.random() < 0.5):
            kind = 2 * int(rng.integers(len(alphabet) // 2))
            word.append(alphabet[kind])
            waiting.append(alphabet[kind + 1])
        else:
            word.append(waiting.pop(int(rng.integers(len(waiting)))))
    return word


def ask(peer, name, alphabet, n, words):
    job = {"name": name, "alphabet": list(alphabet), "n": n, "words": words}
    peer.stdin.write(json.dumps(job) + "\n")
    peer.stdin.flush()
    return json.loads(peer.stdout.readline())


def checked(made, alphabet, words, oracle):
    groups = [[list(w) for w in itertools.product(alphabet, repeat=k)] for k in range(1, 5)]
    tried = wrong = 0
    for group in [*groups, words]:
        answers = made.many(group)
        wrong += sum(a != oracle(w) for a, w in zip(answers, group, strict=True))
        tried += len(group)
    return tried, wrong


if __name__ == "__main__":
    needs.run(main)
