"""Training speed on a GPU: tokens per second, memory, pack sizes and share of peak.

    python bench/gpu.py [--device cuda] [--seconds 2] [--packs 1 8 32 64]

For a person with a GPU: no figure of this table has been measured by the authors. Each row is one
shape, alone or vectorised, by the loop that studies use (batches copied in blocks, losses read in
blocks). "expected" is a roofline: a step takes the largest of its arithmetic at peak, its traffic
at the memory's bandwidth, and `LAUNCH` seconds per kernel without a graph. Measured below a tenth
of it means that something waits; please report the table.

Without `--peak` and `--bandwidth` both are measured first, by a matrix product and a copy. On CPU
(`--device cpu`) the script runs too, so that it can be tried.
"""

import argparse
import time

import needs
import torch

from allometry._core.estimate import Estimate
from allometry.models import Transformer, flows
from allometry.train import BatchedTrainer, Training, adamw
from allometry.train.budget import count_parameters
from allometry.train.objectives import negative_log_likelihood, next_token

LAUNCH = 5e-6
"""Seconds to start one kernel from Python's loop, a usual figure."""

KERNELS = {"transformer": 60, "flow": 25}
"""Kernels of one layer or block: forward, backward and update."""


def transformer(width, depth, seed):
    rng = torch.Generator().manual_seed(seed)
    model = Transformer(256, width, depth, max(1, width // 16), 128, rng=rng)

    def batch(step):
        drawn = torch.Generator().manual_seed(1000 * seed + step)
        return (torch.randint(256, (16, 129), generator=drawn),)

    return model, next_token, batch, 16 * 128


def flow(width, depth, seed):
    model = flows.affine_coupling(2, depth, width, rng=torch.Generator().manual_seed(seed))

    def batch(step):
        drawn = torch.Generator().manual_seed(1000 * seed + step)
        return (torch.randn(256, 2, generator=drawn),)

    return model, negative_log_likelihood, batch, 256


SHAPES = [("flow", flow, 64, 8), ("transformer", transformer, 64, 2),
          ("transformer", transformer, 256, 4), ("transformer", transformer, 1024, 8)]  # fmt: skip


def trainings(make, width, depth, models, steps):
    named = {}
    for seed in range(models):
        model, objective, batch, seen = make(width, depth, seed)
        named[str(seed)] = Training(
            model=model, optimiser=adamw(model, lr=1e-3), objective=objective, batch=batch,
            measure=lambda _: Estimate(0.0), steps=steps, seen=seen, curve_points=1,
        )  # fmt: skip
    return named


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def limits(device):
    """Peak FLOP/s of float32 products and bytes/s of copies, measured."""
    n = 4096 if device.type != "cpu" else 1024
    a = torch.randn(n, n, device=device)
    product = rate(lambda: a @ a, device)
    b = torch.empty(1 << 26 if device.type != "cpu" else 1 << 23, device=device)
    copied = rate(b.clone, device)
    return 2 * n**3 / product, 2 * b.numel() * b.element_size() / copied


def rate(work, device, repeats=10):
    work()
    synchronise(device)
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronise(device)
    return (time.perf_counter() - started) / repeats


def measured(make, width, depth, models, device, seconds):
    """Seconds of a step of all models, and the largest memory in bytes."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    named = trainings(make, width, depth, models, 100_000)
    trainer = BatchedTrainer(named, size=models, device=str(device))
    (stack,) = trainer.stacks
    done, started = 0, 0.0
    while done < 8 or (time.perf_counter() - started < seconds and done < 3000):
        if done == 4:  # the first steps set up kernels
            synchronise(device)
            started = time.perf_counter()
        losses, _ = stack.step(done)
        done += 1
        if done % 32 == 0:
            losses.tolist()
    synchronise(device)
    spent = (time.perf_counter() - started) / (done - 4)
    return spent, torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def expected(name, make, width, depth, models, peak, bandwidth):
    """Seconds of a step by the roofline, and its FLOPs: six per parameter and token."""
    model, _, _, seen = make(width, depth, 0)
    own, tables = count_parameters(model)
    flops = 6 * (own + (tables if name == "transformer" else 0)) * seen * models
    traffic = 4 * (own + tables) * models * 10  # weights, gradients and moments, read and written
    traffic += 4 * seen * models * width * depth * 30  # activations, there and back
    launches = KERNELS[name] * depth * LAUNCH
    return max(flops / peak, traffic / bandwidth, launches), flops


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each row")
    parser.add_argument("--packs", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--peak", type=float, help="FLOP/s; default: measured")
    parser.add_argument("--bandwidth", type=float, help="bytes/s; default: measured")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if not there.get(device.type, lambda: True)():
        print(f"This machine has no {device.type} device that torch can use; try --device cpu.")
        return
    peak, bandwidth = limits(device)
    peak, bandwidth = asked.peak or peak, asked.bandwidth or bandwidth
    print(f"{device}: {peak / 1e12:.2f} TFLOP/s in float32, {bandwidth / 1e9:.0f} GB/s")
    print("shape                    models   tokens/s  expected  of peak  memory MB")
    for name, make, width, depth in SHAPES:
        for models in asked.packs:
            about, flops = expected(name, make, width, depth, models, peak, bandwidth)
            label = f"{name} {depth} x {width}"
            try:
                spent, memory = measured(make, width, depth, models, device, asked.seconds)
            except torch.OutOfMemoryError:
                print(f"{label:24} {models:6}   does not fit the memory")
                break
            tokens = make(width, depth, 0)[3] * models
            held = "-" if memory is None else f"{memory / 1e6:.0f}"
            print(
                f"{label:24} {models:6} {tokens / spent:10.3g} {tokens / about:9.3g} "
                f"{flops / spent / peak:7.1%} {held:>10}"
            )


if __name__ == "__main__":
    needs.run(main)
