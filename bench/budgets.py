"""Budgets of time: what `allometry run --budget` tells beside what passes on the clock.

Run: python bench/budgets.py [--jobs NAME,NAME] [--budgets 60s,120s] [--results FILE]

Runs each of twelve jobs at each budget, one after another, each in a folder of its own that is
thrown away: about 40 minutes on an idle machine. Prints what was told, what passed from the start
of the process to its end, and both as a share of the budget. Results are kept in FILE, and what is
there already is not run again, so that it can be done in parts. Times say something on an idle
machine only: the load is printed beside them.

A study that has less to do than the budget allows (`rank` has 37 runs and no sizes) ends early
and says so: what is told is then below the budget, and what passes is compared with what was told.
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

from allometry.study.schedule.budget import seconds_of

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
    """Seconds told and taken, the load before, and what was said."""
    code = "from allometry.cli import main; main()"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, "run", *words, "--budget", budget]
        started = time.monotonic()
        done = subprocess.run(
            [*command, "-o", f"{folder}/runs"], capture_output=True, text=True, check=False
        )
        taken = time.monotonic() - started
    found = re.search(r"about (.*?) with the report", done.stderr)
    refused = re.search(r"budget must be at least (\d+) s", done.stderr)
    if found is None and refused is None:
        raise SystemExit(done.stderr)
    told = seconds_of(found[1]) if found else None
    return {
        "told": told,
        "taken": taken,
        "load": load,
        "said": done.stderr,
        "code": done.returncode,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--budgets", default="60s,120s")
    parser.add_argument("--results", type=Path, default=Path("budgets.jsonl"))
    asked = parser.parse_args()
    lines = asked.results.read_text().splitlines() if asked.results.exists() else []
    known = {(row["job"], row["budget"]): row for row in map(json.loads, lines)}
    inside = 0
    names, budgets = asked.jobs.split(","), asked.budgets.split(",")
    rows = [(name, budget) for name in names for budget in budgets]
    for name, budget in rows:
        row = known.get((name, budget))
        if row is None:
            row = {"job": name, "budget": budget} | job(JOBS[name].split(), budget)
            with asked.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if row["told"] is None:
            print(f"{name} {budget}: refused: {row['said'].strip()}", flush=True)
            continue
        told, taken, seconds = row["told"], row["taken"], seconds_of(budget)
        short = told < 0.8 * seconds  # it has less to do, and said so
        right = abs(taken / told - 1) <= 0.2 and (short or abs(taken / seconds - 1) <= 0.2)
        inside += right
        print(
            f"{name} {budget}: told {told:.0f} s, took {taken:.0f} s: {taken / told:.2f} of it, "
            f"{taken / seconds:.2f} of the budget (load {row['load']:.1f} before)"
            f"{'' if right else '  <-- beyond a fifth'}",
            flush=True,
        )
    print(f"{inside} of {len(rows)} within a fifth")


if __name__ == "__main__":
    main()
