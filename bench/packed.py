"""Our vectorised trainers beside `jax.jit(jax.vmap(step))` on one CPU core.

    python bench/packed.py [--families mlp flow vae gan transformer] [--members 8 64] [--rounds 5]

Both train the same models from the same weights on the same batches, with the same AdamW, clipping
and schedule, in float32: the losses of the first steps must agree to one part in a thousand, or
the bench stops. Ours runs as in a study: `BatchedTrainer` (for GANs `GANTraining`), traced, and
compiled (`--no-compile` leaves that out; compiling takes up to a minute for each row). JAX's step
is one compiled function with donated buffers. Both are interleaved in one process, which is bound
to one core; the ratio is JAX's median CPU seconds of a step by ours, so above 1 ours is faster.

JAX is no dependency: install it beside (`pip install jax`).
"""

import argparse
import itertools
import os
import sys
import time
from statistics import median

import needs
import numpy as np
import torch

from allometry._core.estimate import Estimate
from allometry.models import autoencoders, flows
from allometry.models.flows.conditioners import MLP
from allometry.models.gan import Discriminator, Generator
from allometry.study.recipes.transformer_runs import decoder
from allometry.train import BatchedTrainer, Training, adamw
from allometry.train.game.gan import GANSettings, GANTraining
from allometry.train.lr_schedule import warmup_decay
from allometry.train.objectives import negative_log_likelihood, next_token
from allometry.train.packed.stack import StackedModels

STEPS, RATE, BATCH, POOL = 100_000, 1e-3, 256, 16
VOCABULARY, CONTEXT, SHAPE = 96, 64, (32, 2, 2)  # width, depth, heads: about 25,000 parameters
LAYERS = 8
GAN_BATCH = 100


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def squared(model, x, y):
    return (model(x)[:, 0] - y).square().mean()


def pools(members, make):
    """Batches of every member: `POOL` of each, so that drawing them costs neither side."""
    return [[make(seeded(1000 * m + i)) for i in range(POOL)] for m in range(members)]


def normal(*shape):
    return lambda rng: torch.randn(*shape, generator=rng)


def both(*makes):
    return lambda rng: tuple(make(rng) for make in makes)


def tokens(rng):
    return torch.randint(VOCABULARY, (8, CONTEXT + 1), generator=rng)


FAMILIES = {
    "mlp": (
        lambda rng: MLP(8, 1, 64, 2, rng),
        squared,
        both(normal(BATCH, 8), normal(BATCH)),
    ),
    "flow": (
        lambda rng: flows.affine_coupling(2, LAYERS, 32, rng=rng),
        negative_log_likelihood,
        both(normal(BATCH, 2)),
    ),
    "vae": (
        lambda rng: autoencoders.dense_vae((2,), 2, autoencoders.Gaussian(), (64, 64), rng),
        negative_log_likelihood,
        both(normal(BATCH, 2), normal(BATCH, 2)),
    ),
    "transformer": (
        lambda rng: decoder(VOCABULARY, *SHAPE, CONTEXT, rng),
        next_token,
        both(tokens),
    ),
}  # fmt: skip
"""Model, objective and batch of each family."""


