"""Training steps per second of flows: ours, zuko's and nflows's; and vectorised over seeds.

    python bench/flows.py [--repeats 7] [--steps 40] [--fuse]

One thread, float32, Adam, batch 256 on two moons (d = 2) and batch 128 in 64 dimensions. Every
library has the same architecture: the same number of couplings (8 affine or 4 spline), networks of
two hidden layers of 64 with ReLU, 8 bins. Rounds are interleaved in one process; figures are
medians of CPU seconds. Then eight seeds vectorised against eight single runs: mapped by
`StackedModels`, traced (`train.packed.trace`), and traced and fused by torch's compiler.
`--only rungs`: eight vectorised, fused seeds against eight single runs for every size of
`allometry run moons`, and for the whole ladder.
"""

import argparse
import dataclasses
import itertools
import statistics
import time
import warnings

import needs
import torch
from torch import nn, optim

from allometry.models import flows
from allometry.study import jobs
from allometry.targets import points
from allometry.train.objectives import negative_log_likelihood
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep

WIDTH, AFFINE, SPLINE, BINS = 64, 8, 4, 8


def ours(kind, dim):
    if kind == "affine":
        return flows.affine_coupling(dim, AFFINE, WIDTH)
    return flows.spline_coupling(dim, SPLINE, WIDTH, bins=BINS)


def zuko_flow(kind, dim):
    import zuko

    hidden = {"hidden_features": (WIDTH, WIDTH)}
    if kind == "affine":
        return zuko.flows.RealNVP(dim, transforms=AFFINE, **hidden)
    return zuko.flows.NSF(dim, bins=BINS, transforms=SPLINE, passes=2, **hidden)


class Conditioner(nn.Sequential):
    """nflows passes its networks a context, which is unused here."""

    def forward(self, x, context=None):  # noqa: D102
        return super().forward(x)


