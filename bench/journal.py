"""Time to load a journal as a frame and to append to it.

Run: python bench/journal.py [--lines 1000000]
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import needs

from allometry.study import Journal, Runs


def record(i):
    """A record like those of a study of transformers."""
    N, D = 1000 * (1 + i % 40), 1e5 * (1 + i % 7)
    return {
        "key": f"{i:016x}", "family": "transformer", "target": "embedded",
        "shape": f"2 layers, width {i % 40}", "rung": i % 40, "seed": i % 5, "N": N,
        "N_embedding": 20 * N, "D": D, "D_unique": 335792, "C": 6.1 * N * D, "C_6ND": 6.0 * N * D,
        "loss": 1.5 + 1 / (1 + i % 97), "loss_se": 0.01, "test_loss": 1.6, "test_loss_se": 0.01,
        "seconds": 9.3, "status": "done", "error": None,
        "versions": {"allometry": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        "energy_distance": 0.01, "energy_distance_se": 0.001, "measures": ["energy_distance"],
        "sample": "the value of the expression is the " * 7,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.json").write_text(json.dumps({"runs": [], "target": {}}))
        with (folder / "journal.jsonl").open("w") as file:
            for i in range(lines):
                file.write(json.dumps(record(i)) + "\n")
        size = (folder / "journal.jsonl").stat().st_size
        started, spent = time.perf_counter(), time.process_time()
        frame = Runs(folder).frame()
        took, spent = time.perf_counter() - started, time.process_time() - spent
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{len(frame):,} lines, {size / 1e6:.0f} MB: a frame in {took:.1f} s "
            f"({spent:.1f} s of CPU), peak {most:.1f} GiB"
        )
        journal, many = Journal(folder / "journal.jsonl"), 200
        started = time.perf_counter()
        for i in range(many):
            journal.append(record(lines + i))
        each = (time.perf_counter() - started) / many
        print(f"appending with a sync per line: {1 / each:,.0f} lines/s")


if __name__ == "__main__":
    needs.run(main)
