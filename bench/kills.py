"""Kill a study at random moments, resume it, and compare its journal with an undisturbed one.

Run: python bench/kills.py [--short] [--kills 10] [--reference FOLDER]

The study is the demo, or with `--short` one of 40 runs of a second or two.
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
    parser.add_argument("--reference", type=Path, default=None)
    arguments = parser.parse_args()
    job = ["run", f"{Path(__file__).resolve()}:short"] if arguments.short else ["demo"]
    command = [*ALLOMETRY, *job, "-o"]
    work = Path(tempfile.mkdtemp(prefix="kills-"))
    reference = arguments.reference
    if reference is None:
        reference = work / "whole"
        subprocess.run([*command, str(reference)], check=True)
    rng = random.Random(0)
    broken = work / "broken"
    # Spread over the whole study, whatever the machine's pace: after so many finished runs.
    finished = sorted(rng.randrange(len(Runs(reference).frame())) for _ in range(arguments.kills))
    broken.mkdir()
    if (reference / "schedule.json").exists():
        # How runs are packed is part of how sums are rounded: both go by one schedule.
        shutil.copy(reference / "schedule.json", broken)
    for kill, after in enumerate(finished):
        process = subprocess.Popen(
            [*command, str(broken)],
            stderr=subprocess.DEVNULL,
            # A shell's background jobs ignore Ctrl-C, and what they start does too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        while lines(broken) < after and process.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 3 if arguments.short else 8))
        sent = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        process.send_signal(sent)
        process.wait()
        print(f"kill {kill + 1}: {sent.name}, {lines(broken)} runs in the journal", flush=True)
    subprocess.run([*command, str(broken)], check=True)
    keys = [record["key"] for record in Runs(broken).journal.read()]
    repeated = len(keys) - len(set(keys))
    same = essence(broken).equals(essence(reference))
    print(f"{len(keys)} runs, {repeated} repeated; journals equal run for run: {same}")
    sys.exit(0 if same and repeated == 0 else 1)


if __name__ == "__main__":
    main()
