"""Record digits before a refactoring and compare them after it.

Run: python bench/identical.py --write before.json
     python bench/identical.py --compare before.json

Runs small deterministic studies (text, moons, ring, digits VAE, universal) through the command
line and fits laws to tables of runs. Records every loss of every run by its key, and every
parameter and prediction of every fit, to the last digit. Exit code 1 if one differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import needs

ROOT = Path(__file__).parent.parent
NOTES = ROOT / "tests" / "fixtures" / "studies" / "notes.txt"
DATA = ROOT.parent / "shared" / "data"

STUDIES = {
    "text": f"{NOTES} --tokens 4000 --context 16 --largest 4000",
    "moons": "moons --tokens 8000 --family affine_coupling --largest 4000",
    "ring": "ring --tokens 40000 --family gan --family wgan --largest 2000",
    "digits VAE": "digits --tokens 4000 --family vae --smallest 4000 --largest 8000",
    "universal": "universal --tokens 4000 --largest 1500",
}
TABLES = {
    "Chinchilla": "epoch_chinchilla/svg_extracted_data.csv",
    "kyo-takano": "kyo_takano_chinchilla",
    "Gadre": "gadre_overtraining/runs_104.csv",
}
COLUMNS = ("loss", "loss_se", "test_loss", "N", "D", "C", "status", "family", "shape")


def allometry(*arguments):
    code = "from allometry.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def studies():
    """The columns of every run, by study and key."""
    found = {}
    for name, words in STUDIES.items():
        with tempfile.TemporaryDirectory() as folder:
            common = ("--rungs", 2, "--seeds", 1, "--deterministic", "-o", f"{folder}/runs")
            allometry("run", *words.split(), *common)
            lines = Path(folder, "runs", "journal.jsonl").read_text().splitlines()
        rows = map(json.loads, lines)
        found[name] = {r["key"]: {c: r.get(c) for c in COLUMNS} for r in rows}
    return found


def synthetic(folder):
    """Thirty runs from a Chinchilla law with 0.3 % noise."""
    import numpy as np

    rng = np.random.default_rng(0)
    path = Path(folder, "runs.csv")
    with path.open("w") as file:
        file.write("params,tokens,loss\n")
        for n in np.geomspace(1e6, 1e8, 5):
            for d in np.geomspace(1e8, 3e10, 6):
                loss = (1.7 + 400 / n**0.34 + 410 / d**0.28) * rng.normal(1, 0.003)
                file.write(f"{float(n)!r},{float(d)!r},{float(loss)!r}\n")
    return path


def fits():
    """Parameters and plans of every table and form."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        tables = {"synthetic": synthetic(folder)}
        tables |= {name: DATA / file for name, file in TABLES.items()}
        for name, path in tables.items():
            path = next(iter(sorted(path.glob("*.csv"))), path) if path.is_dir() else path
            if not path.exists():
                continue
            for form in ("chinchilla", "auto"):
                try:
                    said = json.loads(allometry("fit", path, "--form", form, "--json"))
                except SystemExit as error:
                    found[f"{name}, {form}"] = str(error)
                    continue
                kept = ("form", "n", "objective", "params", "starts", "backtest")
                found[f"{name}, {form}"] = {k: said[k] for k in kept}
            plan = json.loads(allometry("plan", tables["synthetic"], "--compute", 1e20, "--json"))
            found["plan"] = {k: plan[k] for k in ("N", "D", "loss")}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    asked = parser.parse_args()
    found = {"studies": studies(), "fits": fits()}
    if asked.write:
        asked.write.write_text(json.dumps(found, indent=1, sort_keys=True))
        return
    if asked.compare is None:
        raise SystemExit("identical.py must be given --write FILE or --compare FILE.")
    before = json.loads(asked.compare.read_text())
    found = json.loads(json.dumps(found))
    different = 0
    for part in ("studies", "fits"):
        for name in sorted({*before[part], *found[part]}):
            same = before[part].get(name) == found[part].get(name)
            different += not same
            runs = len(found[part].get(name) or ()) if part == "studies" else "fit"
            print(f"{name:24s} {runs!s:>5s} {'identical' if same else 'DIFFERENT'}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    needs.run(main)
