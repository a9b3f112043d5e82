"""Runtime and memory of the commands that read a folder, on a folder of very many runs.

Run: python bench/folders.py [--runs 200000] [--configurations 2000] [--curves] [--work FOLDER]

Writes a folder like that of a study of transformers and n-grams (with `--curves`, also a curve
file for every run), then measures CPU seconds and peak memory of each command in its own process.
"""

import argparse
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import needs
import numpy as np

TARGETS = {"status": (5.0, 1.0), "report": (20.0, 1.0)}
"""Targets for 200,000 runs: CPU seconds and GiB."""

COMMANDS = {
    "status": ("status",),
    "status --json": ("status", "--json"),
    "report": ("report",),
}


def record(i, configurations, rng):
    rung, step = divmod(i % configurations, 50)
    N = int(1000 * 10 ** (rung / max(1, configurations // 50) * 3))
    D = float(int(20 * N * 10 ** (step / 50)))
    loss = 1.2 + 12 * N**-0.28 + 40 * D**-0.35 + float(rng.normal(0, 0.005))
    broken = i % 997 == 5
    return {
        "key": f"{i:016x}", "family": "transformer", "target": "embedded",
        "shape": f"2 layers, width {rung}", "rung": rung, "seed": i // configurations, "N": N,
        "N_embedding": 6000, "D": D, "D_unique": 335792, "C": 6.1 * N * D, "C_6ND": 6.0 * N * D,
        "loss": None if broken else loss, "loss_se": None if broken else 0.01,
        "test_loss": None if broken else loss + 0.01, "test_loss_se": None if broken else 0.01,
        "seconds": 9.3, "status": "diverged" if broken else "done",
        "error": "the loss became nan at step 3" if broken else None,
        "versions": {"allometry": "0.1.0", "python": "3.11.7", "torch": "2.13.0",
                     "numpy": "2.3.0", "machine": "x86_64"},
        "measures": [], "sample": "the value of the expression is the " * 7,
    }  # fmt: skip


def make(folder, runs, configurations, curves):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with (folder / "journal.jsonl").open("w") as file:
        for i in range(runs):
            file.write(json.dumps(record(i, configurations, rng)) + "\n")
    keys = [f"{i:016x}" for i in range(runs)]
    target = {"name": "embedded", "unit": "nats per character", "D_unique": 335792,
              "fingerprint": "f"}  # fmt: skip
    about = {"target": target, "runs": keys, "ladder": [1e3], "tokens": [1e5], "seeds": 1,
             "versions": {"python": "3"}}  # fmt: skip
    (folder / "study.json").write_text(json.dumps(about))
    how = {"size": 1, "compiled": False, "traced": False, "threads": None}
    schedule = {key: {"keys": [key], "how": how, "work": {key: 9.0}} for key in keys}
    (folder / "schedule.json").write_text(json.dumps(schedule))
    for part in ("curves", "weights", "checkpoints"):
        (folder / part).mkdir(exist_ok=True)
    if curves:
        step = np.unique(np.geomspace(1, 1000, 20).astype(int)).astype(float)
        data = io.BytesIO()
        np.savez(data, step=step, tokens=1e3 * step, flops=1e9 * step, loss=2 + 1 / step)
        for key in keys:
            (folder / "curves" / f"{key}.npz").write_bytes(data.getvalue())


def measured(folder, arguments):
    """CPU seconds, wall seconds and peak GiB of one command in its own process."""
    begun = time.perf_counter()
    pid = os.fork()
    if not pid:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)
        code = "from allometry.cli import main; main()"
        command, *options = arguments
        os.execv(sys.executable, [sys.executable, "-c", code, command, str(folder), *options])
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 2**20, status


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--configurations", type=int, default=2_000)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.work or Path(name) / "study"
        if not (folder / "study.json").exists():
            make(folder, arguments.runs, arguments.configurations, arguments.curves)
        size = (folder / "journal.jsonl").stat().st_size / 1e6
        curves = "with" if arguments.curves else "no"
        print(f"{arguments.runs:,} runs of {arguments.configurations:,} configurations, "
              f"a journal of {size:.0f} MB, {curves} curves")  # fmt: skip
        idle = measured(folder, ("status", "--help"))
        print(f"{'imports only':20s} {idle[0]:6.1f} s of CPU {idle[2]:6.2f} GiB")
        late = False
        for title, command in COMMANDS.items():
            spent, wall, most, status = measured(folder, command)
            seconds, memory = TARGETS.get(title, (float("inf"), float("inf")))
            met = spent <= seconds and most <= memory and status == 0
            late |= not met
            print(f"{title:20s} {spent:6.1f} s of CPU {most:6.2f} GiB ({wall:.1f} s wall time)"
                  + ("" if met else "  over the target"), flush=True)  # fmt: skip
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    needs.run(main)
