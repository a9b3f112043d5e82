"""Hold-outs from public data: small runs to fit and larger runs to predict.

A hold-out is one public family of runs, or one learning or training curve, cut at some compute.
Everything at or below the cut is fitted. Everything at three times the largest fitted compute or
more is predicted.

Families are cut at the 50, 65 and 80 % quantiles of compute, ladders of a few sizes before the
last and the last but one, curves at a sixth and at a third of their length. A curve has no size;
its data replace compute. A family of runs counts with the loss that its authors fit ("grid");
losses of the same runs on other texts are separate ("other"). Used by `bench/coverage.py`; each
case is (name, columns to fit, columns to predict).
"""

import json
import zlib
from pathlib import Path

import needs
import numpy as np
import pandas as pd

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
FACTOR = 3.0


def cut(frame, by="C", fractions=(0.5, 0.65, 0.8), least=12):
    """Frames below each quantile of compute, with the runs at three times as much or more."""
    seen = set()
    for q in fractions:
        top = np.quantile(frame[by], q)
        small = frame[frame[by] <= top * 1.0001]
        if len(small) < least:
            continue
        large = frame[frame[by] >= FACTOR * small[by].max() * 0.9999]
        if len(large) == 0 or len(small) in seen:
            continue
        seen.add(len(small))
        yield small, large


def grids():
    """Grids in N and D."""
    e = pd.read_csv(DATA / "epoch_chinchilla/svg_extracted_data.csv")
    e = e.rename(columns={"Model Size": "N", "Training FLOP": "C"}).nsmallest(240, "loss")
    e["D"] = e.C / 6 / e.N
    yield "epoch", e[["N", "D", "C", "loss"]]
    yield "kyo", pd.read_csv(DATA / "kyo_takano_chinchilla/df.csv")[["N", "D", "loss"]]
    for name, part in gadre("loss_c4_val"):
        yield name, part
    a = pd.read_csv(DATA / "openathena_isoflops/isoflops_extract.csv")
    a = a.rename(columns={"params": "N", "tokens": "D", "budget": "C"})
    for name in ("llama_3__raw_loss", "misfitting__fineweb_c4__transformer"):
        yield f"openathena {name}", a[a.experiment == name][["N", "D", "C", "loss"]]
    m = pd.read_csv(DATA / "misfitting/scaling_results_last_ckpt_only.csv")
    m = m.sort_values("loss").groupby(["N", "D"], as_index=False).first()  # best learning rate
    yield "misfitting best", m[["N", "D", "C", "loss"]]
    yield "olmo", olmo()


def gadre(loss):
    """The over-trained runs of each training set, with their loss on some text."""
    g = pd.read_csv(DATA / "gadre_overtraining/runs_104.csv").rename(columns={"flops": "C"})
    for name, part in g.groupby("dataset_name"):
        part = part.assign(loss=part[loss])[["N", "D", "C", "loss"]].dropna()
        yield f"gadre {name} {loss[5:]}", part


def others():
    """Losses of the same runs on other texts, which jump where the runs' settings changed."""
    for loss in ("loss_openlm", "loss_paloma_redpajama"):
        yield from gadre(loss)


def olmo():
    """Final C4 loss of each ladder run, size and tokens from its name and config."""
    sizes = {
        "190M": 190_354_176,
        "370M": 371_262_464,
        "760M": 758_220_288,
        "1B": 1_279_395_840,
        "3B": 3_169_537_280,
    }
    rows = []
    for path in sorted((DATA / "olmo_ladder/ladder-runs").glob("*xC.csv")):
        size = path.name.split("-")[0]
        frame = pd.read_csv(path)
        loss = [c for c in frame.columns if "c4_en-validation/CrossEntropyLoss" in c]
        if not loss:
            continue
        last = frame.dropna(subset=loss[:1]).iloc[-1]
        tokens = last.get("throughput/total_tokens", np.nan)
        rows.append({"N": sizes[size], "D": tokens, "loss": last[loss[0]]})
    return pd.DataFrame(rows)


