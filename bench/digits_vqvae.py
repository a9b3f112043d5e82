"""A VQ-VAE on digits with a transformer as its prior: code use, and what a classifier sees.

    python bench/digits_vqvae.py [--steps 1200] [--prior-steps 1500]

scikit-learn's digits, 64 codes on a grid of 4 x 4, running means and revival. The prior is a
decoder transformer of the sequence room over the 16 codes, trained on the training digits' codes.
A classifier (scikit-learn's MLP, trained on real digits) judges what the prior and decoder make.
"""

import argparse
import math

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier
from torch import optim

from allometry import decode
from allometry.models import Transformer
from allometry.models import autoencoders as ae
from allometry.study.recipes.transformer import decoder
from allometry.targets import Images
from allometry.train import adamw, objectives
from allometry.train.schedule import warmup_decay

K, SIDE = 64, 4
START = K
"""The token before the first code."""


def autoencoder(digits, steps, revive, seed=0):
    rng = torch.Generator().manual_seed(seed)
    model = ae.convolutional_vqvae((1, 8, 8), K, 16, 32, 1, revive=revive, rng=rng)
    optimiser = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3, fused=True)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * warmup_decay(step, steps=steps, warmup=30)
        x = digits.batch(step, size=128, seed=seed) / 16
        loss = objectives.vector_quantised(model, x)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            z = model.encoder(x).permute(0, 2, 3, 1).reshape(-1, 16)
        model.codebook.follow(z, model.codebook.find(z), rng)
    return model


def prior(codes, held, steps, seed=0) -> Transformer:
    model = decoder(K + 1, 64, 2, 4, SIDE**2, torch.Generator().manual_seed(seed))
    optimiser = adamw(model, lr=3e-3, weight_decay=0.1)
    rng = torch.Generator().manual_seed(seed)
    best, kept = math.inf, {k: v.clone() for k, v in model.state_dict().items()}
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = group["peak_lr"] * warmup_decay(step, steps=steps, warmup=30)
        rows = codes[torch.randint(len(codes), (64,), generator=rng)]
        loss = objectives.next_token(model, rows)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % 100 == 0:
            with torch.no_grad():
                now = objectives.next_token(model, held).item()
            # 1,437 digits are soon known by heart: the best on held-out ones is kept.
            if now < best:
                best, kept = now, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    print(f"prior: {best:.3f} nats a code on validation digits ({math.log(K):.3f} uniform)")
    return model


def tokens(model, x):
    code = model.encode(x / 16).flatten(1)
    return torch.cat([torch.full((len(x), 1), START), code], 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--prior-steps", type=int, default=1500)
    parser.add_argument("--samples", type=int, default=200)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    digits = Images.digits()
    made = {r: autoencoder(digits, asked.steps, r) for r in (0.1, 0.0)}
    for revive, model in made.items():
        with torch.no_grad():
            error = (model(digits.test / 16) - digits.test / 16).square().flatten(1).sum(1).mean()
            use = ae.perplexity(model.encode(digits.test / 16), K)
        word = "on" if revive else "off"
        print(f"revival {word}: perplexity {use:.1f} of {K} codes, squared error {error:.3f}")
    model = made[0.1]
    with torch.no_grad():
        known, held, test = (
            tokens(model, digits.split(s)) for s in ("train", "validation", "test")
        )
    law = prior(known, held, asked.prior_steps)
    with torch.no_grad():
        nats = objectives.next_token(law, test).item() * SIDE**2
        variance = (model(digits.train / 16) - digits.train / 16).square().mean().item()
        gap = (model(digits.test / 16) - digits.test / 16).square().flatten(1).sum(1).mean().item()
    bound = -nats - 0.5 * (gap / variance + 64 * math.log(2 * math.pi * variance))
    print(
        f"likelihood bound: {bound:.1f} nats a digit (codes {nats:.1f}, Gaussian of sd "
        f"{variance**0.5:.3f})"
    )
    drawn = []
    rng = torch.Generator().manual_seed(0)
    for _ in range(asked.samples):
        allowed = decode.sample(law, [START], decode.temperature(0.8), n=SIDE**2, rng=rng)
        drawn.append([min(int(t), K - 1) for t in list(allowed)[-(SIDE**2) :]])
    with torch.no_grad():
        shown = model.decode(torch.tensor(drawn).view(-1, SIDE, SIDE))
    judge = MLPClassifier((128,), max_iter=300, random_state=0)
    judge.fit(digits.train.flatten(1).numpy() / 16, digits.labels["train"].numpy())
    right = judge.score(digits.test.flatten(1).numpy() / 16, digits.labels["test"].numpy())
    sure = judge.predict_proba(shown.flatten(1).clamp(0, 1).numpy())
    top = sure.max(1)
    classes = np.bincount(sure.argmax(1), minlength=10)
    real = judge.predict_proba(digits.test.flatten(1).numpy() / 16).max(1).mean()
    print(
        f"classifier: {right:.3f} right on real test digits (confidence {real:.3f}); mean "
        f"confidence on samples {top.mean():.3f} ± {top.std() / len(top) ** 0.5:.3f}; "
        f"classes {classes.tolist()}"
    )


if __name__ == "__main__":
    main()
