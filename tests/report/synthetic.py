"""Runs drawn from a known scaling law, with the methods of a study's runs."""

import functools
import hashlib
import itertools
import math
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pandas as pd

from allometry.report import analyse

E, A, ALPHA, B, BETA = 0.80, 12.0, 0.28, 40.0, 0.35
UNIQUE = 4_200_000_000
"""More than any run sees: the true law has no repeated data."""
VERSIONS = {"allometry": "0.1.0", "python": "3.11.7", "torch": "2.13.0"}


@functools.cache
def analysis(**arguments):
    """The analysis of `synthetic_runs(**arguments)`, cached: a fit takes a second."""
    return analyse(synthetic_runs(**arguments))


def truth(N, D):
    """The scaling law of the synthetic runs."""
    return E + A * np.asarray(N, float) ** -ALPHA + B * np.asarray(D, float) ** -BETA


@final
@dataclass(frozen=True)
class Synthetic:
    """The interface of `allometry.runs.Runs` on plain tables."""

    table: pd.DataFrame
    lines: pd.DataFrame
    texts: dict[str, str]
    about: dict[str, Any] = field(default_factory=dict)

    def frame(self):
        return self.table

    def curves(self):
        return self.lines

    def samples(self):
        return self.texts


def _row(family, shape, rung, seed, N, D, loss, status="done", error="", **more):
    done = status == "done"
    return {
        "key": hashlib.sha256(f"{family} {shape} {seed} {D} {status}".encode()).hexdigest()[:16],
        "family": family,
        "target": "notes.txt",
        "shape": shape,
        "rung": rung,
        "seed": seed,
        "N": N,
        "N_embedding": 6000,
        "D": D,
        "D_unique": more.get("unique", UNIQUE),
        "C": more.get("C", 6.4 * N * D),
        "C_6ND": 6.0 * N * D,
        "loss": loss if done else math.nan,
        "loss_se": 0.006 if done else math.nan,
        "bits_per_character": loss / math.log(2) if done else math.nan,
        "seconds": 1.5 + 2e-12 * 6 * N * D,
        "status": status,
        "error": error,
        "versions": VERSIONS,
    }


def _curve(row, rng):
    tokens = np.unique(np.geomspace(max(row["D"] / 200, 64), row["D"], 24).astype(int))
    end = row["loss"] if row["status"] == "done" else 3.2
    losses = end + (4.2 - end) * (1 - tokens / row["D"]) ** 3 * (tokens / tokens[0]) ** -0.35
    losses = losses + rng.normal(0, 0.004, len(tokens))
    if row["status"] == "diverged":
        tokens, losses = tokens[:9], losses[:9] * np.geomspace(1, 6, 9)
    return pd.DataFrame(
        {
            "key": row["key"],
            "step": tokens // 1024,
            "tokens": tokens,
            "flops": 6.4 * row["N"] * tokens,
            "loss": losses,
        }
    )


def synthetic_runs(
    sizes=(1_400, 4_600, 15_000, 48_000, 150_000, 480_000),
    per_parameter=(20.0,),
    seeds=2,
    noise=0.006,
    ngram=1.22,
    broken=True,
    seed=0,
    name="notes.txt",
    families=("transformer",),
    unique=UNIQUE,
):
    """A ladder of transformers that follow `truth`, n-grams, a diverged and a failed run.

    Args:
        sizes: N of each rung.
        per_parameter: Tokens per parameter, one run for each at every size.
        seeds: Runs per configuration.
        noise: Standard deviation of the loss between seeds.
        ngram: Loss of the best n-gram; `None` for no n-gram.
        broken: Whether one run diverges and one fails.
        seed: Seed of the noise.
        name: The target's name.
        families: The trained families; each is 4 % worse than the one before it.
        unique: Amount of distinct data.
    """
    rng = np.random.default_rng(seed)
    rows = []
    grid = itertools.product(families, enumerate(sizes), per_parameter, range(seeds))
    for family, (rung, N), ratio, s in grid:
        worse = 1.04 ** families.index(family)
        shape = f"{2 + rung} layers, width {16 * 2**rung}, {1 + rung} heads"
        D = float(int(ratio * N) + 60_000)
        loss = float(worse * truth(N, D) + rng.normal(0, noise))
        rows.append(_row(family, shape, rung, s, N, D, loss, unique=unique))
    if ngram is not None:
        for order, above in ((2, 0.95), (3, 0.45), (5, 0.06), (7, 0.0)):
            table = _row("ngram", f"order {order}", order, 0, 900 * 6**order, 420_000.0, 0.0)
            table |= {"loss": ngram + above, "C": None, "C_6ND": None, "N_embedding": 0}
            table |= {"bits_per_character": (ngram + above) / math.log(2), "seconds": 0.8}
            rows.append(table)
    if broken and len(sizes) > 2:
        error = "the loss became nan at step 311"
        rows.append(
            _row(
                "transformer",
                "4 layers, width 64, 3 heads",
                2,
                7,
                sizes[2],
                4e5,
                0,
                "diverged",
                error,
            )
        )
        error = "RuntimeError: <script>alert(1)</script> could not allocate 12 GB"
        rows.append(
            _row(
                "transformer",
                "7 layers, width 512, 6 heads",
                5,
                7,
                sizes[-1],
                9e6,
                0,
                "failed",
                error,
            )
        )
    table = pd.DataFrame(rows, columns=list(_row("", "", 0, 0, 1, 1.0, 1.0)))
    trained = [r for r in rows if r["family"] in families and r["status"] != "failed"]
    columns = ["key", "step", "tokens", "flops", "loss"]
    lines = [_curve(r, rng) for r in trained]
    texts = {
        r["key"]: "The <b>operator</b> module & its\n\tfriends return a new object, " * 5
        for r in rows
        if r["status"] == "done" and r["seed"] == 0
    }
    about = {
        "target": {
            "name": name,
            "unit": "nats per character",
            "D_unique": unique,
            "vocabulary": 96,
            "fingerprint": "9f2c41d0a7b3",
        },
        "versions": VERSIONS,
        "folder": "runs/notes",
    }
    curves = pd.concat(lines) if lines else pd.DataFrame(columns=columns)
    return Synthetic(table, curves, texts, about)
