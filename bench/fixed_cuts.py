"""Six families of language and protein models, each cut at two quantiles of compute.

Runs up to the 40 or 60 % quantile of compute are fitted; runs of three times their largest compute
or more are predicted. Errors are in % of the loss, positive where it is predicted too high, and
every cut counts once. OpenEuroLLM counts with the lowest loss of each size and data.

Compared are `auto` of 0.9 (its forms and constants, no correction), the same with the naive
correction (less the mean slope of the log error per decade of compute over the other groups),
`auto` of today without correction, `auto` with the constants of the package (which were fitted to
these families too), and, with `--cache`, `auto` with the constants that `bench/calibrate.py` fits
to all groups but the one judged.

Run: `python bench/fixed_cuts.py [--draws 100] [--cache FILE]`; FILE holds the fits of
`bench/calibrate.py`, which take ten minutes or more, and is made if it does not exist.
"""

import argparse

import calibrate
import calibration_model as model
import families_registry as registry
import needs
import numpy as np
import pandas as pd

import allometry as al

QUANTILES = (0.4, 0.6)
FACTOR = 3.0


def families():
    """Group, name and runs of each family."""
    yield "oellm", "OpenEuroLLM", next(registry.oellm())[1]
    for name, frame in registry.protein():
        yield "protein", name, frame
    yield (
        "chinchilla",
        "Chinchilla",
        registry.isoflops("epochai_chinchilla__massivetext__chinchilla"),
    )
    yield "llama3", "Llama 3", registry.isoflops("llama_3__raw_loss")
    experiment = "misfitting__fineweb_c4__transformer"
    yield "misfitting", "misfitting", registry.isoflops(experiment)


def measured(draws):
    """The law of each cut with the larger runs, like the rows of `calibrate.measured`."""
    for group, family, frame in families():
        frame = frame.astype(float)
        for quantile in QUANTILES:
            small = frame[np.quantile(frame.C, quantile) >= frame.C]
            large = frame[FACTOR * small.C.max() <= frame.C]
            columns = small[["N", "D", "C", "loss"]]
            law = al.laws.fit(columns, bootstrap=draws)
            with calibrate.forms_before():
                before = al.laws.fit(columns, bootstrap=draws)
            points = {k: large[k].to_numpy(float) for k in "NDC"}
            truth = np.log(large.loss.to_numpy(float))
            yield {"group": group, "family": f"{family} {quantile}", "law": law,
                   "before": before, "points": points, "truth": truth}  # fmt: skip


def judged(row, band):
    """Errors, coverage, width and interval score of a cut; all but the score in % of the loss."""
    y = row["truth"]
    error = 100 * np.expm1(band["mid"] - y)
    outside = np.maximum(np.maximum(band["lo"] - y, y - band["hi"]), 0.0)
    width = np.exp(band["hi"] - band["mid"]) - np.exp(band["lo"] - band["mid"])
    return {
        "group": row["group"],
        "family": row["family"],
        "signed": error.mean(),
        "absolute": np.abs(error).mean(),
        "covered": (outside == 0).mean(),
        "width": 100 * np.median(width),
        "score": (band["hi"] - band["lo"] + 40 * outside).mean(),
    }


def left_out(rows, tables):
    """Bands by the constants of the other groups."""
    out = []
    for row in rows:
        with calibrate.constants(tables[row["group"]]):
            out.append(calibrate.bands(row))
    return out


def naive(rows, found):
    """Bands by the mean slope of the log error per decade of compute over the other groups."""
    lines = []
    for f in found:
        u, error = np.maximum(f["decades"], 0.0), -f["error"]
        slope = float(u @ error / (u @ u))
        rest = float(np.sqrt(np.mean((error - slope * u) ** 2)))
        lines.append({"group": f["group"], "slope": slope, "rest": rest})
    each = pd.DataFrame(lines).groupby("group").mean()
    out = []
    for f in found:
        other = each[each.index != f["group"]]
        u = np.maximum(f["decades"], 0.0)
        mid = f["mid"] - other.slope.mean() * u
        sd = np.hypot(other.slope.std() * u, other.rest.mean())
        out.append({"mid": mid, "lo": mid - 1.96 * sd, "hi": mid + 1.96 * sd})
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--cache", help="the fits of bench/calibrate.py")
    options = parser.parse_args()
    rows = list(measured(options.draws))
    earlier = [row | {"law": row["before"]} for row in rows]
    with calibrate.constants(calibrate.BEFORE):
        bands = {"auto of 0.9": [calibrate.bands(r, calibrated=False) for r in earlier]}
        bands["without correction"] = [calibrate.bands(r, calibrated=False) for r in rows]
    found = [calibrate.features(row) for row in earlier]
    bands["auto of 0.9, naive correction, group left out"] = naive(earlier, found)
    bands["calibrated, constants of all groups"] = [calibrate.bands(row) for row in rows]
    if options.cache:
        fits = calibrate.cached(options.cache, lambda: list(calibrate.measured(options.draws)))
        _, tables = calibrate.left_out(model.pack([calibrate.features(row) for row in fits]))
        bands["calibrated, group left out"] = left_out(rows, tables)
    for name, of in bands.items():
        frame = pd.DataFrame([judged(r, b) for r, b in zip(rows, of, strict=True)])
        print(f"\n{name}\n{frame.round(3).to_string(index=False)}")
        mean = frame[["signed", "absolute", "covered"]].mean()
        groups = frame.groupby("group").covered.mean()
        print(
            f"mean of cuts: signed {mean.signed:+.2f} %, absolute {mean.absolute:.2f} %, coverage "
            f"{mean.covered:.3f} (worst group {groups.min():.2f}); median width "
            f"{frame.width.median():.2f} %, median score {frame.score.median():.4f}"
        )


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        needs.run(main, needs.DATA)
