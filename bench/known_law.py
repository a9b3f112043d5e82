"""Plans from logs that are drawn from a known law: errors of N and D, coverage of intervals.

24 runs of 6 sizes and 4 ratios D/N follow L = E + A/N^alpha + B/D^beta with the constants of
Hoffmann et al. (2022) or of Besiroglu et al. (2024), with normal noise of 0.5 % on the log loss.
They are written as a CSV file, read, fitted and planned at multiples of the largest run's compute.
The optimum is the closed form of Hoffmann et al., Eq. (4). The interval of the loss must cover the
loss of one more run at the planned size and data, with its own noise.

Run: `python bench/known_law.py [--seeds 100] [--form auto] [--json FILE]`
"""

import argparse
import json
import tempfile
from pathlib import Path

import needs
import numpy as np

import allometry as al

LAWS = {
    "Hoffmann et al.": (1.69, 406.4, 0.34, 410.7, 0.28),
    "Besiroglu et al.": (1.8172, 482.01, 0.3478, 2085.43, 0.3658),
}
NOISE = 0.005
MULTIPLES = (1.0, 10.0, 100.0)
FACTOR = 1.3


def loss_of(law: tuple[float, ...], n: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The loss without noise."""
    e, a, alpha, b, beta = law
    return e + a / n**alpha + b / d**beta


def optimum(law: tuple[float, ...], compute: float) -> tuple[float, float]:
    """Compute-optimal N and D by Eq. (4) of Hoffmann et al."""
    _, a, alpha, b, beta = law
    g = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    n = g * (compute / 6) ** (beta / (alpha + beta))
    return n, compute / 6 / n


def write_runs(path: Path, law: tuple[float, ...], rng: np.random.Generator) -> float:
    """Write the log table; the largest compute of a run."""
    n = np.repeat(np.geomspace(1e7, 1e9, 6), 4).round()
    d = (n * np.tile([5.0, 12.0, 30.0, 80.0], 6)).round()
    loss = loss_of(law, n, d) * np.exp(NOISE * rng.standard_normal(24))
    rows = "".join(f"{a:.0f},{b:.0f},{c:.5f}\n" for a, b, c in zip(n, d, loss, strict=True))
    path.write_text("params,tokens,loss\n" + rows)
    return float(6 * (n * d).max())


def judge(
    law: tuple[float, ...], seed: int, form: str, draws: int = 1000
) -> list[dict[str, float]]:
    """The errors and coverage of one seed at each multiple of the largest run."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        largest = write_runs(path, law, rng)
        fitted = al.laws.fit(al.runs.load(path).columns, form, bootstrap=draws, seed=seed)
    made = []
    for multiple in MULTIPLES:
        plan = fitted.plan(multiple * largest)
        assert plan.N is not None
        assert plan.D is not None
        n, d = optimum(law, multiple * largest)
        at = loss_of(law, np.array(plan.N.value), np.array(plan.D.value))
        new = float(at) * float(np.exp(NOISE * rng.standard_normal()))
        made.append(
            {
                "multiple": multiple,
                "N_factor": float(np.exp(abs(np.log(plan.N.value / n)))),
                "D_factor": float(np.exp(abs(np.log(plan.D.value / d)))),
                "N_covered": plan.N.covers(n),
                "D_covered": plan.D.covers(d),
                "loss_covered": plan.loss.covers(new),
            }
        )
    return made


def summary(found: list[dict[str, float]], multiple: float) -> dict[str, float]:
    """Shares over the seeds at one multiple."""
    here = [row for row in found if row["multiple"] == multiple]
    close = [max(row["N_factor"], row["D_factor"]) <= FACTOR for row in here]
    return {
        "multiple": multiple,
        "within_1.3": float(np.mean(close)),
        "median_factor": float(np.median([row["N_factor"] for row in here])),
        **{k: float(np.mean([r[k] for r in here])) for k in here[0] if k.endswith("covered")},
    }


def main() -> None:
    """Print a table, and write it as JSON if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--form", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tables = {}
    for name, law in LAWS.items():
        found = [row for seed in range(args.seeds) for row in judge(law, seed, args.form)]
        tables[name] = [summary(found, multiple) for multiple in MULTIPLES]
        for row in tables[name]:
            print(
                f"{name}, {row['multiple']:g} x largest run: N and D within 1.3 in "
                f"{row['within_1.3']:.0%}, median factor {row['median_factor']:.2f}, covered N "
                f"{row['N_covered']:.0%}, D {row['D_covered']:.0%}, loss {row['loss_covered']:.0%}"
            )
    if args.json is not None:
        args.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    needs.run(main)
