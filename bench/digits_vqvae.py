"""A VQ-VAE on digits with a transformer as its prior: code use and classifier confidence.

    python bench/digits_vqvae.py [--seeds 5] [--steps 800] [--samples 400]

scikit-learn's digits, 128 codes of 8 numbers on a grid of 2 x 2, running means and revival, as
in the recipe `vqvae` (convolutions of 32 channels, a prior of two blocks of width 64), batch
128.
A classifier (scikit-learn's MLP, trained on real training digits) evaluates samples of prior and
decoder at temperature 1. Each seed is a line; then means over seeds with 95 % intervals by
Student's t. Autoencoders without revival are trained too, for their code use.
"""

import argparse
import math

import needs
import numpy as np
import torch
from scipy import stats
from sklearn.neural_network import MLPClassifier

from allometry.models import autoencoders as ae
from allometry.study.recipes.density_losses import BLUR
from allometry.study.recipes.density_runs import CODE_SIZE, CODES
from allometry.targets import Images
from allometry.train import adamw, objectives
from allometry.train.lr_schedule import warmup_decay


def trained(digits, steps, seed, revive):
    rng = torch.Generator().manual_seed(seed)
    sizes = {"K": CODES, "size": CODE_SIZE, "width": 32, "halvings": 2, "prior_width": 64}
    model = ae.generative_vqvae((1, 8, 8), 17, **sizes, rng=rng)
    model.vqvae.codebook.revive = revive
    if revive:
        model.initialise(digits.train)
    optimiser = adamw(model, lr=3e-3, weight_decay=0.1)
    for step in range(steps):
        factor = warmup_decay(step, steps=steps, warmup=steps // 20)
        for group in optimiser.param_groups:
            group["lr"] = group["peak_lr"] * factor
        x = digits.batch(step, size=128, seed=seed)
        own = torch.Generator().manual_seed(1_000_003 * seed + step)
        noise = model.draw_noise(x.shape, own)
        loss = objectives.quantised_bound(model, x, noise, own, blur=BLUR * 16)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 80.0)
        optimiser.step()
    return model.eval()


@torch.no_grad()
def judged(model, judge, x, seed, samples):
    code = model.encode(x)
    rng = torch.Generator().manual_seed(seed)
    made = model.decode(model.sample_codes(samples, rng=rng)).flatten(1).numpy() / 16
    sure = judge.predict_proba(made)
    reconstructions = judge.predict_proba(model.decode(code).flatten(1).numpy() / 16)
    return {
        "bits per dimension": -model.log_prob(x).mean().item() / (64 * math.log(2)),
        "nats of codes": -model.log_prior(code).mean().item(),
        "code perplexity": ae.perplexity(code, CODES),
        "squared error": (model.decode(code) - x).div(16).square().flatten(1).sum(1).mean().item(),
        "confidence in reconstructions": reconstructions.max(1).mean(),
        "confidence in samples": sure.max(1).mean(),
        "rarest class": np.bincount(sure.argmax(1), minlength=10).min() / samples,
    }


def mean_interval(values):
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.3f} ± {half:.3f} (seeds {min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--samples", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = Images.digits()
    train, test = (digits.split(s).flatten(1).numpy() / 16 for s in ("train", "test"))
    judge = MLPClassifier((128,), max_iter=300, random_state=0)
    judge.fit(train, digits.labels["train"].numpy())
    right = judge.score(test, digits.labels["test"].numpy())
    real = judge.predict_proba(test).max(1).mean()
    print(f"classifier: {right:.3f} right on real test digits, mean confidence {real:.3f}")
    found = []
    for seed in range(arguments.seeds):
        model = trained(digits, arguments.steps, seed, 0.1)
        found.append(judged(model, judge, digits.test, seed, arguments.samples))
        bare = trained(digits, arguments.steps // 4, seed, 0.0)
        with torch.no_grad():
            found[-1]["code perplexity without revival"] = ae.perplexity(
                bare.encode(digits.test), CODES
            )
        print(
            f"seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in found[-1].items()), flush=True
        )
    for name in found[0]:
        print(f"{name}: {mean_interval([f[name] for f in found])}")


if __name__ == "__main__":
    needs.run(main)
