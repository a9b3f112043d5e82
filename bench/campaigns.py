"""Campaigns of `allometry compare --run`: false verdicts, and runs until a verdict.

    PYTHONPATH=src:. python bench/campaigns.py [aa] [trainings] [power] [--count 240] [--quick]

The referee is the real one, with its scheduler, journals and folders; trainings are a function
that returns at once. A campaign ends with a verdict or with 8 seeds of every size.

aa         Equal recipes whose losses follow a law: exponents, irreducible shares, noise (0.1 to
           1 %), 3 to 5 sizes, noise shared within pairs or not, three learning rates or one,
           compute known in advance or read from the runs.
trainings  Equal recipes whose losses are real trainings of an MLP on scikit-learn's digits
           (3 widths x 60 seeds, drawn without replacement in each campaign).
power      A gain of 1.1, 1.2 and 1.5 in compute with noise of 0.3 %: share of campaigns that name
           the winner, runs until then, and runs of the smallest fixed design (4 sizes, equal
           seeds, one look by the 95 % interval) that names it in at least as many.
"""

import argparse
import math
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import needs
import numpy as np
from tests.support.stub import Here

from allometry import laws
from allometry.study import function_study, referee, referee_arm

SEEDS = 8


@dataclass
class World:
    """The law of a campaign; `gain` is what the second recipe's compute is multiplied by."""

    number: int = 0
    a: float = 0.15
    share: float = 0.5
    noise: float = 0.003
    shared: float = 0.5
    gain: float = 1.0
    middle: float = 1e9
    rates: bool = False
    pool: dict | None = None

    def loss(self, shape, seed, second):
        """The loss of a run."""
        if self.pool is not None:
            return self.pool[shape["width"]][2 * seed + second]
        C = 6.0 * shape["width"] ** 2 * 1000 * (self.gain if second else 1.0)
        rate = round(1e6 * shape.get("lr", 0))
        common, own = (
            np.random.default_rng([self.number, seed, shape["width"], rate, side]).normal()
            for side in (2, second)
        )
        chance = math.sqrt(self.shared) * common + math.sqrt(1 - self.shared) * own
        tuned = 0.02 * math.log10(shape["lr"] / 0.003) ** 2 if self.rates else 0.0
        law = self.share + (1 - self.share) * (C / self.middle) ** -self.a
        return float(law * math.exp(self.noise * chance + tuned))


WORLD = World()


def first(shape, tokens, seed):
    """The first recipe."""
    return {"loss": WORLD.loss(shape, seed, 0), "N": shape["width"] ** 2}


def second(shape, tokens, seed):
    """The second."""
    return {"loss": WORLD.loss(shape, seed, 1), "N": shape["width"] ** 2}


def campaign(world, shapes):
    """The answer of the referee in a new folder."""
    import campaigns  # a recipe's function is resolved by the name of its module

    campaigns.WORLD = world
    studies = {
        "first": function_study(campaigns.first, shapes, tokens=1000),
        "second": function_study(campaigns.second, shapes, tokens=1000),
    }
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return referee.referee(studies, folder, 1e9, Here())


def table(widths, *, known=True, rates=False):
    """Shapes of the widths."""
    shapes = [{"width": w} | ({"N": w * w} if known else {}) for w in widths]
    tried = (0.001, 0.003, 0.01)
    return [s | {"lr": r} for s in shapes for r in tried] if rates else shapes


def equal(count):
    """False verdicts of random laws by kind of campaign."""
    rng = np.random.default_rng(0)
    kinds = ("paired", "not paired", "three learning rates", "compute unknown")
    found = {kind: [0, 0, 0] for kind in kinds}
    for i in range(count):
        kind = kinds[i % 4]
        widths = [round(32 * 2 ** (k * 1.25)) for k in range(rng.integers(3, 6))]
        world = World(
            number=i,
            a=float(rng.uniform(0.08, 0.3)),
            share=float(rng.uniform(0.2, 0.8)),
            noise=float(np.exp(rng.uniform(np.log(0.001), np.log(0.01)))),
            shared=0.0 if kind == "not paired" else float(rng.uniform(0.2, 0.8)),
            rates=kind == "three learning rates",
        )
        shapes = table(widths, known=kind != "compute unknown", rates=world.rates)
        done = campaign(world, shapes)
        found[kind][0] += 1
        found[kind][1] += done.found.winner is not None
        found[kind][2] += done.runs
        if (i + 1) % 40 == 0 or i + 1 == count:
            wrong = sum(bad for _, bad, _ in found.values())
            print(f"equal: {wrong} of {i + 1} = {wrong / (i + 1):.3f}", flush=True)
    for kind, (each, bad, runs) in found.items():
        print(f"equal, {kind}: {bad} of {each}, {runs / max(each, 1):.0f} runs each", flush=True)


def trainings(count):
    """False verdicts with losses of real trainings."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    losses = {}
    for width in (4, 8, 16):
        losses[width] = []
        for seed in range(60):
            model = MLPClassifier(
                (width,), max_iter=12, random_state=seed, learning_rate_init=0.01
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x[:1200], y[:1200])
            losses[width].append(log_loss(y[1200:], model.predict_proba(x[1200:])))
    rng, wrong = np.random.default_rng(1), 0
    for i in range(count):
        pool = {w: rng.permutation(values)[: 2 * SEEDS].tolist() for w, values in losses.items()}
        done = campaign(World(number=i, pool=pool), table(losses))
        wrong += done.found.winner is not None
    print(f"trainings: {wrong} verdicts in {count}", flush=True)


def power(count):
    """Runs until the winner is named, against fixed designs."""
    widths = [32, 90, 254, 718]
    print(
        "multiplier | named | wrong | runs: median (90 %) | fixed design: seeds, runs", flush=True
    )
    for gain in (1.1, 1.2, 1.5):
        runs, wrong = [], 0
        for i in range(count):
            done = campaign(World(number=i, gain=gain), table(widths))
            wrong += done.found.winner == "first"
            runs += [done.runs] if done.found.winner == "second" else []
        named = len(runs) / count
        text = f"{np.median(runs):.0f} ({np.quantile(runs, 0.9):.0f})" if runs else "none"
        for seeds in range(1, SEEDS + 1):
            share = np.mean([fixed(gain, i, seeds, widths) for i in range(count)])
            if share >= named:
                break
        cells = (f"{named:.2f}", wrong, text, f"{seeds}, {8 * seeds} (names {share:.2f})")
        print(" | ".join(map(str, (gain, *cells))), flush=True)


def fixed(gain, number, seeds, widths):
    """Whether a fixed design names the winner by the interval at the largest size."""
    world, rows = World(number=number, gain=gain), []
    for width in widths:
        for seed in range(seeds):
            for side in (0, 1):
                loss = world.loss({"width": width}, seed, side)
                rows.append(("ab"[side], width**2, 1000, seed, loss))
    names = ("recipe", "N", "D", "seed", "loss")
    frame = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    found = laws.compare_recipes(frame)
    return found.leader == "b" and found.multiplier.interval[0] > 1


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["aa", "trainings", "power"])
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    referee_arm.MOST_SEEDS = referee.MOST_SEEDS = SEEDS
    count = 24 if asked.quick else asked.count
    if "aa" in asked.parts:
        equal(count)
    if "trainings" in asked.parts:
        trainings(count // 6)
    if "power" in asked.parts:
        power(count // 8)


if __name__ == "__main__":
    needs.run(main)
