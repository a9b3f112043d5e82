"""Kill a study at random moments, resume it, and compare its journal with an undisturbed one.

Run: python bench/kills.py [--short] [--kills 10] [--work FOLDER] [--at-once 100]

The study is the demo on the command line, or with `--short` one of 40 runs of a second each. The
driver of the short study is forked from a process that has already imported torch, and is killed
within three seconds after its worker starts, so kills hit the study and not its imports. With
`--work` the benchmark can run in parts of `--at-once` kills: the same command continues from where
the last one ended.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import needs

from allometry.study import Runs, Study, local, recipes
from allometry.targets import Text

COLUMNS = ["key", "family", "shape", "seed", "N", "D", "C", "loss", "test_loss", "status"]
ALLOMETRY = [sys.executable, "-c", "from allometry.cli import main; main()"]


def short():
    """Two sizes, five numbers of tokens, four seeds: runs of a second or less."""
    text = Text.from_string("she sells sea shells by the sea shore. " * 400)
    tokens = [4e3, 6e3, 8e3, 1e4, 1.2e4]
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
    work = arguments.work or Path(tempfile.mkdtemp(prefix="kills-"))
    reference, broken, log = work / "whole", work / "broken", work / "kills.txt"
    driver = forked if arguments.short else started
    if not (reference / "whole").exists():
        require_whole(driver(reference))
        (reference / "whole").touch()
    broken.mkdir(exist_ok=True)
    if (reference / "schedule.json").exists():
        # How runs are batched affects rounding of sums: both use one schedule.
        shutil.copy(reference / "schedule.json", broken)
    rng = random.Random(0)
    whole = len(Runs(reference).frame())
    # Kills are spread by finished runs, so that the machine's speed does not matter.
    finished = sorted(rng.randrange(whole) for _ in range(arguments.kills))
    before = len(log.read_text().splitlines()) if log.exists() else 0
    for kill in range(before, min(arguments.kills, before + arguments.at_once)):
        words = strike(driver(broken), broken, finished[kill], random.Random(kill))
        with log.open("a") as file:
            file.write(f"kill {kill + 1}: {words}\n")
        print(f"kill {kill + 1}: {words}", flush=True)
    if before + arguments.at_once < arguments.kills:
        return
    require_whole(driver(broken))
    keys = [record["key"] for record in Runs(broken).journal.read()]
    repeated = len(keys) - len(set(keys))
    lost = set(Runs(reference).frame()["key"]) - set(keys)
    same = essence(broken).equals(essence(reference))
    signals = [line.split()[2].rstrip(",") for line in log.read_text().splitlines()]
    print(", ".join(f"{signals.count(name)} {name}" for name in sorted(set(signals))))
    print(
        f"{len(signals)} kills, {len(keys)} runs, {len(lost)} lost, {repeated} repeated; "
        f"journals equal run for run: {same}"
    )
    sys.exit(0 if same and repeated == 0 else 1)


def started(folder):
    """The demo running in `folder`."""
    return subprocess.Popen(
        [*ALLOMETRY, "demo", "-o", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Background jobs of a shell ignore Ctrl-C, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def forked(folder):
    """The short study running in `folder`, in its own process."""
    process = multiprocessing.get_context("fork").Process(target=work_on, args=(folder,))
    process.start()
    return process


def work_on(folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        at_work = folder / "at-work"
        short().run(folder, local(workers=1, threads=1), watch=lambda _: at_work.touch())
    except KeyboardInterrupt:
        sys.exit(1)


def at_work(process, folder):
    return isinstance(process, subprocess.Popen) or (folder / "at-work").exists()


def over(process):
    """Its exit code; `None` while it is running."""
    return process.poll() if isinstance(process, subprocess.Popen) else process.exitcode


def end(process):
    """Wait for it."""
    process.wait() if isinstance(process, subprocess.Popen) else process.join()


def require_whole(process):
    end(process)
    if over(process) != 0:
        sys.exit(f"the study exited with {over(process)}")


def strike(process, folder, after, rng):
    """Kill the study at a random moment after so many finished runs; return a description."""
    while (lines(folder) < after or not at_work(process, folder)) and over(process) is None:
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 8 if isinstance(process, subprocess.Popen) else 3))
    sent = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    already = over(process) is not None
    if not already:
        os.kill(process.pid, sent)
    end(process)
    (folder / "at-work").unlink(missing_ok=True)
    summary = f"{sent.name}, {lines(folder)} runs in the journal"
    return f"{summary} (it had ended before)" if already else summary


if __name__ == "__main__":
    needs.run(main)
