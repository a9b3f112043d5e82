"""Inject every fault into every storage operation of a study; count lost and repeated runs.

Run: python bench/faults.py [--runs 12] [--every 1]

The disk is simulated (`tests/support/faults.py`); driver, worker, journal, curves, weights,
pictures and checkpoints are real. Each study starts twice: without a folder, and from what a power
failure left of one. After the fault it resumes undisturbed. `refused` studies stopped with one
error message, `off` ones lost power; `wrong` counts studies that then did not resume, or whose
results differ from those of an undisturbed study.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import needs

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.faults import Fault
from tests.support.ordeal import afresh, halfway, operations, strike


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument(
        "--every", type=int, default=1, help="Inject a fault every so many operations."
    )
    arguments = parser.parse_args()
    shared = Path("/dev/shm")
    bad = 0
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        root = Path(name) / "disk"
        whole = len(operations(root, arguments.runs, afresh))
        starts = {"begun": afresh, "resumed": halfway(arguments.runs, whole // 2)}
        for words, begin in starts.items():
            bad += table(root, arguments, words, begin)
    sys.exit(1 if bad else 0)


def table(root, arguments, words, begin):
    done = operations(root, arguments.runs, begin)
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(done).most_common())
    print(f"\nA study of {arguments.runs} runs, {words}: {len(done)} operations ({kinds})")
    print(f"{'fault':18s}{'struck':>8s}{'whole':>8s}{'refused':>8s}{'off':>8s}"
          f"{'lost':>8s}{'repeated':>9s}{'wrong':>7s}{'CPU s':>8s}")  # fmt: skip
    bad = 0
    for fault in Fault:
        begun, total = time.process_time(), Counter()
        for at in range(0, len(done), arguments.every):
            verdict = strike(root, arguments.runs, fault, at, begin)
            total.update(["struck", verdict.ended])
            total["lost"] += len(verdict.lost)
            total["repeated"] += len(verdict.repeated)
            total["wrong"] += bool(verdict.wrong)
            if not verdict.fine:
                print(f"  operation {at} ({verdict.operation}): {verdict}")
        spent = time.process_time() - begun
        bad += total["lost"] + total["repeated"] + total["wrong"]
        columns = [total[name] for name in ("struck", "whole", "refused", "off", "lost")]
        print(f"{fault.value:18s}" + "".join(f"{n:8d}" for n in columns)
              + f"{total['repeated']:9d}{total['wrong']:7d}{spent:8.1f}", flush=True)  # fmt: skip
    return bad


if __name__ == "__main__":
    needs.run(main)
