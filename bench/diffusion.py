"""Quality and speed of diffusion models and flow matching.

    python bench/diffusion.py [moons] [digits] [rates] [speed] [--rounds 7] [--widths 16 32 64 128]

`moons`: two moons, 1,000 steps of batch 256, 50,000 parameters; test nats by the probability flow.
`digits`: 400 steps of batch 128; test bits per dimension, and the sliced Wasserstein distance of
samples beside that of a GAN with the same training FLOPs. `rates`: validation nats of two moons at
four sizes and four learning rates, 400 steps of batch 256, one seed. `speed`: steps per second
against a bare loop in the style of diffusers on the same network, and of eight seeds vectorised
and traced (also compiled) against eight single runs; interleaved, medians of CPU seconds.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import needs
import torch
from torch import optim

from allometry.models import diffusion
from allometry.study import recipes
from allometry.study.recipes.density_losses import denoising_error
from allometry.study.recipes.density_runs import loss_on
from allometry.study.recipes.sample_scores import gan_loss
from allometry.study.request import RunContext
from allometry.targets import Images, Points, points
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep

SIZES, RATES = (1e3, 3e3, 9e3, 27e3), (0.005, 0.01, 0.02, 0.04)
"""Of `rates`."""


def trained(spec):
    """Outcome of a run's training, without its evaluation along the way."""
    request = spec()
    training = request.training()
    object.__setattr__(training, "curve_points", 1)
    training.alone()
    return request, training.model


def moons():
    target = Points(points.TwoMoons())
    print(f"two moons, entropy {target.entropy.value:.4f}")
    for family in ("diffusion", "flow_matching"):
        for spec in getattr(recipes, family)(target, [5e4], tokens=[256_000.0], seeds=2):
            request, model = trained(spec)
            test = loss_on(model, target, "test")
            print(
                f"  {family}, {request.shape_name}: test {test.value:.4f} +- {1.96 * test.se:.4f}"
            )


def digits():
    target = Images.digits()
    for family in ("diffusion", "flow_matching"):
        (spec,) = getattr(recipes, family)(target, [1.8e5], tokens=[51_200.0], seeds=1)
        request, model = trained(spec)
        test = loss_on(model, target, "test")
        compute = request.budget().C
        rows = model.sample(2000, rng=torch.Generator().manual_seed(1)).flatten(1)
        noise = torch.rand(rows.shape, generator=torch.Generator().manual_seed(2))
        distance = gan_loss((rows + noise) / target.levels, target, "test")
        bits = f"{test.value:.3f} +- {1.96 * test.se:.3f} bits per dimension"
        compared = f"{compute:.3g} FLOPs, sliced Wasserstein {distance.value:.4f}"
        print(f"digits, {family}: {bits}, {compared}", flush=True)
    for family, options in (("gan", {}), ("wgan", {"wasserstein": True})):
        for size in (3e4,):
            (spec,) = recipes.gan(target, [size], tokens=[51_200.0], seeds=1, **options)
            each = spec().budget()
            tokens = each.D * compute / each.C
            (spec,) = recipes.gan(target, [size], tokens=[tokens], seeds=1, **options)
            with tempfile.TemporaryDirectory() as folder:
                for name in ("weights", "checkpoints", "curves", "pictures"):
                    (Path(folder) / name).mkdir()
                context = RunContext(spec.key, Path(folder), lambda _: None, lambda: False)
                columns = spec()(context).columns
            test = columns["test_loss"]
            print(
                f"digits, {family}: {spec().budget().C:.3g} FLOPs, sliced Wasserstein {test:.4f}"
            )


def rates():
    target = Points(points.TwoMoons())
    for family in ("diffusion", "flow_matching"):
        for size in SIZES:
            losses = {}
            for lr in RATES:
                recipe = getattr(recipes, family)
                (spec,) = recipe(target, [size], tokens=[400 * 256.0], seeds=1, lr=lr)
                request, model = trained(spec)
                losses[lr] = loss_on(model, target, "validation", limit=2000).value
            best = min(losses, key=losses.get)
            row = " ".join(f"{loss:.3f}" for loss in losses.values())
            print(f"{family:13} {request.budget().N:6.0f}: {row}  best {best}", flush=True)


def timed(step, steps):
    started = time.process_time()
    for i in range(steps):
        step(i)
    return (time.process_time() - started) / steps


def bare_loop(seed, x, width=64):
    """As in the training scripts of diffusers: AdamW, clipping, draws inside the loop."""
    model = diffusion.points(2, width, rng=torch.Generator().manual_seed(seed))
    body = model.transforms[1]
    optimiser = optim.AdamW(body.network.parameters(), lr=1e-3)

    def step(_):
        noise, sigma = torch.randn_like(x), torch.exp(-1.2 + 1.2 * torch.randn(len(x)))
        scale = (1 + sigma**2).sqrt()[:, None]
        noisy = x + sigma[:, None] * noise
        out = body.network(noisy / scale, sigma.log() / 4)
        skip = noisy / scale**2
        denoised = skip - sigma[:, None] / scale * out
        weight = ((1 + sigma**2) / sigma**2)[:, None]
        loss = (weight * (denoised - x).square()).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body.network.parameters(), 1.0)
        optimiser.step()

    return step


def our_step(seed, x, width=64):
    model = diffusion.points(2, width, rng=torch.Generator().manual_seed(seed))
    optimiser = optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    rng = torch.Generator().manual_seed(seed)

    def step(_):
        u, noise = diffusion.even_levels(len(x), rng), torch.randn(x.shape, generator=rng)
        loss = denoising_error(model, x, u, noise)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def packed_step(seeds, x, width=64, fuse=False):
    made = [diffusion.points(2, width, rng=torch.Generator().manual_seed(s)) for s in range(seeds)]
    models = StackedModels(made)
    rng = torch.Generator().manual_seed(0)

    def draw():
        u = torch.stack([diffusion.even_levels(len(x), rng) for _ in range(seeds)])
        return (
            x.expand(seeds, *x.shape).contiguous(),
            u,
            torch.randn(seeds, *x.shape, generator=rng),
        )

    traced = TracedStep(models, denoising_error, *draw(), fuse=fuse)
    optimiser = models.optimiser(optim.AdamW, lr=1e-3)

    def step(_):
        _, gradient = traced(*draw())
        optimiser.step(gradient, clip=1.0)

    return step


def speed(rounds, width):
    x = torch.randn(256, 2, generator=torch.Generator().manual_seed(0))
    steps = {
        "ours": our_step(0, x, width),
        "bare loop": bare_loop(0, x, width),
        "8 seeds": packed_step(8, x, width),
        "8 seeds, compiled": packed_step(8, x, width, fuse=True),
    }
    seconds = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(timed(step, 30))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    shown = ", ".join(f"{name} {1 / value:.0f}" for name, value in medians.items())
    print(f"width {width}, steps per second: {shown}")
    print(f"  ours / bare loop: {medians['bare loop'] / medians['ours']:.2f}")
    for name in ("8 seeds", "8 seeds, compiled"):
        ratio = 8 * medians["ours"] / medians[name]
        print(f"  {name} / 8 single runs: {ratio:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["moons", "digits", "speed"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64, 128])
    given = parser.parse_args()
    torch.set_num_threads(1)
    for part in given.parts:
        if part == "speed":
            for width in given.widths:
                speed(given.rounds, width)
        else:
            {"moons": moons, "digits": digits, "rates": rates}[part]()


if __name__ == "__main__":
    needs.run(main)
