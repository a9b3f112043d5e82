"""Error of a Gaussian's mean under contamination, by adversarial loss, mean and median.

Run: python bench/robust.py [--seeds 10] [--steps 400]
"""

import argparse

import needs
import torch

from allometry.study.robust_estimation import contamination


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shares = (0.0, 0.1, 0.2)
    for scaled in (False, True):
        rows = contamination(
            shares=shares, seeds=arguments.seeds, steps=arguments.steps, scaled=scaled
        )
        print("\ntranslation and scale:" if scaled else "translation only:", flush=True)
        print("| estimator | no outliers | 10 % | 20 % |\n|---|---|---|---|")
        for loss in dict.fromkeys(r["loss"] for r in rows):
            each = [r["error"] for r in rows if r["loss"] == loss]
            cells = [f"{e.value:.3f} ± {e.hi - e.value:.3f}" for e in each]
            print(f"| {loss} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    needs.run(main)
