"""Quality of flows: two moons, digits, and the gap to a mixture's known entropy.

    python bench/flow_quality.py moons|masked|digits|converged|gap [--steps 1200] [--only GLOW]

moons: noise 0.05, 1,000 steps of batch 256. The rate of each family is chosen among four on the
validation points, by the mean over seeds; then the test points are scored once. Training is
vectorised over rates and seeds. masked: masked autoregressive flows and zuko's on moons, of equal
N, each at its best rate of three, chosen with six seeds and judged on test points with twelve
others. digits: 8 x 8, dequantised, 400 steps of batch 128. converged: `--steps`; the weights that
are best on validation are scored on test. gap: spline couplings of growing size on eight Gaussians
for `--steps`, the gap to the true density on the same test points, and its scaling law in N by
`laws.fit`.
"""

import argparse
import copy
import math

import needs
import numpy as np
import torch
from torch import optim

from allometry import laws
from allometry.models import flows
from allometry.study.recipes.density_runs import build_density, grow
from allometry.study.recipes.sample_scores import divergence
from allometry.targets import Images, points
from allometry.train.lr_schedule import warmup_decay
from allometry.train.objectives import negative_log_likelihood
from allometry.train.packed.stack import StackedModels
from allometry.train.packed.trace import TracedStep


def trained(make, target, rates, seeds, steps, batch, fuse=False):
    """A model for each rate and seed, vectorised over both."""
    models = [make(torch.Generator().manual_seed(s)) for _ in rates for s in range(seeds)]
    for i, model in enumerate(models):
        model.initialise(target.batch(0, size=512, seed=i % seeds))
    pack = StackedModels(models)
    optimiser = pack.optimiser(optim.Adam, lr=[r for r in rates for _ in range(seeds)])

    def data(step):
        each = [target.batch(step, size=batch, seed=s) for s in range(seeds)]
        return torch.stack(each * len(rates))

    traced = TracedStep(pack, negative_log_likelihood, data(0), fuse=fuse)
    for step in range(steps):
        factor = warmup_decay(step, steps=steps, warmup=steps // 20)
        for group in optimiser.param_groups:
            group["lr"] = group["peak_lr"] * factor
        optimiser.step(traced(data(step))[1], clip=10.0)
    return [pack.member(i) for i in range(len(models))]


@torch.no_grad()
def nats(model, x):
    return torch.cat([-model.log_prob(part) for part in x.split(2000)]).double()


def moons():
    target = points.Points(points.TwoMoons(noise=0.05))
    true = -target.density.log_prob(target.split("test").double())
    print(f"entropy {target.entropy.value:.4f}; the true density scores {true.mean():.4f}")
    seeds, rates = 2, (0.0025, 0.005, 0.01, 0.02)
    families = {
        "8 affine couplings": lambda rng: flows.affine_coupling(2, 8, 64, rng=rng),
        "4 spline couplings": lambda rng: flows.spline_coupling(2, 4, 64, rng=rng),
    }
    for name, make in families.items():
        found = trained(make, target, rates, seeds, 1000, 256, fuse=True)
        losses = [nats(m, target.split("validation")).mean().item() for m in found]
        means = np.array(losses).reshape(len(rates), seeds).mean(1)
        best = int(means.argmin())
        scores = [nats(m, target.split("test")) for m in found[best * seeds : (best + 1) * seeds]]
        each = ", ".join(f"{s.mean():.4f} ± {1.96 * s.std() / len(s) ** 0.5:.4f}" for s in scores)
        along = dict(zip(rates, means.round(4).tolist(), strict=True))
        print(f"{name}: validation {along}; rate {rates[best]} chosen; test {each}", flush=True)


def fit_masked(model, log_prob, target, rate, seed, steps=1000):
    """A flow of any library, trained alone."""
    optimiser = optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * warmup_decay(step, steps=steps, warmup=steps // 20)
        loss = -log_prob(model, target.batch(step, size=256, seed=seed)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
    return model


def masked():
    import zuko

    target = points.Points(points.TwoMoons(noise=0.05))

    def ours(seed):
        rng = torch.Generator().manual_seed(seed)
        model = flows.masked_autoregressive(2, 3, 64, rng=rng)
        model.initialise(target.batch(0, size=512, seed=seed))
        return model

    def zukos(seed):
        torch.manual_seed(seed)
        return zuko.flows.MAF(2, transforms=3, hidden_features=(64, 64))

    kinds = {
        "ours": (ours, lambda model, x: model.log_prob(x)),
        "zuko": (zukos, lambda model, x: model().log_prob(x)),
    }
    for name, (make, log_prob) in kinds.items():

        def gaps(rate, seeds, split, make=make, log_prob=log_prob):
            x = target.split(split)[:10_000]
            true = -target.density.log_prob(x.double()).mean().item()
            models = [fit_masked(make(s), log_prob, target, rate, s) for s in seeds]
            with torch.no_grad():
                return [-log_prob(m, x).double().mean().item() - true for m in models]

        along = {r: float(np.mean(gaps(r, range(6), "validation"))) for r in (0.005, 0.01, 0.02)}
        rate = min(along, key=along.__getitem__)
        found = np.array(gaps(rate, range(100, 112), "test"))
        size = sum(p.numel() for p in make(0).parameters())
        half = 2.2 * found.std(ddof=1) / len(found) ** 0.5
        print(f"{name}, {size} parameters: validation gaps {along}; rate {rate}")
        print(
            f"    test gap {found.mean():.3f} ± {half:.3f} nats: {found.round(2).tolist()}",
            flush=True,
        )


def fit_images(model, digits, steps, rate, keep):
    """Trained weights: those at the end, or the best on validation."""
    model.initialise(digits.train)
    optimiser = optim.Adam(model.parameters(), lr=rate, fused=True)
    best, kept, at = math.inf, None, 0
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * warmup_decay(step, steps=steps, warmup=steps // 20)
        x = digits.batch(step, size=128, seed=0)
        noise = model.draw_noise(x.shape, torch.Generator().manual_seed(step))
        loss = negative_log_likelihood(model, x, noise)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 80.0)
        optimiser.step()
        if keep and (step + 1) % 100 == 0:
            now = nats(model, digits.validation).mean().item()
            print(f"{step + 1}: validation {now / (64 * math.log(2)):.4f}", flush=True)
            if now < best:
                best, kept, at = now, copy.deepcopy(model.state_dict()), step + 1
    if kept is not None:
        model.load_state_dict(kept)
    return at


def bits(model, x):
    each = nats(model, x) / (64 * math.log(2))
    return f"{each.mean():.3f} ± {1.96 * each.std() / len(each) ** 0.5:.3f}"


def digits(steps=400, keep=False, only=""):
    data = Images.digits()
    print(f"per-pixel histogram {data.histogram_bits():.3f} bits per dimension")
    kinds = {
        "plain GLOW (no histogram first)": lambda: flows.Dequantised(
            flows.glow((1, 8, 8), 2, 4, 64), 17
        ),
        "6 spline couplings of width 128": lambda: flows.image_splines((1, 8, 8), 17, 6, 128),
        "GLOW": lambda: flows.Dequantised(flows.glow((1, 8, 8), 2, 4, 64, marginal=17), 17),
    }
    for name, make in kinds.items():
        if (keep and name.startswith("plain")) or not name.startswith(only):
            continue
        model = make()
        at = fit_images(model, data, steps, 0.002, keep)
        tail = f"; best on validation after {at} steps" if keep else ""
        print(
            f"{name}, {steps} steps: test {bits(model, data.test)}, training "
            f"{bits(model, data.train)}{tail}",
            flush=True,
        )


def gap(steps):
    target = points.Points(points.eight_gaussians(), held_out=50_000)
    N, found = [], []
    for size in np.geomspace(250, 4_000, 5):
        layers, width = grow("spline_coupling", (2,), None, size)

        def make(rng, layers=layers, width=width):
            return build_density("spline_coupling", (2,), None, layers, width, rng)

        for model in trained(make, target, (0.005,), 4, steps, 256, fuse=True):
            N.append(sum(p.numel() for p in model.parameters()))
            found.append(divergence(model, target))
        gaps = ", ".join(f"{e.value:.5f} ± {1.96 * e.se:.5f}" for e in found[-4:])
        print(f"N = {N[-1]}: gap {gaps}", flush=True)
    print(f"entropy {target.entropy.value:.4f}")
    columns = {"N": np.array(N, float), "loss": np.array([e.value for e in found])}
    for form in ("power", "floor"):
        law = laws.fit(columns, form=form, seed=0)
        params = {k: f"{v.value:.4g} ({v.lo:.4g} to {v.hi:.4g})" for k, v in law.params.items()}
        print(f"{form}: {params}; {law.warnings}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["moons", "masked", "digits", "converged", "gap"])
    parser.add_argument("--steps", type=int, default=1200, help="steps of converged and gap")
    parser.add_argument(
        "--only", default="", help="only the digit flows whose name starts with this"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"moons": moons, "masked": masked, "gap": lambda: gap(arguments.steps)}
    parts["digits"] = lambda: digits(only=arguments.only)
    parts["converged"] = lambda: digits(arguments.steps, True, arguments.only)
    parts[arguments.what]()


if __name__ == "__main__":
    needs.run(main)
