"""`auto` on tables of every kind: fit the cheaper runs, predict the dearest.

Public tables in shared/data and synthetic ones of published forms, with roles of all kinds. No
table of ScaleBench is among them, so they may be used to choose constants. Printed per table: R2
on the held-out runs clipped to [-1, 1], error relative to the mean absolute response, coverage and
half-width of the 95 % intervals in the same unit, CPU seconds, and the chosen forms.

Run: `python bench/any_tables.py [--only lcdb sft] [--pool]`.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import needs
import numpy as np

from allometry import laws

DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Case:
    """Runs to fit and runs to predict.

    Args:
        name: Its name.
        data: Columns of all runs.
        variables: Columns that the law depends on.
        test: Which runs are held out.
        response: The column to predict.
        cost: Column of the cost, if there is one.
        roles: Roles that are said.
    """

    name: str
    data: dict[str, np.ndarray]
    variables: list[str]
    test: np.ndarray
    response: str = "loss"
    cost: str | None = None
    roles: dict[str, str] = field(default_factory=dict)

    def rows(self, where: np.ndarray) -> dict[str, np.ndarray]:
        """Some of the runs."""
        return {k: v[where] for k, v in self.data.items()}


def columns(path: str) -> dict[str, np.ndarray]:
    """The columns of a file: numbers where every cell is one, with blanks as NaN."""
    with (DATA / path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    out = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        try:
            out[name] = np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            out[name] = np.array(cells, dtype=object)
    return out


def some(data: dict[str, np.ndarray], where: np.ndarray) -> dict[str, np.ndarray]:
    """Some rows of a table."""
    return {k: v[where] for k, v in data.items()}


def top(x: np.ndarray, share: float) -> np.ndarray:
    """The largest values: about this share of the rows, and no equal values on both sides."""
    return x > np.quantile(x, 1 - share)


def tuning() -> Iterator[Case]:
    """Learning rate and batch."""
    t = columns("families/oellm_annealed_grid.csv")
    yield Case("oellm lr batch", t, ["N", "D", "lr", "gbsz_seqs"], top(t["C"], 0.15), cost="C")
    yield Case("oellm by N", t, ["N", "D", "lr", "gbsz_seqs"], t["N"] > 1.5e9, cost="C")
    t = columns("families/ab_laion_clip_vs_mammut.csv")
    part = some(t, t["recipe"] == "clip")
    yield Case("clip lr batch", part, ["N", "D", "lr", "batch"], top(part["C"], 0.1), cost="C")
    t = columns("families/taskset_curves_half.csv")
    t = some(t, (t["task"] == "patch32_GRU64_avg_bs128") & (t["loss"] < 10))
    yield Case("taskset lr", t, ["D", "lr"], t["D"] > 7000)
    t = columns("misfitting/scaling_results_last_ckpt_only.csv")
    yield Case("misfitting lr", t, ["N", "D", "peak_lr"], top(t["C"], 0.15), cost="C")


def fine_tuning() -> Iterator[Case]:
    """Fine-tuning in groups, with zero-shot rows."""
    t = columns("families/finetuning_rectified.csv")
    trained = some(t, t["D"] > 0)
    for name in ("flan", "gigaword", "wmt19"):
        one = some(trained, trained["dataset"] == name)
        yield Case(f"sft {name}", one, ["D", "model"], one["D"] > 1e6)
    yield Case("sft all", trained, ["D", "dataset", "model"], trained["D"] > 1e6)
    one = some(t, t["dataset"] == "flan")
    yield Case("sft with D=0", one, ["D", "model"], one["D"] > 4e5)
    one = some(trained, trained["dataset"] == "flan")
    yield Case("sft N D family", one, ["N", "D", "model_family"], one["D"] > 4e5)


def low_precision() -> Iterator[Case]:
    """Bits, loops and weight decay."""
    t = columns("families/ab_quest_precision.csv")
    yield Case("quest bits", t, ["N", "D", "w_bits", "a_bits"], t["N"] > 3e8, cost="C")
    yield Case("quest bits group", t, ["N", "w_bits", "w_quant"], t["N"] > 3e8, cost="C")
    t = columns("families/ab_qlabs_loop_grid.csv")
    yield Case("loop grid", t, ["depth", "recipe", "regime"], t["depth"] >= 16, cost="C")
    fine = some(t, np.isfinite(t["wd"]))
    yield Case("loop grid wd", fine, ["depth", "wd", "recipe", "regime"], fine["depth"] >= 16)
    t = columns("families/ab_qlabs_loop_ladders.csv")
    yield Case("loop ladders", t, ["C", "recipe"], top(t["C"], 0.2))


def sizes() -> Iterator[Case]:
    """Size and data, alone or in groups."""
    t = columns("gadre_overtraining/runs_104.csv")
    t["loss"] = t["loss_c4_val"]
    yield Case("gadre", t, ["N", "D", "dataset_name"], top(t["flops"], 0.2), cost="flops")
    t["err"] = t["err_avg"]
    yield Case("gadre error", t, ["N", "D", "dataset_name"], top(t["flops"], 0.2), "err", "flops")
    t = columns("kyo_takano_chinchilla/df.csv")
    yield Case("chinchilla", t, ["N", "D"], top(t["C"], 0.15), cost="C")
    t = columns("openathena_isoflops/isoflops_extract.csv")
    yield Case("isoflops", t, ["params", "tokens", "experiment"], top(t["budget"], 0.15),
               cost="budget")  # fmt: skip
    t = columns("families/protein_lm_final.csv")
    yield Case("protein", t, ["N", "D", "family"], top(t["C"], 0.15), cost="C")
    t = columns("families/teacher_student_mlp.csv")
    yield Case("teacher student", t, ["N", "D", "n_hidden"], top(t["C"], 0.15), cost="C")
    t = columns("gemstones/hot_100b.csv")
    t["C"] = 6 * t["params_active_precise"] * t["tokens"]
    yield Case("gemstones", t, ["width", "depth", "tokens"], top(t["C"], 0.5), "final_loss", "C")
    t = columns("families/insurance_frmtpl.csv")
    yield Case("insurance", t, ["D", "model"], t["D"] > 5e5)


def curves() -> Iterator[Case]:
    """Learning curves in groups: noisy, bounded, not monotone, negative."""
    t = columns("families/lcdb11_test_error_half.csv")
    rng = np.random.default_rng(0)
    largest = {
        f: t["D"][t["family"] == f].max() for f in rng.permutation(np.unique(t["family"]))[:300]
    }
    chosen = [f for f in largest if largest[f] > 2000][:24]
    t = some(t, np.isin(t["family"], chosen))
    end = np.array([largest[f] for f in t["family"]])
    yield Case("lcdb", t, ["D", "family"], t["D"] > 0.5 * end)
    t = columns("families/drug_response_learning_curves.csv")
    t = some(t, rng.random(len(t["loss"])) < 0.15)
    yield Case("drug response", t, ["D", "family"], top(t["D"], 0.1))
    t = columns("families/singlecell_noise_scaling.csv")
    t = some(t, (t["dataset"] == "PBMC") & (t["seed"] == 42))
    yield Case("single cell", t, ["D", "quality", "algorithm"], top(t["D"], 0.2))
    t = columns("google_learning_curves/benchmark.lang.csv")
    yield Case("translation", t, ["Seen Examples", "Model"], t["Training"] == 0, "Loss")
    t = columns("families/downstream_public_families.csv")
    t = some(t, np.isfinite(t["C"]) & (t["set"] == "v1"))
    t["log_flops"], t["score"] = np.log10(t["C"]), t["loss"] - 1
    yield Case("downstream", t, ["log_flops", "bench"], top(t["C"], 0.2), "score")
    t = columns("families/openclip_scaling.csv")
    yield Case("openclip", t, ["N", "D", "downstream"], top(t["C"], 0.2), cost="C")


def mixtures() -> Iterator[Case]:
    """Shares of domains, with sizes as numbers and as groups."""
    parts = []
    for size, label in ((1e6, "1m"), (6e7, "60m"), (1e9, "1B")):
        mix = columns(f"regmix/test_mixture_{label}.csv")
        loss = columns(f"regmix/test_pile_loss_{label}.csv")
        place = {int(i): k for k, i in enumerate(mix["index"])}
        kept = [k for k, i in enumerate(loss["index"]) if int(i) in place]
        where = np.array([place[int(loss["index"][k])] for k in kept])
        part = {k: v[where] for k, v in mix.items() if k != "index"}
        part["size"] = np.full(len(kept), size)
        part["loss"] = loss["metric/the_pile_pile_cc_val_loss"][kept]
        parts.append(part)
    t = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    shares = [k for k in t if k not in ("size", "loss")]
    yield Case("regmix to 1B", t, [*shares, "size"], t["size"] > 5e8)
    small = some(t, t["size"] < 5e8)
    label = np.array([f"{s:.0e}" for s in small["size"]], dtype=object)
    small["label"] = label
    few = np.random.default_rng(0).random(len(label)) < 0.3
    yield Case("regmix groups", small, [*shares, "label"], few)


def synthetic() -> Iterator[Case]:
    """Published forms with noise; the largest settings are held out."""
    rng = np.random.default_rng(1)

    def noisy(y: np.ndarray, noise: float) -> np.ndarray:
        return y * np.exp(noise * rng.normal(size=len(y)))

    def grid(*axes: Any) -> list[np.ndarray]:
        return [a.reshape(-1) for a in np.meshgrid(*axes)]

    # Repeated tokens: Muennighoff et al. (2023), and the same with a loss that rises again.
    N, U, epochs = grid(np.logspace(7.3, 9.6, 7), np.logspace(8, 10.5, 5),
                        [0.5, 1.0, 2, 4, 8, 16, 44])  # fmt: skip
    D = U * epochs
    seen = np.minimum(U, D)
    value = seen + seen * 15.4 * (1 - np.exp(-(D / seen - 1) / 15.4))
    best = np.minimum(N, 20 * U)
    size = best + best * 5.3 * (1 - np.exp(-np.maximum(N / best - 1, 0) / 5.3))
    loss = 1.87 + 521 / size**0.35 + 1488 / value**0.35
    keep = rng.random(len(N)) < 0.7
    t = {"params": N, "tokens": D, "unique_tokens": seen, "loss": noisy(loss, 0.006), "C": N * D}
    t = some(t, keep)
    names = ["params", "tokens", "unique_tokens"]
    yield Case("repeated data", t, names, top(t["C"], 0.15), cost="C")
    t = t | {"loss": t["loss"] + 0.02 * (t["params"] / 1e9) ** 0.3 * np.log(
        np.maximum(t["tokens"] / t["unique_tokens"], 1)) ** 2}  # fmt: skip
    yield Case("overfitting", t, names, top(t["C"], 0.15), cost="C")
    yield Case("no cost", t, names, t["params"] > 3e9)
    # A grid of rates and batches with steep losses at high rates.
    N, D, lr, bs = grid([6e7, 1.2e8, 2.1e8, 4.3e8, 1.07e9], [2e9, 8e9, 2e10, 1e11],
                        2.0 ** np.arange(-12, -6.5, 0.75), 2.0 ** np.arange(5, 11.5))  # fmt: skip
    away = np.log(lr / (1.79 * N**-0.713 * D**0.307 * np.sqrt(bs * 2048 / (0.58 * D**0.571))))
    far = np.log(bs * 2048 / (0.58 * D**0.571))
    loss = 1.8 + 300 / N**0.33 + 600 / D**0.32 + 0.012 * (np.exp(away) - 1 - away)
    t = {"lr": lr, "bsz": bs, "data_size": D, "non_embedding_param_size": N,
         "lm_loss": noisy(loss + 0.008 * far**2, 0.002)}  # fmt: skip
    t = some(t, rng.random(len(N)) < 0.8)
    t["C"] = t["data_size"] * t["non_embedding_param_size"]
    names = ["lr", "bsz", "data_size", "non_embedding_param_size"]
    yield Case("step law", t, names, t[names[-1]] > 1e9, "lm_loss")
    yield Case("step law cost", t, names, top(t["C"], 0.2), "lm_loss", "C")
    # A score against log compute that falls and rises again.
    x, task = grid(np.linspace(-1, 4, 40), np.arange(5.0))
    score = -0.6 + 0.12 * np.tanh(x - 1.5 - 0.3 * task) - 0.08 * np.exp(-((x - 0.8) ** 2))
    t = {"log_flops": x, "task": np.array([f"t{int(k)}" for k in task], dtype=object),
         "brier_score": score * (1 + 0.1 * task) + 0.01 * rng.normal(size=len(x))}  # fmt: skip
    yield Case("u shape", t, ["log_flops", "task"], x > 2.8, "brier_score")
    # Five shares at four sizes.
    P = rng.dirichlet(np.full(5, 0.7), size=32)
    parts = []
    for label, level in (("70M", 3.2), ("160M", 2.9), ("305M", 2.75), ("410M", 2.7)):
        each = {f"proportion_domain_{k + 1}": P[:, k] for k in range(5)}
        mix = level - 1.2 + np.exp(P @ [0.1, -1.4, 0.2, 0.0, -0.1])
        each["loss_domain_2"] = noisy(mix, 0.004)
        each["model_size"] = np.full(len(P), label, dtype=object)
        parts.append(each)
    t = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    names = [k for k in t if k != "loss_domain_2"]
    yield Case("domain mixture", t, names, np.tile(np.arange(32) >= 24, 4), "loss_domain_2")
    # Sparsity of weights (Frantar et al. 2024), and experts that saturate (Clark et al. 2022).
    N, D, S = grid(np.logspace(6, 8.3, 6), np.logspace(9, 11, 4), [0.0, 0.5, 0.75, 0.875])
    loss = (16.8 * (1 - S) ** 0.722 + 45) / N**0.245 + 6.9e8 / D**1.0 + 0.651
    t = {"n_params": N, "tokens": D, "sparsity": S, "loss": noisy(loss, 0.003), "C": N * D}
    yield Case("pruned", t, ["n_params", "tokens", "sparsity"], top(t["C"], 0.2), cost="C")
    N, X = grid(np.logspace(7.2, 9, 6), 2.0 ** np.arange(0, 10))
    lift = 1 / (1 / (X - 1 + 1 / (1 / 1.85 - 1 / 314)) + 1 / 314)
    loss = np.exp(0.98 * np.log(10) - 0.082 * np.log(N) - 0.245 * np.log(lift)
                  + 0.0109 * np.log(N) * np.log(lift))  # fmt: skip
    t = {"N": N, "experts": X, "loss": noisy(loss, 0.006), "cost": N * X}
    yield Case("experts", t, ["N", "experts"], N > 8e8, cost="cost")
    # Vocabulary: a minimum that moves with data (Tao et al. 2024).
    N, V, D = grid(np.logspace(7.3, 9, 6), 2.0 ** np.arange(12, 17.5), np.logspace(8.3, 10.5, 8))
    loss = -5 + 1.97 / N**0.045 + 4.5 / (256 * V * N**0.1) ** 0.05 + 1000 / D**0.44
    loss = loss + 0.05 * np.log(V / (2e-3 * D**0.7)) ** 2
    t = {"N": N, "vocab_size": V, "chars": D, "loss": loss + 0.01 * rng.normal(size=len(N)),
         "C": N * D}  # fmt: skip
    yield Case("vocabulary", t, ["N", "vocab_size", "chars"], top(t["C"], 0.1), cost="C")


def noisy_tables() -> Iterator[Case]:
    """Published forms with much noise, few settings or groups of their own parameters."""
    for seed in range(5):
        rng = np.random.default_rng(seed + 500)
        N, X = rng.choice(np.logspace(7.2, 9.2, 6), 140), 2.0 ** rng.integers(0, 10, 140)
        lift = 1 / (1 / (X - 1 + 1 / (1 / 1.85 - 1 / 314)) + 1 / 314)
        a, b, c = rng.normal([0.09, 0.24, 0.011], [0.012, 0.03, 0.0015])
        if seed % 3 == 0:
            loss = np.exp(2.4 - a * np.log(N) - b * np.log(lift) + c * np.log(N) * np.log(lift))
        elif seed % 3 == 1:
            loss = 1.5 + 40 / (N**0.2 * X**0.12)
        else:
            loss = 1.6 + 60 / N**0.24 + 2.2 / X**0.3 * (N / 1e7) ** -0.2
        loss = loss * np.exp((0.018 if seed < 3 else 0.003) * rng.normal(size=140))
        t = {"dense": N, "num_experts": X, "loss": loss, "cost": N * X}
        yield Case(f"routed {seed}", t, ["dense", "num_experts"], N > 8e8, cost="cost")
    rng = np.random.default_rng(7)
    sizes = 200 * 2.0 ** np.arange(13)
    parts = []
    for g in range(20):
        E, B, b = rng.uniform([0.6, 40, 0.35], [2.2, 400, 0.9])
        start = rng.uniform(20, 600) * 5 ** rng.normal()
        loss = (B / (start + sizes**b) + E) * np.exp(0.008 * rng.normal(size=13))
        parts.append({"sft_data_size": sizes, "group": np.full(13, f"g{g}", object), "loss": loss})
    t = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    names = ["sft_data_size", "group"]
    yield Case("sft groups", t, names, t["sft_data_size"] > 6e5, cost="sft_data_size")
    S, T, D = (a.reshape(-1) for a in np.meshgrid(
        np.logspace(8, 9.7, 6), np.logspace(8.5, 10, 4), np.logspace(9, 11, 6)))  # fmt: skip
    teacher = 1.8 + 400 / T**0.34
    alone = 1.8 + 400 / S**0.34 + 1200 / D**0.36
    loss = teacher + (np.maximum(alone - teacher, 0.01) ** 1.3 + 0.08) / teacher**0.1
    t = {"student": S, "teacher_loss": teacher, "tokens": D, "C": S * D,
         "loss": loss * np.exp(0.004 * rng.normal(size=len(S)))}  # fmt: skip
    yield Case(
        "distillation", t, ["student", "teacher_loss", "tokens"], top(t["C"], 0.15), cost="C"
    )
    N, k = (a.reshape(-1) for a in np.meshgrid(np.logspace(8, 10.5, 8), 2.0 ** np.arange(11)))
    loss = 0.05 + 0.9 * (1 + k) ** (-0.06 * np.log10(N / 1e7))
    t = {"params": N, "samples": k, "loss": loss * np.exp(0.01 * rng.normal(size=len(N)))}
    t["C"] = N * k
    yield Case("samples", t, ["params", "samples"], top(t["C"], 0.2), cost="C")


KINDS: dict[str, Callable[[], Iterator[Case]]] = {
    "tuning": tuning, "fine_tuning": fine_tuning, "low_precision": low_precision,
    "sizes": sizes, "curves": curves, "mixtures": mixtures, "synthetic": synthetic,
    "noisy": noisy_tables,
}  # fmt: skip


def judged(case: Case, law: Any) -> tuple[float, float, float, float]:
    """R2 clipped to [-1, 1], relative error, coverage and relative half-width."""
    held = case.rows(case.test)
    fine = np.all([np.isfinite(held[k]) for k in (*case.variables, case.response)
                   if held[k].dtype != object], 0)  # fmt: skip
    held = {k: v[fine] for k, v in held.items()}
    lower, value, upper = law.band(**{k: held[k] for k in case.variables})
    y = held[case.response]
    r2 = float(np.clip(1 - ((y - value) ** 2).sum() / ((y - y.mean()) ** 2).sum(), -1, 1))
    unit = float(np.abs(y).mean())
    return (
        r2,
        float(np.abs(y - value).mean()) / unit,
        float(((lower <= y) & (y <= upper)).mean()),
        float((upper - lower).mean()) / 2 / unit,
    )


def few(case: Case, share: float, seed: int) -> Case:
    """The case with some of the runs that are not held out."""
    rng = np.random.default_rng(seed)
    kept = case.test | (rng.random(len(case.test)) < share)
    return Case(case.name, case.rows(kept), case.variables, case.test[kept], case.response,
                case.cost, case.roles)  # fmt: skip


SHARES = (0.01, 0.05, 0.1)
"""Shares of the summed cost at which a campaign fits a law."""


def campaign(case: Case, seed: int) -> str:
    """R2 after runs chosen one after another at each share of the whole cost, and with all."""
    begin = time.process_time()
    done = laws.replay(
        case.rows(~case.test),
        variables=case.variables,
        response=case.response,
        cost=case.cost or "",
        target=case.rows(case.test),
        shares=SHARES,
        roles=case.roles,
        seed=seed,
    )
    spent = time.process_time() - begin
    steps = [f"{max(s.r2, -1):6.3f} ({s.runs:3d}, {s.coverage:4.0%})" for s in done.steps]
    return f"{' '.join(steps)} {spent:5.1f} s"


def line(case: Case, why: bool) -> tuple[float, float, float, float]:
    """Print the row of a table and return its figures; a crash counts as R2 of -1."""
    begin = time.process_time()
    train = case.rows(~case.test)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            law = laws.fit(
                train,
                variables=case.variables,
                response=case.response,
                cost=case.cost,
                roles=case.roles,
            )
            row = judged(case, law)
        except Exception as error:
            print(f"{case.name:17} {type(error).__name__}: {str(error)[:150]}", flush=True)
            return -1.0, np.nan, np.nan, np.nan
    spent = time.process_time() - begin
    members = list(law.to_dict()["members"].items())
    forms = ", ".join(f"{name} {w:.0%}" for name, w in members[:3])
    r2, error, cover, half = row
    print(
        f"{case.name:17} {law.n:5d} {int(case.test.sum()):5d} {r2:6.3f} {error:7.2%} "
        f"{cover:5.0%} {half:6.1%} {spent:5.1f}  {forms}",
        flush=True,
    )
    if why:
        print("   ", law.why, *law.warnings, sep="\n    ")
    return row


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[], help="names of tables or of kinds")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs to fit")
    parser.add_argument("--why", action="store_true", help="print the errors of all forms")
    parser.add_argument("--pool", type=int, default=0, help="seeds of campaigns from a pool")
    asked = parser.parse_args()
    chosen = [
        case if asked.share == 1 else few(case, asked.share, 0)
        for kind, cases in KINDS.items()
        for case in cases()
        if not asked.only or {kind, case.name} & set(asked.only)
    ]
    if asked.pool:
        for case in chosen:
            for seed in range(asked.pool if case.cost else 0):
                print(f"{case.name:17} {campaign(case, seed)}", flush=True)
        return
    print(f"{'table':17}   fit  test     R2   error cover   half     s")
    r2, error, cover, half = np.array([line(case, asked.why) for case in chosen]).T
    print(
        f"mean R2 {r2.mean():.3f}, median {np.median(r2):.3f}; geometric mean error "
        f"{np.exp(np.nanmean(np.log(error))):.2%}; coverage {np.nanmean(cover):.0%}; "
        f"median half-width {np.nanmedian(half):.1%}"
    )


if __name__ == "__main__":
    needs.run(main, needs.DATA)
