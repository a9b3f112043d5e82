"""Accuracy of fixed-size hard attention on Dyck words against nesting depth.

    python bench/hahn.py [--words 400]

Hahn (2020) proves that hard attention of any fixed size fails on nested brackets as inputs grow.
Here networks of several sizes classify words nested exactly m deep. Half of the words are
corrupted by one closing bracket of another type, at the outermost or any other position; chance is
one half. Rows are hard-attention recognisers constructed for a depth D, the best for their D + 1
layers, and the best of them at each m. Then come decoders trained on such words, with soft
attention as trained and with hardmax instead. Last is the soft compact form, whose three layers
store depth as a number, constructed for the deepest words.
"""

import argparse

import needs
import numpy as np
import torch

from allometry import Estimate
from allometry.construct import dyck
from allometry.models import Transformer
from allometry.train import adamw, descend, next_token

DEPTHS = (1, 2, 4, 8, 16)
NESTINGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def nested(m, count, k, rng):
    """Words of 2m + 8 symbols with a tower of m brackets and shallow ones inside it."""
    kinds = rng.integers(k, size=(count, m))
    pairs = rng.integers(k, size=(count, 4))
    # The shallow pairs are at the outermost level, so nesting stays m.
    inside = np.stack([2 * pairs, 2 * pairs + 1], -1).reshape(count, 8)
    return np.concatenate([inside, 2 * kinds, 2 * kinds[:, ::-1] + 1], axis=1)


def corrupted(words, m, k, rng):
    """The same words with one closing bracket of the tower replaced by another type."""
    words, rows = words.copy(), np.arange(len(words))
    place = words.shape[1] - 1 - np.where(rows % 2, 0, rng.integers(m, size=len(words)))
    old = words[rows, place] // 2
    words[rows, place] = 2 * ((old + rng.integers(1, k, size=len(words))) % k) + 1
    return words


def accuracy(made, m, count, k, rng):
    good = nested(m, count // 2, k, rng)
    bad = corrupted(nested(m, count // 2, k, rng), m, k, rng)
    right = made.many(good).sum() + (~made.many(bad)).sum()
    return right / (2 * len(good))


class Decoder:
    """A trained decoder as a recogniser: every closing bracket must be the predicted one."""

    def __init__(self, layers, k, steps):
        self.k = k
        rng = torch.Generator().manual_seed(0)
        self.model = Transformer(2 * k + 1, 32, layers, 4, positions=None, rng=rng).float()
        draws = np.random.default_rng(1)

        def objective(step):
            # Half the steps go to shallow towers, which are learnt first.
            m = int(draws.integers(1, 9 if step % 2 else max(NESTINGS) + 1))
            words = nested(m, 32, k, draws)
            start = np.full((32, 1), 2 * k)
            return next_token(self.model, torch.from_numpy(np.concatenate([start, words], 1)))

        optimiser = adamw(self.model, lr=0.005)
        descend(self.model, optimiser, objective, lambda: Estimate(0.0), steps=steps, seen=32)
        self.model.eval()

    def harden(self):
        """Replace softmax by hardmax."""
        for block in self.model.blocks:
            block.attention.hard = True
        return self

    @torch.no_grad()
    def many(self, words):
        """Whether each word is accepted."""
        start = np.full((len(words), 1), 2 * self.k)
        tokens = torch.from_numpy(np.concatenate([start, words], 1))
        expected = 2 * self.model(tokens[:, :-1])[..., 1:-1:2].argmax(-1) + 1
        fine = (tokens[:, 1:] == expected) | (tokens[:, 1:] % 2 == 0)
        return fine.all(1).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument(
        "--steps", type=int, default=1500, help="training steps; 0 skips the trained rows"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    k, longest = 2, 2 * max(NESTINGS) + 8
    print(f"{'nesting m':<28}" + "".join(f"{m:>6}" for m in NESTINGS))
    table = []
    for D in DEPTHS:
        made, rng = dyck(k, D, longest), np.random.default_rng(0)
        table.append([accuracy(made, m, arguments.words, k, rng) for m in NESTINGS])
        show(f"hard, {D + 1} layers", table[-1])
    for most in (2, 4, 8):
        rows = [row for D, row in zip(DEPTHS, table, strict=True) if most >= D]
        show(f"best of at most {most + 1} layers", [max(x) for x in zip(*rows, strict=True)])
    for layers in (2, 4) if arguments.steps else ():
        made = Decoder(layers, k, arguments.steps)
        for name in ("soft", "hardened"):
            made = made.harden() if name == "hardened" else made
            rng = np.random.default_rng(0)
            row = [accuracy(made, m, arguments.words, k, rng) for m in NESTINGS]
            show(f"trained, {layers} layers, {name}", row)
    made, rng = dyck(k, max(NESTINGS), longest, form="compact"), np.random.default_rng(0)
    row = [accuracy(made, m, arguments.words, k, rng) for m in NESTINGS]
    show("constructed, 3 layers, soft", row)


def show(name, row):
    print(f"{name:<28}" + "".join(f"{x:>6.2f}" for x in row), flush=True)


if __name__ == "__main__":
    needs.run(main)