def ladders():
    """Ladders of dense and routed models at one number of steps: few sizes each."""
    r = pd.read_csv(DATA / "routing_unified/curves.csv.gz")
    r = r[r.step == 249_000]
    r = r[(r.k == 1) & (r.routing_frequency.isin([0.5, 1.0]))]
    for (router, experts), part in r.groupby(["router_type", "num_experts"]):
        part = part.groupby("dense_parameter_count", as_index=False).loss_validation.mean()
        part = part.rename(columns={"dense_parameter_count": "N", "loss_validation": "loss"})
        part["C"] = part.N
        if len(part) >= 5:
            yield f"routing {router} {experts}", part[["N", "loss", "C"]]


def curves():
    """Learning curves: the part that the public benchmark fits; the rest stays unseen."""
    folder = DATA / "google_learning_curves"
    both = pd.concat([pd.read_csv(p) for p in sorted(folder.glob("benchmark.*.csv"))])
    for key, part in both[both.Training == 1].groupby(["Domain", "Task", "Model"]):
        part = part.rename(columns={"Seen Examples": "D", "Loss": "loss"})[["D", "loss"]]
        yield " ".join(key), part.sort_values("D").assign(C=lambda f: f.D)


def trainings():
    """Losses during training at a constant rate.

    With a decaying rate the loss depends on the schedule, which a law in data does not model (the
    slope of the routed models' logged losses steepens by half between a third and two thirds of
    the run and then halves). Use `fit_schedule` for such curves.
    """
    for path in sorted((DATA / "multipowerlaw").rglob("constant_*.csv")):
        frame = pd.read_csv(path).rename(columns={"step": "D"})[["D", "loss"]]
        yield f"constant {path.parent.name} {path.stem}", frame.assign(C=frame.D)


def cases():
    """Every hold-out with its name."""
    both = [("grid", *found) for found in grids()] + [("other", *found) for found in others()]
    for kind, name, frame in both:
        frame = frame.copy()
        if "C" not in frame:
            frame["C"] = 6.0 * frame.N * frame.D  # floats: the integers overflow
        given = [c for c in ("N", "D", "C") if c in frame]
        for small, large in cut(frame):
            yield f"{kind} {name} n={len(small)}", small[[*given, "loss"]], large[[*given, "loss"]]
    for name, frame in ladders():
        for keep in (len(frame) - 2, len(frame) - 1):
            small = frame.nsmallest(keep, "N")
            large = frame[FACTOR * small.N.max() ** 2 <= frame.N * frame.N]
            if keep >= 4 and len(large):
                yield f"ladder {name} n={keep}", small[["N", "loss"]], large[["N", "loss"]]
    for kind, found in (("curve", curves()), ("training", trainings())):
        for name, frame in found:
            seen = set()
            for part in (6, 3):
                small = frame[frame.D.max() / part >= frame.D]
                large = frame[FACTOR * small.D.max() * 0.9999 <= frame.D] if len(small) else small
                if len(small) >= 5 and len(large) and len(small) not in seen:
                    seen.add(len(small))
                    label = f"{kind} {name} n={len(small)}"
                    yield label, small[["D", "loss"]], large[["D", "loss"]]


def family(name):
    """The curve or family that decides a hold-out's set; no family is in both sets."""
    kind, rest = name.split(" n=")[0].split(" ", 1)
    if kind in ("grid", "other"):
        rest = {"epoch": "chinchilla", "kyo": "chinchilla"}.get(rest, rest)
        return " ".join(rest.split()[:2])  # one family may have several losses
    return rest


def assigned_set(name):
    """Calibration set or held-out set, by a hash of the hold-out's curve or family."""
    if name.startswith("synthetic"):
        return "held-out"
    return ("calibration", "held-out")[zlib.crc32(family(name).encode()) % 2]


def dataset(name):
    """The data set that a hold-out is from."""
    kind, rest = name.split(" ", 1)
    if kind == "curve":
        return f"curve {rest.split()[0]}"
    alone = ("synthetic", "synthetic-grid", "ladder")
    return kind if kind in alone else f"{kind} {rest.split()[0]}"


def main():
    """Print the sizes of all hold-outs."""
    counts = {}
    for name, small, large in cases():
        kind = " ".join(name.split()[:2])
        counts.setdefault(kind, []).append((len(small), len(large)))
    print(json.dumps({k: v[:8] for k, v in counts.items()}, indent=0))


if __name__ == "__main__":
    needs.run(main, needs.DATA)
