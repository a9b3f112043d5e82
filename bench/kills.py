"""Kill a study at random moments, resume it, and compare its journal with an undisturbed one.

Run: python bench/kills.py [--short] [--kills 10] [--work FOLDER] [--at-once 100]

The study is the demo, or with `--short` one of 40 runs of a second or two. With `--work` it can be
done in parts of `--at-once` kills: the same command goes on from where the last one ended.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from allometry.study import Runs, Study, recipes
from allometry.targets import Text

COLUMNS = ["key", "family", "shape", "seed", "N", "D", "C", "loss", "test_loss", "status"]
ALLOMETRY = [sys.executable, "-c", "from allometry.cli import main; main()"]


def short():
    """Two sizes, five numbers of tokens, four seeds."""
    text = Text.from_string("she sells sea shells by the sea shore. " * 400)
    tokens = [2e4, 3e4, 4e4, 5e4, 6e4]
    return Study(text, [recipes.transformer], [1e3, 4e3], seeds=4, tokens=tokens)


def essence(folder):
    return Runs(folder).frame().sort_values("key")[COLUMNS].reset_index(drop=True)


def lines(folder):
    journal = folder / "journal.jsonl"
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--at-once", type=int, default=1000)
    arguments = parser.parse_args()
    job = ["run", f"{Path(__file__).resolve()}:short"] if arguments.short else ["demo"]
    command = [*ALLOMETRY, *job, "-o"]
    work = arguments.work or Path(tempfile.mkdtemp(prefix="kills-"))
    reference, broken, told = work / "whole", work / "broken", work / "kills.txt"
    if not (reference / "report.html").exists():
        subprocess.run([*command, str(reference)], check=True)
    broken.mkdir(exist_ok=True)
    if (reference / "schedule.json").exists():
        # How runs are packed is part of how sums are rounded: both go by one schedule.
        shutil.copy(reference / "schedule.json", broken)
    rng = random.Random(0)
    whole = len(Runs(reference).frame())
    # Spread over the whole study, whatever the machine's pace: after so many finished runs.
    finished = sorted(rng.randrange(whole) for _ in range(arguments.kills))
    before = len(told.read_text().splitlines()) if told.exists() else 0
    for kill in range(before, min(arguments.kills, before + arguments.at_once)):
        words = strike([*command, str(broken)], broken, finished[kill], random.Random(kill))
        with told.open("a") as file:
            file.write(f"kill {kill + 1}: {words}\n")
        print(f"kill {kill + 1}: {words}", flush=True)
    if before + arguments.at_once < arguments.kills:
        return
    subprocess.run([*command, str(broken)], check=True)
    keys = [record["key"] for record in Runs(broken).journal.read()]
    repeated = len(keys) - len(set(keys))
    lost = set(Runs(reference).frame()["key"]) - set(keys)
    same = essence(broken).equals(essence(reference))
    signals = [line.split()[2].rstrip(",") for line in told.read_text().splitlines()]
    print(", ".join(f"{signals.count(name)} {name}" for name in sorted(set(signals))))
    print(
        f"{len(signals)} kills, {len(keys)} runs, {len(lost)} lost, {repeated} repeated; "
        f"journals equal run for run: {same}"
    )
    sys.exit(0 if same and repeated == 0 else 1)


def strike(command, folder, after, rng):
    """Start the study, end it a random moment after so many finished runs, say how."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell's background jobs ignore Ctrl-C, and what they start does too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while lines(folder) < after and process.poll() is None:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 8))
    sent = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    already = process.poll() is not None
    process.send_signal(sent)
    process.wait()
    there = f"{sent.name}, {lines(folder)} runs in the journal"
    return f"{there} (it had ended before)" if already else there


if __name__ == "__main__":
    main()
