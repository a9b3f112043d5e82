"""Training throughput of autoencoders: ours and pythae's, on the same network, batch and data.

    python bench/autoencoders.py [--repeats 5] [--epochs 4]

scikit-learn's digits (64 numbers in [0, 1]), batch 128, encoder 64-512-code of 16, mirrored
decoder, one thread, float32, Adam: pythae's default networks. pythae runs in its own trainer and
in a bare loop; ours runs in a bare loop, as in its studies. Rounds are interleaved; figures are
medians of samples per CPU second.
"""

import argparse
import contextlib
import io
import logging
import statistics
import tempfile
import time
import warnings

import needs
import torch
from torch import optim

from allometry.models import autoencoders as ae
from allometry.targets import Images
from allometry.train import objectives

BATCH, CODE, HIDDEN = 128, 16, (512,)


class Ours:
    """One of our models in training."""

    def __init__(self, kind, x):
        self.x, self.kind = x, kind
        rng = torch.Generator().manual_seed(0)
        if kind == "AE":
            self.model = ae.deep((64,), CODE, HIDDEN, rng)
        else:
            self.model = ae.dense_vae((64,), CODE, ae.Gaussian(), HIDDEN, rng)
        self.optimiser = optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.rng = rng

    def loss(self, x):  # noqa: D102
        if self.kind == "AE":
            return objectives.reconstruction(self.model, x)
        noise = torch.randn(len(x), CODE, generator=self.rng)
        if self.kind == "VAE":
            return objectives.negative_elbo(self.model, x, noise)
        prior = torch.randn(len(x), CODE, generator=self.rng)
        return objectives.info_vae(self.model, x, noise, prior, alpha=0.5, lambda_=3.0)

    def run(self, epochs):  # noqa: D102
        for _ in range(epochs):
            order = torch.randperm(len(self.x), generator=self.rng)
            for rows in order.split(BATCH):
                loss = self.loss(self.x[rows])
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()


def theirs(kind):
    from pythae.models import AE, INFOVAE_MMD, VAE, AEConfig, INFOVAE_MMD_Config, VAEConfig

    sizes = {"input_dim": (64,), "latent_dim": CODE}
    return {
        "AE": lambda: AE(AEConfig(**sizes)),
        "VAE": lambda: VAE(VAEConfig(**sizes)),
        "InfoVAE": lambda: INFOVAE_MMD(INFOVAE_MMD_Config(**sizes)),
    }[kind]()


class Bare:
    """pythae's model in a plain loop."""

    def __init__(self, kind, x):
        self.x, self.model = x, theirs(kind)
        self.optimiser = optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def run(self, epochs):  # noqa: D102
        for _ in range(epochs):
            for rows in torch.randperm(len(self.x)).split(BATCH):
                loss = self.model({"data": self.x[rows]}).loss
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()


class Trainer:
    """pythae's model in pythae's trainer."""

    def __init__(self, kind, x):
        self.x, self.kind = x, kind

    def run(self, epochs):  # noqa: D102
        from pythae.data.datasets import BaseDataset
        from pythae.trainers import BaseTrainer, BaseTrainerConfig

        with tempfile.TemporaryDirectory() as folder:
            config = BaseTrainerConfig(
                output_dir=folder,
                num_epochs=epochs,
                per_device_train_batch_size=BATCH,
                learning_rate=1e-3,
                no_cuda=True,
            )
            data = BaseDataset(self.x, torch.zeros(len(self.x)))
            trainer = BaseTrainer(theirs(self.kind), train_dataset=data, training_config=config)
            trainer.train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    x = (Images.digits().train.flatten(1) / 16).float()
    for kind in ("AE", "VAE", "InfoVAE"):
        runners = {"ours": Ours(kind, x), "bare": Bare(kind, x), "trainer": Trainer(kind, x)}
        sizes = [
            sum(p.numel() for p in m.model.parameters())
            for m in (runners["ours"], runners["bare"])
        ]
        spent = {name: [] for name in runners}
        for repeat in range(arguments.repeats + 1):
            for name, one in runners.items():
                started = time.process_time()
                with contextlib.redirect_stderr(io.StringIO()):
                    one.run(arguments.epochs)
                if repeat:
                    rate = arguments.epochs * len(x) / (time.process_time() - started)
                    spent[name].append(rate)
        rates = {name: statistics.median(seen) for name, seen in spent.items()}
        print(
            f"{kind} ({sizes[0]:,} and {sizes[1]:,} parameters): samples per CPU second "
            f"ours {rates['ours']:,.0f}, pythae's trainer {rates['trainer']:,.0f} "
            f"({rates['ours'] / rates['trainer']:.2f}x), pythae bare {rates['bare']:,.0f} "
            f"({rates['ours'] / rates['bare']:.2f}x)",
            flush=True,
        )


if __name__ == "__main__":
    needs.run(main)
