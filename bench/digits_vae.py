"""VAE, beta-VAE and InfoVAE on digits: bound, reconstruction, active units, mutual information.

    python bench/digits_vae.py [--seeds 5] [--steps 1500]

scikit-learn's digits / 16, code of 8, networks 64-128-64-code, Gaussian likelihood with learnt
variance, batch 128. Training is vectorised over the seeds of one setting. Figures are means over
seeds on the test split, with 95 % intervals by Student's t.
"""

import argparse

import needs
import numpy as np
import torch
from scipy import stats
from torch import optim

from allometry.models import autoencoders as ae
from allometry.targets import Images
from allometry.train import objectives
from allometry.train.lr_schedule import warmup_decay
from allometry.train.packed.stack import StackedModels

CODE, BATCH = 8, 128


def mean_interval(values):
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):8.2f} ± {half:5.2f}"


def trained(loss, seeds, steps, digits):
    models = [
        ae.dense_vae((64,), CODE, ae.Gaussian(), rng=torch.Generator().manual_seed(s))
        for s in range(seeds)
    ]
    pack = StackedModels(models)
    optimiser = pack.optimiser(optim.Adam, lr=2e-3)
    rng = torch.Generator().manual_seed(99)
    for step in range(steps):
        factor = warmup_decay(step, steps=steps, warmup=50)
        for group in optimiser.param_groups:
            group["lr"] = group["peak_lr"] * factor
        x = torch.stack(
            [digits.batch(step, size=BATCH, seed=s).flatten(1) / 16 for s in range(seeds)]
        )
        noise, prior = torch.randn(2, seeds, BATCH, CODE, generator=rng)
        optimiser.descend(pack.map(loss, x, noise, prior), clip=100.0)
    return [pack.member(i) for i in range(seeds)]


@torch.no_grad()
def judged(model, x, train):
    rng = torch.Generator().manual_seed(1)
    terms = [model.elbo_terms(x, torch.randn(len(x), CODE, generator=rng)) for _ in range(20)]
    elbo = torch.stack([f - k for f, k in terms]).mean().item()
    shown = model.likelihood.mean(model.decoder(model.posterior(x)[0]))
    return {
        "ELBO": elbo,
        "KL": torch.stack([k for _, k in terms]).mean().item(),
        "error": (shown - x).square().sum(1).mean().item(),
        "active": ae.active_units(model, train).value,
        "information": ae.mutual_information(model, train[:1000], rng).value,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = Images.digits()
    test, train = (digits.split(s).flatten(1) / 16 for s in ("test", "train"))
    settings = {
        f"beta-VAE, beta {b:g}": lambda m, x, n, _, b=b: objectives.negative_elbo(m, x, n, b)
        for b in (0.5, 1.0, 4.0, 10.0)
    }
    # With alpha = 0 each example's divergence keeps weight 1, and the aggregate posterior has
    # weight lambda - 1: a penalty on the aggregate lets the code keep information on its example.
    settings |= {
        f"InfoVAE, lambda {v:g}": lambda m, x, n, p, v=v: objectives.info_vae(
            m, x, n, p, alpha=0.0, lambda_=v
        )
        for v in (1.0, 10.0, 100.0)
    }
    print("| | test ELBO, nats | KL | squared error | active units of 8 | information, nats |")
    print("|---|---|---|---|---|---|")
    for name, loss in settings.items():
        found = [
            judged(m, test, train) for m in trained(loss, arguments.seeds, arguments.steps, digits)
        ]
        cells = [mean_interval([f[k] for f in found]) for k in found[0]]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    needs.run(main)
