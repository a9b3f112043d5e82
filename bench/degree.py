"""Do layers of degree 3 learn more than layers of degree 2 or 4 at the same budget?

    python bench/degree.py [--starts 48] [--kicks 10]   six forms on Chebyshev polynomials
    python bench/degree.py --sweep                      how that depends on the kicks
    python bench/degree.py --teachers [NAME ...]        twelve forms on eight variables, with Adam

Networks of width 1 on two inputs, six linear forms each: three layers of degree 2 (16 parameters)
and two of degree 3 (17), and controls. They are fitted to Chebyshev polynomials of the inputs'
mean by Levenberg-Marquardt, with and without kicks. Solved means a relative squared error below
1e-3 on fresh points. `--teachers` runs all stacks of `allometry run degree`, with more seeds and
rates; `--stacks` and `--seeds` select.
"""

import argparse
import json
import time

import needs
import torch

from allometry.measure.uncertainty import median
from allometry.study.recipes.chebyshev_runs import solve_chebyshev
from allometry.study.recipes.polynomial_learning import TEACHERS, teacher_epsilon_rank
from allometry.study.recipes.polynomial_stacks import SMALL, STACKS
from allometry.train.packed_regression import learn_function

CASES = [
    (9, "T_2"),
    (9, "T_3"),
    (8, "T_2"),
    (8, "T_3"),
    (8, "T_2 wide"),
    (8, "T_3 wide"),
    (9, "half cubic"),
    (9, "tied cubes"),
]
SWEEP = [(0, 0.3), (3, 0.3), (10, 0.1), (10, 0.3), (10, 1.0), (30, 0.3)]
RATES = (1e-2, 3e-2, 6e-2, 1e-1, 2e-1)


def solved(k, name, starts, kicks, size=0.3):
    begun = time.process_time()
    share = solve_chebyshev(k, SMALL[name], starts, kicks=kicks, size=size)
    lo, hi = share.interval
    print(
        f"kicks {kicks:2d} of size {size}  Chebyshev-{k}  {name}: {SMALL[name].words}, "
        f"{SMALL[name].size(2)} parameters  solved {share.value:.2f} ({lo:.2f} to {hi:.2f}) of "
        f"{starts}  {time.process_time() - begun:.0f} s",
        flush=True,
    )


def learnt(teacher, name, seeds, steps):
    begun = time.process_time()
    f, stack = TEACHERS[teacher](), STACKS[name]
    found = learn_function(
        lambda rng: stack.network(f.inputs, True, rng),
        *(f, f.inputs),
        seeds=seeds,
        rates=RATES,
        trials=4,
        steps=steps,
    )
    error = median(found.test)
    lo, hi = error.interval
    print(
        f"{f.name} (rank {f.rank}, {teacher_epsilon_rank(f)} at 0.1, "
        f"{teacher_epsilon_rank(f, 0.01)} at 0.01)  {name}: {stack.words}, {stack.size(f.inputs)} "
        f"parameters  error {error.value:.4g} ({lo:.4g} to {hi:.4g}) of {seeds} seeds, rate "
        f"{found.rate:g} by validation {json.dumps(found.validation)}  "
        f"{time.process_time() - begun:.0f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=48)
    parser.add_argument("--kicks", type=int, default=10)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--teachers", nargs="*", choices=list(TEACHERS))
    parser.add_argument("--stacks", nargs="*", choices=list(STACKS), default=list(STACKS))
    parser.add_argument("--seeds", type=int, default=48)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.teachers is not None:
        for teacher in arguments.teachers or list(TEACHERS):
            for name in arguments.stacks:
                learnt(teacher, name, arguments.seeds, arguments.steps)
    elif arguments.sweep:
        for k, name in ((9, "T_3"), (8, "T_2")):
            for kicks, size in SWEEP:
                solved(k, name, arguments.starts, kicks, size)
    else:
        for kicks in sorted({0, arguments.kicks}):
            for k, name in CASES:
                solved(k, name, arguments.starts, kicks)


if __name__ == "__main__":
    needs.run(main)
