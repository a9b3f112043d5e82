"""Laws in any variables on public runs: Gemstones, RegMix, and the time of `auto` on many runs.

Run: `python bench/variables.py`. Needs the folder shared/data beside the project.
"""

import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

from allometry import laws
from allometry.runs.importers.raw_columns import load_columns

DATA = Path(__file__).parents[2] / "shared" / "data"


def gemstones() -> None:
    """Width and depth: the smaller half of compute predicts the larger half."""
    for name in ("hot_100b", "hot_120b"):
        table = load_columns(DATA / "gemstones" / f"{name}.csv")
        C = 6 * table["params_active_precise"] * table["tokens"]
        small = np.median(C) >= C
        names = ["width", "depth", "tokens"]
        data = {k: table[k][small] for k in (*names, "final_loss")} | {"C": C[small]}
        begin = time.process_time()
        law = laws.fit(data, variables=names, response="final_loss", cost="C")
        spent = time.process_time() - begin
        lower, value, upper = law.band(**{k: table[k][~small] for k in names})
        truth = table["final_loss"][~small]
        error = np.abs(value / truth - 1)
        inside = ((lower <= truth) & (truth <= upper)).mean()
        print(
            f"gemstones {name}: {small.sum()} -> {(~small).sum()} runs: mean error "
            f"{error.mean():.2%}, 95th percentile {np.quantile(error, 0.95):.2%}, coverage "
            f"{inside:.0%}, form {law.form}, {spent:.1f} s"
        )


def regmix(metric: str = "metric/the_pile_pile_cc_val_loss") -> None:
    """Ranking of mixtures at 1B from runs at 1M and 60M."""
    parts = []
    for kind, size, label in (("train", 1e6, "1m"), ("test", 1e6, "1m"), ("test", 6e7, "60m")):
        mix = load_columns(DATA / "regmix" / f"{kind}_mixture_{label}.csv")
        loss = load_columns(DATA / "regmix" / f"{kind}_pile_loss_{label}.csv")
        parts.append(_joined(mix, loss, metric, size))
    mix = load_columns(DATA / "regmix" / "test_mixture_1B.csv")
    goal = _joined(mix, load_columns(DATA / "regmix" / "test_pile_loss_1B.csv"), metric, 1e9)
    names = [k for k in goal if k != "loss"]
    for label, chosen in (("1M", parts[:2]), ("60M", parts[2:]), ("1M and 60M", parts)):
        data = {k: np.concatenate([part[k] for part in chosen]) for k in goal}
        begin = time.process_time()
        law = laws.fit(data, variables=names)
        spent = time.process_time() - begin
        lower, value, upper = law.band(**{k: goal[k] for k in names})
        rank = stats.spearmanr(value, goal["loss"]).statistic
        best = int(np.argmin(value))
        truth = goal["loss"]
        print(
            f"regmix {metric.split('/')[1]} from {label} ({len(data['loss'])} runs): Spearman "
            f"{rank:.4f}; best predicted mixture: loss {truth[best]:.3f} (rank "
            f"{int((truth < truth[best]).sum()) + 1} of {len(truth)}), interval {lower[best]:.3f} "
            f"to {upper[best]:.3f}; coverage {((lower <= truth) & (truth <= upper)).mean():.0%}; "
            f"form {law.form}, {spent:.1f} s"
        )


def _joined(mix: dict, loss: dict, metric: str, size: float) -> dict[str, np.ndarray]:
    place = {int(i): k for k, i in enumerate(mix["index"])}
    rows = np.array([k for k, i in enumerate(loss["index"]) if int(i) in place])
    where = np.array([place[int(loss["index"][k])] for k in rows])
    out = {k: v[where] for k, v in mix.items() if k != "index"}
    return out | {"size": np.full(len(rows), size), "loss": loss[metric][rows]}


def timing(n: int = 2700) -> None:
    """CPU time of `auto` on many runs in four variables, two of them tuned."""
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(17, 21, n)), np.exp(rng.uniform(21, 25, n))
    lr, bs = np.exp(rng.uniform(-9, -4, n)), np.exp(rng.uniform(3, 7, n))
    best = np.log(1.8) - 0.7 * np.log(N) + 0.3 * np.log(D)
    loss = 1.7 + 400 / N**0.34 + 410 / D**0.28 + 0.02 * (np.log(lr) - best) ** 2
    loss = loss + 0.01 * (np.log(bs) - 0.57 * np.log(D) + 8.5) ** 2
    data = {"N": N, "D": D, "lr": lr, "bs": bs, "loss": loss * np.exp(0.003 * rng.normal(size=n))}
    begin = time.process_time()
    law = laws.fit(data, variables=["N", "D", "lr", "bs"], cost="6*N*D")
    print(
        f"auto on {n} runs in four variables: {time.process_time() - begin:.1f} s CPU; {law.why}"
    )


if __name__ == "__main__":
    if not DATA.is_dir():
        sys.exit(f"{DATA} is absent.")
    timing()
    gemstones()
    regmix()
