"""Time budgets: the runtime that `allometry run --budget` estimates and the measured runtime.

Run: python bench/budgets.py [--jobs NAME,NAME] [--budgets 60s,120s] [--results FILE]

Runs each of twelve jobs at each budget, one after another, each in a temporary folder: about 40
minutes on an idle machine. Prints the estimated runtime, the measured runtime of the process, and
the measured runtime as a share of both estimate and budget. Results are stored in FILE and not
measured again, so the benchmark can run in parts. Runtimes are valid on an idle machine only; the
load is printed beside them.

A study with less work than the budget allows (`rank` has 37 runs and no sizes) ends early and
reports it. Its estimate is then below the budget, and its runtime is compared with the estimate.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import needs

from allometry.study.schedule.study_budget import seconds_of

JOBS = {
    "text": "embedded",
    "mlp": "embedded --family mlp --family ngram",
    "moons": "moons",
    "ring": "ring",
    "digits": "digits",
    "vae": "digits --family vae",
    "universal": "universal",
    "dyck": "dyck",
    "rank": "rank",
    "degree": "degree",
    "domains": "domains",
    "reversal": "reversal",
}


def job(words, budget):
    """Estimated and measured seconds, the load before, and the messages."""
    code = "from allometry.cli import main; main()"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, "run", *words, "--budget", budget]
        started = time.monotonic()
        done = subprocess.run(
            [*command, "-o", f"{folder}/runs"], capture_output=True, text=True, check=False
        )
        measured = time.monotonic() - started
    found = re.search(r"about (.*?) with the report", done.stderr)
    refused = re.search(r"budget must be at least (\d+) s", done.stderr)
    if found is None and refused is None:
        raise SystemExit(done.stderr)
    return {
        "estimated": seconds_of(found[1]) if found else None,
        "measured": measured,
        "load": load,
        "messages": done.stderr,
        "code": done.returncode,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--budgets", default="60s,120s")
    parser.add_argument("--results", type=Path, default=Path("budgets.jsonl"))
    arguments = parser.parse_args()
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    known = {(row["job"], row["budget"]): row for row in map(json.loads, lines)}
    inside = 0
    names, budgets = arguments.jobs.split(","), arguments.budgets.split(",")
    rows = [(name, budget) for name in names for budget in budgets]
    for name, budget in rows:
        row = known.get((name, budget))
        if row is None:
            row = {"job": name, "budget": budget} | job(JOBS[name].split(), budget)
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if row["estimated"] is None:
            print(f"{name} {budget}: refused: {row['messages'].strip()}", flush=True)
            continue
        estimated, measured, seconds = row["estimated"], row["measured"], seconds_of(budget)
        short = estimated < 0.8 * seconds  # less work than the budget allows, and reported so
        right = abs(measured / estimated - 1) <= 0.2 and (
            short or abs(measured / seconds - 1) <= 0.2
        )
        inside += right
        print(
            f"{name} {budget}: estimated {estimated:.0f} s, measured {measured:.0f} s: "
            f"{measured / estimated:.2f} of the estimate, {measured / seconds:.2f} of the budget "
            f"(load {row['load']:.1f} before)"
            f"{'' if right else '  <-- off by more than 20 %'}",
            flush=True,
        )
    print(f"{inside} of {len(rows)} within 20 %")


if __name__ == "__main__":
    needs.run(main)