def rate(step):
    """The learning rate of every training."""
    warmup = max(1, STEPS // 20)
    return RATE * warmup_decay(step, steps=STEPS, warmup=warmup, shape="cosine")


class Ours:
    """Steps of a stack of trainings in one mode."""

    def __init__(self, models, objective, pool, mode):
        named = {
            str(m): Training(
                model=model, optimiser=adamw(model, lr=RATE), objective=objective,
                batch=lambda step, own=own: own[step % POOL],
                measure=lambda _: Estimate(0.0), steps=STEPS, seen=1, curve_points=1,
            )
            for m, (model, own) in enumerate(zip(models, pool, strict=True))
        }  # fmt: skip
        compiled = mode == "compiled"
        self.trainer = BatchedTrainer(named, size=len(named), compiled=compiled, traced=True)
        self.taken = 0

    def __call__(self, steps):
        """Take steps; returns the losses of all members before each."""
        (stack,) = self.trainer.stacks
        losses = []
        for _ in range(steps):
            losses.append(stack.step(self.taken)[0].numpy())
            self.taken += 1
        return np.stack(losses)


class Fixed:
    """Batches and noise of GANs from the pools of the members, in place of `GANBatches`."""

    def __init__(self, pool):
        stacked = [tuple(map(torch.stack, zip(*batches, strict=True)))
                   for batches in zip(*pool, strict=True)]  # fmt: skip
        real, *noise = zip(*stacked, strict=True)
        self.next_real = itertools.cycle(real)
        # The discriminator's noise and the generator's alternate.
        self.next_noise = itertools.cycle(itertools.chain(*zip(*noise, strict=True)))

    def real(self):
        """The next data."""
        return next(self.next_real)

    def latents(self):
        """The next noise."""
        return next(self.next_noise)


class OurGAN:
    """Steps of stacked GANs in one mode."""

    def __init__(self, generators, discriminators, pool, mode):
        G, D = StackedModels(generators), StackedModels(discriminators)
        data = torch.randn(1000, 2, generator=seeded(0))
        rules = GANSettings(batch=GAN_BATCH, lr=RATE)
        self.game = GANTraining(G, D, data, rules, traced="fused" if mode == "compiled" else True)
        self.game.draws = Fixed(pool)

    def __call__(self, steps):
        """Take steps; returns the discriminators' costs before each."""
        losses = []
        for _ in range(steps):
            self.game.step()
            losses.append(self.game.cost_D.numpy())
        return np.stack(losses)


def stacked(pool, jnp):
    """The batches of each step for JAX, stacked and converted in advance."""
    steps = [map(torch.stack, zip(*batches, strict=True)) for batches in zip(*pool, strict=True)]
    made = [tuple(jnp.asarray(part.numpy()) for part in parts) for parts in steps]
    return lambda step: made[step % POOL]


def gan_pair(rng):
    G = Generator(2, 64, 3, norm=False, rng=rng)
    return G, Discriminator(2, 32, 2, pieces=3, rng=rng)


def gan_runners(members, modes):
    import packed_jax
    from jax import numpy as jnp

    G, D = zip(*(gan_pair(seeded(m)) for m in range(members)), strict=True)
    draw = normal(GAN_BATCH, 2)
    pool = pools(members, both(draw, draw, draw))
    runners = {mode: OurGAN(G, D, pool, mode) for mode in modes}
    jax = packed_jax.game(G, D, stacked(pool, jnp), lambda _: RATE)
    return runners | {"jax": jax}


def runners(family, members, modes):
    """A runner for each of our modes, and JAX's."""
    if family == "gan":
        return gan_runners(members, modes)
    import packed_jax
    from jax import numpy as jnp

    make, objective, batch = FAMILIES[family]
    models = [make(seeded(m)) for m in range(members)]
    pool = pools(members, batch)
    found = {mode: Ours(models, objective, pool, mode) for mode in modes}
    losses = {"mlp": packed_jax.mlp, "vae": packed_jax.vae}
    losses["flow"] = lambda p, x: packed_jax.flow(p, x, LAYERS)
    _, depth, heads = SHAPE
    if family == "transformer":
        turns = tuple(jnp.asarray(t.numpy()) for t in models[0].position_buffer[:, :CONTEXT])
        scale = models[0].readout_scale
        losses[family] = lambda p, t: packed_jax.transformer(p, t, turns, depth, heads, scale)
    given = stacked(pool, jnp)
    return found | {"jax": packed_jax.training(losses[family], models, given, rate)}


def agree(first):
    """Stop unless all runners had the same losses in their first steps."""
    for mode, losses in first.items():
        if not np.allclose(losses, first["jax"], rtol=1e-3, atol=1e-4):
            gap = np.abs(losses - first["jax"]).max()
            sys.exit(f"The losses of {mode} and JAX differ by {gap:.2g}: not the same arithmetic.")


def race(family, members, modes, rounds):
    """CPU seconds of a step of all members, medians of interleaved rounds."""
    made = runners(family, members, modes)
    agree({mode: run(3) for mode, run in made.items()})
    once = time.process_time()
    made["jax"](3)
    steps = max(3, round(0.5 * 3 / max(1e-4, time.process_time() - once)))
    spent = {mode: [] for mode in made}
    for turn in range(rounds):
        order = list(made) if turn % 2 else list(made)[::-1]
        for mode in order:
            started = time.process_time()
            made[mode](steps)
            spent[mode].append((time.process_time() - started) / steps)
    return {mode: median(found) for mode, found in spent.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["mlp", "flow", "vae", "gan", "transformer"]
    parser.add_argument("--families", nargs="+", choices=names, default=names)
    parser.add_argument("--members", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="our traced steps only")
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX makes its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        import jax
    except ImportError:
        sys.exit("JAX is not installed, so there is nothing to compare with: pip install jax.")
    torch.set_num_threads(1)
    modes = ["traced"] if asked.no_compile else ["traced", "compiled"]
    print(f"CPU ms of a step of all members; torch {torch.__version__}, JAX {jax.__version__}")
    print("| family | members | " + " | ".join(f"{mode}" for mode in modes) + " | JAX | ratio |")
    print("|" + "---|" * (len(modes) + 4))
    for family in asked.families:
        for members in asked.members:
            found = race(family, members, modes, asked.rounds)
            cells = " | ".join(f"{1e3 * found[mode]:.2f}" for mode in [*modes, "jax"])
            ratios = ", ".join(f"{found['jax'] / found[mode]:.2f}x" for mode in modes)
            print(f"| {family} | {members} | {cells} | {ratios} |", flush=True)


if __name__ == "__main__":
    needs.run(main)
