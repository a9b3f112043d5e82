"""A transformer of nanoGPT's CPU shape on Tiny Shakespeare: does our loop reach its loss?

Run: python bench/shakespeare.py PATH/TO/input.txt [--lr 0.008] [--seed 0]

4 layers, 4 heads, width 128, context 64, batch 12, 2,000 steps; first 90 % train, all of the
rest is validation, in disjoint windows. nanoGPT's README gives 1.88 for its own recipe.
"""

import argparse
import math

import needs
import torch

from allometry.models import Transformer
from allometry.targets import Text
from allometry.train.loop import train
from allometry.train.optimiser import adamw


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--lr", type=float, default=0.008)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    text = Text(arguments.path, splits=(0.9, 0.1, 0.0))
    rng = torch.Generator().manual_seed(arguments.seed)
    model = Transformer(text.vocabulary.size, 128, 4, 4, 64, readout_scale=0.5, rng=rng)
    optimiser = adamw(
        model, lr=arguments.lr / math.sqrt(4), width=128, base_width=64, weight_decay=0.1
    )
    done = train(
        model, optimiser, text, steps=arguments.steps, batch=12, context=64, seed=arguments.seed
    )
    print(f"validation {done.loss} nats per character, {done.seconds:.0f} s")


if __name__ == "__main__":
    needs.run(main)
