"""Public families of runs in independent groups, one loader each, for `bench/calibrate.py`.

A family is a table of runs of one recipe: `loss` and some of `N`, `D`, `C`. Families that share
runs or authors' settings (other texts, other digitisations, other arms of one paper) form one
group, and a group is left out as a whole. Large sources are subsampled by a hash of the names.

Kinds: `grid` (size and data vary independently), `line` (sizes at one length or one ratio) and
`curve` (only the data vary). Losses along a training are used only if its learning rate is
constant: along a falling rate, checkpoints are not runs of different length.
"""

import zlib
from collections.abc import Callable, Iterator

import holdouts
import numpy as np
import pandas as pd

DATA = holdouts.DATA
MOST = 10
"""Families of one group; more are subsampled."""

Family = tuple[str, pd.DataFrame]


def families(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / "families" / f"{name}.csv", low_memory=False)


def some(found: list[Family], most: int = MOST) -> list[Family]:
    """At most so many of the families, by a hash of their names."""
    return sorted(found, key=lambda f: zlib.crc32(f[0].encode()))[:most]


def best(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The lowest loss of each configuration: over learning rates and other settings."""
    keys = list(columns or ("N", "D"))
    return frame.sort_values("loss").groupby(keys, as_index=False).first()


def by_family(frame: pd.DataFrame, columns: list[str], least: int = 5) -> list[Family]:
    """Each family's runs, without those of a missing or non-positive value."""
    found = []
    for name, part in frame.groupby("family"):
        part = part[[*columns, "loss"]].dropna()
        part = part[(part > 0).all(axis=1)]
        if len(part) >= least:
            found.append((str(name), part))
    return found


def chinchilla() -> Iterator[Family]:
    wanted = ("epoch", "kyo")
    yield from ((name, frame) for name, frame in holdouts.grids() if name in wanted)
    yield "isoflop", isoflops("epochai_chinchilla__massivetext__chinchilla")


def isoflops(experiment: str) -> pd.DataFrame:
    a = pd.read_csv(DATA / "openathena_isoflops/isoflops_extract.csv")
    a = a.rename(columns={"params": "N", "tokens": "D", "budget": "C"})
    return a[a.experiment == experiment][["N", "D", "C", "loss"]]


def gadre() -> Iterator[Family]:
    for loss in ("loss_c4_val", "loss_openlm", "loss_paloma_redpajama"):
        yield from holdouts.gadre(loss)


def llama3() -> Iterator[Family]:
    yield "raw", isoflops("llama_3__raw_loss")


def misfitting() -> Iterator[Family]:
    yield "isoflop", isoflops("misfitting__fineweb_c4__transformer")
    yield from ((n, f) for n, f in holdouts.grids() if n == "misfitting best")


def olmo() -> Iterator[Family]:
    yield "c4", holdouts.olmo()


def oellm() -> Iterator[Family]:
    yield "annealed", best(families("oellm_annealed_grid"))[["N", "D", "C", "loss"]]


def protein() -> Iterator[Family]:
    yield from by_family(families("protein_lm_final"), ["N", "D", "C"], 12)


def laion() -> Iterator[Family]:
    for name, part in families("ab_laion_clip_vs_mammut").groupby("family"):
        yield str(name), best(part)[["N", "D", "C", "loss"]]


def openclip() -> Iterator[Family]:
    frame = best(families("openclip_scaling"), "family", "N", "D")
    yield from some(by_family(frame, ["N", "D", "C"], 8))


def teacher_student() -> Iterator[Family]:
    frame = best(families("teacher_student_mlp"), "family", "N", "D")
    yield from by_family(frame, ["N", "D", "C"], 12)


def characters() -> Iterator[Family]:
    frame = families("char_isoflop_minchilla")
    yield "isoflop", frame[~frame.diverged][["N", "D", "C", "loss"]]


def gemstones() -> Iterator[Family]:
    """Checkpoints at a constant rate, at ten numbers of tokens."""
    frame = pd.read_csv(DATA / "gemstones/hot_100b.csv")
    frame = frame.rename(columns={"params_active_precise": "N", "final_loss": "loss"})
    rows = []
    for _, part in frame.groupby("run_name"):
        part = part.sort_values("tokens")
        wanted = np.geomspace(part.tokens.min(), part.tokens.max(), 10)
        rows.append(part.iloc[np.unique(np.searchsorted(part.tokens, wanted * 0.999))])
    frame = pd.concat(rows).assign(D=lambda f: f.tokens)
    yield "checkpoints", frame[["N", "D", "loss"]].dropna()


def quest() -> Iterator[Family]:
    frame = best(families("ab_quest_precision"), "family", "N", "D")
    yield from some(by_family(frame, ["N", "D", "C"], 5))


def qlabs() -> Iterator[Family]:
    yield from some(by_family(families("ab_qlabs_loop_ladders"), ["N", "D", "C"], 6))
    frame = families("ab_qlabs_loop_grid")
    frame = frame[frame.regime == "fresh"] if "regime" in frame else frame
    yield from some(by_family(best(frame, "family", "C"), ["C"], 6), 4)


def pythia() -> Iterator[Family]:
    """The last checkpoint of each size: earlier ones lie along a falling learning rate."""
    frame = families("ab_pythia_dedup_lambada")
    last = frame.sort_values("step").groupby(["family", "N"], as_index=False).last()
    yield from by_family(last, ["N"], 5)
    frame = families("ab_llmline_pythia_vs_mamba")
    last = frame.sort_values("D").groupby(["family", "N"], as_index=False).last()
    yield from some(by_family(last, ["N"], 5))


def routing() -> Iterator[Family]:
    yield from some([(n, f[["N", "loss"]]) for n, f in holdouts.ladders()])


def parallel() -> Iterator[Family]:
    both = [pd.read_csv(DATA / f"scalebench/parallel_{p}.csv") for p in ("train", "test")]
    frame = pd.concat(both).rename(columns={"num_params": "N"})
    for (group, size), part in frame.groupby(["group", "parallel_size"]):
        yield f"{group} {size}", part[["N", "loss"]].sort_values("N")


def curves_of(domain: str) -> Callable[[], Iterator[Family]]:
    """Learning curves of one domain of Alabdulmohsin et al."""

    def load() -> Iterator[Family]:
        folder = DATA / "google_learning_curves"
        both = pd.concat([pd.read_csv(p) for p in sorted(folder.glob("benchmark.*.csv"))])
        both = both[domain == both.Domain].rename(columns={"Seen Examples": "D", "Loss": "loss"})
        found = []
        for key, part in both.groupby(["Task", "Model"]):
            found.append((" ".join(map(str, key)), part[["D", "loss"]].sort_values("D")))
        yield from some(found, 12)

    return load


def trainings() -> Iterator[Family]:
    yield from some([(n, f[["D", "loss"]]) for n, f in holdouts.trainings()])


def drugs() -> Iterator[Family]:
    """Means over splits at each size."""
    frame = families("drug_response_learning_curves").dropna(subset=["loss"])
    frame = frame.groupby(["family", "D"], as_index=False).loss.mean()
    yield from some(by_family(frame, ["D"], 7), 16)


def fine_tuning() -> Iterator[Family]:
    frame = families("finetuning_rectified")
    yield from some(by_family(frame[frame.D > 0], ["D"], 8), 24)


def lcdb() -> Iterator[Family]:
    yield from some(by_family(families("lcdb11_test_error_half"), ["D"], 12), 40)


def well_specified() -> Iterator[Family]:
    """Grids of a known additive law or of Kaplan's, with noise of 0.3 or 0.5 %."""
    for seed in range(10):
        rng = np.random.default_rng(20_000 + seed)
        k = int(rng.integers(6, 13))
        N, D = np.repeat(np.geomspace(1e6, 1e9, k), k), np.tile(np.geomspace(1e8, 1e11, k), k)
        if seed % 2:
            gamma, alpha = rng.uniform(0.07, 0.14), rng.uniform(0.06, 0.12)
            exact = ((1e13 / N) ** (alpha / gamma) + 1e13 / D) ** gamma
        else:
            alpha, beta = rng.uniform(0.28, 0.4, 2)
            exact = rng.uniform(1.4, 2.0) + rng.uniform(0.5, 2) * (1e7 / N) ** alpha
            exact = exact + rng.uniform(0.5, 2) * (1e9 / D) ** beta
        noise = rng.choice([0.003, 0.005]) * rng.standard_normal(len(N))
        frame = pd.DataFrame({"N": N, "D": D, "C": 6 * N * D, "loss": exact * np.exp(noise)})
        yield f"seed {seed}", frame.sort_values("C")


GROUPS: dict[str, tuple[str, Callable[[], Iterator[Family]]]] = {
    "chinchilla": ("language", chinchilla),
    "gadre": ("language", gadre),
    "llama3": ("language", llama3),
    "misfitting": ("language", misfitting),
    "olmo": ("language", olmo),
    "oellm": ("language", oellm),
    "protein": ("protein", protein),
    "laion": ("vision-language", laion),
    "openclip": ("vision-language", openclip),
    "teacher_student": ("synthetic regression", teacher_student),
    "characters": ("language", characters),
    "gemstones": ("language", gemstones),
    "quest": ("language", quest),
    "qlabs": ("language", qlabs),
    "pythia": ("language", pythia),
    "routing": ("language", routing),
    "parallel": ("language", parallel),
    "image_curves": ("vision", curves_of("IC")),
    "translation_curves": ("language", curves_of("NMT")),
    "language_curves": ("language", curves_of("LM")),
    "bigbench_curves": ("language", curves_of("BB")),
    "constant_rate": ("language", trainings),
    "drug_response": ("biology", drugs),
    "fine_tuning": ("language", fine_tuning),
    "lcdb": ("tabular", lcdb),
    "well_specified": ("synthetic law", well_specified),
}


def kind(frame: pd.DataFrame) -> str:
    """`grid`, `line` or `curve`."""
    from allometry.laws.compute_cost import vary_independently
    from allometry.laws.runs_table import read

    if set(frame) - {"loss"} == {"D"}:
        return "curve"
    return "grid" if vary_independently(read(frame)) else "line"


def cuts(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Runs to fit, and runs of three times their compute or more to predict."""
    what = kind(frame)
    if what == "grid":
        frame = frame if "C" in frame else frame.assign(C=6.0 * frame.N * frame.D)
        yield from holdouts.cut(frame, fractions=(0.25, 0.4, 0.6, 0.8), least=6)
    elif what == "line":
        name = next(v for v in ("C", "N", "D") if v in frame)
        frame = frame.sort_values(name)
        factor = holdouts.FACTOR if name == "C" else holdouts.FACTOR**0.5
        for keep in (len(frame) - 3, len(frame) - 2, len(frame) - 1):
            small = frame.iloc[:keep]
            large = frame[frame[name] >= factor * small[name].max() * 0.999] if keep > 0 else small
            if small[name].nunique() >= 4 and len(large):
                yield small, large
    else:
        seen = set()
        for part in (18, 6, 3):
            small = frame[frame.D.max() / part >= frame.D]
            large = frame[holdouts.FACTOR * small.D.max() * 0.9999 <= frame.D]
            if len(small) >= 5 and len(large) and len(small) not in seen:
                seen.add(len(small))
                yield small, large