def nflows_flow(kind, dim):
    from nflows import distributions, transforms
    from nflows import flows as theirs

    def net(i, o):
        layers = [nn.Linear(i, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        return Conditioner(*layers, nn.Linear(WIDTH, o))

    made = []
    for i in range(AFFINE if kind == "affine" else SPLINE):
        mask = torch.ones(dim)
        mask[i % 2 :: 2] = -1
        if kind == "affine":
            made.append(transforms.AffineCouplingTransform(mask, net))
        else:
            spline = transforms.PiecewiseRationalQuadraticCouplingTransform
            made.append(spline(mask, net, num_bins=BINS, tails="linear", tail_bound=5.0))
    body = transforms.CompositeTransform(made)
    return theirs.Flow(body, distributions.StandardNormal([dim]))


def log_prob(model, x):
    # zuko's modules give a distribution; the others have the method themselves.
    return model.log_prob(x) if hasattr(model, "log_prob") else model().log_prob(x)


class Training:
    """One model in training, several steps at a time."""

    def __init__(self, model, batches):
        self.model, self.batches, self.at = model, batches, 0
        self.optimiser = optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def stretch(self, steps):  # noqa: D102
        for _ in range(steps):
            x = self.batches[self.at % len(self.batches)]
            self.at += 1
            loss = -log_prob(self.model, x).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()


class PackedTraining:
    """Eight seeds, vectorised."""

    def __init__(self, models, batches, mode):
        self.pack, self.batches, self.at = StackedModels(models), batches, 0
        self.optimiser = self.pack.optimiser(optim.Adam, lr=1e-3)
        self.traced = None
        if mode != "mapped":
            fuse = mode == "fused"
            self.traced = TracedStep(self.pack, negative_log_likelihood, self._data(), fuse=fuse)

    def _data(self):
        x = self.batches[self.at % len(self.batches)]
        self.at += 1
        return x.expand(len(self.pack), *x.shape)

    def stretch(self, steps):  # noqa: D102
        for _ in range(steps):
            if self.traced is not None:
                self.optimiser.apply(self.traced(self._data())[1])
            else:
                losses = self.pack.map(negative_log_likelihood, self._data())
                self.optimiser.descend(losses)


def rates(trainings, repeats, steps):
    """Steps per CPU second of each, interleaved; the first round is a warm-up."""
    spent = {name: [] for name in trainings}
    for repeat in range(repeats + 1):
        for name, training in trainings.items():
            started = time.process_time()
            training.stretch(steps)
            if repeat:
                spent[name].append(steps / (time.process_time() - started))
    return {name: statistics.median(seen) for name, seen in spent.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--fuse", action="store_true", help="compile the traced steps as well")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = {
        2: points.Points(points.TwoMoons(), held_out=10),
        64: points.Points(points.random_mixture(64), held_out=10),
    }
    for dim, batch in ((2, 256), (64, 128)):
        batches = [data[dim].batch(s, size=batch, seed=0) for s in range(40)]
        for kind in ("affine", "spline"):
            if arguments.only and arguments.only != f"{kind}{dim}":
                continue
            made = {"ours": ours, "zuko": zuko_flow, "nflows": nflows_flow}
            trainings = {name: Training(make(kind, dim), batches) for name, make in made.items()}
            sizes = {n: sum(p.numel() for p in t.model.parameters()) for n, t in trainings.items()}
            found = rates(trainings, arguments.repeats, arguments.steps)
            speeds = ", ".join(f"{n} {r:.1f} ({sizes[n]:,} parameters)" for n, r in found.items())
            ratios = ", ".join(f"{found['ours'] / found[n]:.2f}x {n}" for n in list(made)[1:])
            print(
                f"{kind} coupling, d = {dim}, batch {batch}: steps/s {speeds}: {ratios}",
                flush=True,
            )
    if arguments.only.startswith("rungs"):
        rungs(
            data[2],
            arguments.only.removeprefix("rungs").lstrip("-"),
            arguments.repeats,
            arguments.steps,
        )
    kinds = [k for k in ("affine", "spline") if arguments.only in ("", "packed", f"packed-{k}")]
    packed(data[2], kinds, arguments.repeats, arguments.steps, arguments.fuse)


def packed(target, kinds, repeats, steps, fuse):
    """Eight seeds vectorised against single runs, for two widths and two batch sizes."""
    for kind, width, batch in itertools.product(kinds, (64, 16), (256, 64)):
        batches = [target.batch(s, size=batch, seed=0) for s in range(40)]
        make = flows.affine_coupling if kind == "affine" else flows.spline_coupling
        layers = AFFINE if kind == "affine" else SPLINE
        seeded = [torch.Generator().manual_seed(s) for s in range(8)]
        models = [make(2, layers, width, rng=rng) for rng in seeded]
        trainings = {"single": Training(models[0], batches)}
        spent = {}
        for mode in ("mapped", "traced", "fused") if fuse else ("mapped", "traced"):
            started = time.process_time()
            trainings[mode] = PackedTraining(models, batches, mode)
            trainings[mode].stretch(1)
            spent[mode] = time.process_time() - started
        found = rates(trainings, repeats, steps)
        speeds = ", ".join(
            f"{mode} {found[mode]:.1f} ({8 * found[mode] / found['single']:.2f}x, ready after "
            f"{took:.0f} s)"
            for mode, took in spent.items()
        )
        print(
            f"eight vectorised seeds, {kind} coupling, width {width}, d = 2, batch {batch}: "
            f"steps/s single {found['single']:.1f}, {speeds}",
            flush=True,
        )


def rungs(target, kind, repeats, steps):
    """Every size of the ladder of a study, then all of it, single and fused."""
    requests = {spec(): None for spec in jobs.study("moons", seeds=1, tokens=[1e6]).specs()}
    requests = [
        r for r in requests if getattr(r, "family", "").startswith(kind) and hasattr(r, "model")
    ]
    whole = {"single": 0.0, "fused": 0.0}
    for request in requests:
        batches = [target.batch(s, size=request.batch, seed=0) for s in range(40)]
        models = [dataclasses.replace(request, seed=s).model() for s in range(8)]
        trainings = {"single": Training(models[0], batches)}
        trainings["fused"] = PackedTraining(models, batches, "fused")
        found = rates(trainings, repeats, steps)
        whole = {name: spent + 1 / found[name] for name, spent in whole.items()}
        print(
            f"{request.family}, {request.columns['shape']}, {request.budget().N:,} parameters, "
            f"batch {request.batch}: single {found['single']:.1f} steps/s, eight vectorised "
            f"{found['fused']:.1f}: {8 * found['fused'] / found['single']:.2f}x",
            flush=True,
        )
    print(f"all of these: {8 * whole['single'] / whole['fused']:.2f}x")


if __name__ == "__main__":
    needs.run(main)
