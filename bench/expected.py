"""The time that `allometry run` tells before it starts, beside the time it takes.

Run: python bench/expected.py [NAME ...] [-- OPTIONS]

Runs small jobs of different kinds (all of `JOBS`, or those named), one after another, each in a
folder of its own that is thrown away, and prints for each what was told, what passed from there to
the end, and the CPU seconds of that. `OPTIONS` are for every job, such as `--workers 1`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from allometry.study.schedule.budget import seconds_of

JOBS = {
    "vae": "digits --family vae --rungs 4 --largest 3e4 --tokens 1e5",
    "flow": "moons --family affine_coupling --rungs 4 --largest 2e4 --tokens 2e5",
    "text": "embedded --family mlp --family ngram --rungs 5 --largest 1e5 --tokens 2e5",
    "gan": "ring --rungs 3 --largest 1e4 --tokens 1e5",
    "budget": "embedded --family transformer --rungs 5 --budget 40s",
    "flops": "moons --family spline_coupling --rungs 3 --flops 3e11",
}


def spent(pid):
    """CPU seconds of a living process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def job(words):
    """Seconds told, taken and of CPU."""
    code = "from allometry.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, "run", *words, "-o", f"{folder}/runs"]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen(command, **pipes)
        begun, said, told = time.monotonic(), "", None
        for line in process.stderr:
            said += line
            if told is None and (found := re.search(r"about (.*) with the report", said)):
                told, started, before = seconds_of(found[1]), time.monotonic(), spent(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        ended = time.monotonic()
    if status or told is None:
        raise SystemExit(said)
    cpu = usage.ru_utime + usage.ru_stime - before
    return told, ended - started, cpu, started - begun


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    for name in words[:at] or JOBS:
        told, taken, cpu, before = job([*JOBS[name].split(), *words[at + 1 :]])
        print(
            f"{name}: told {told:.0f} s, took {taken:.0f} s: {taken / told:.2f} of it "
            f"({cpu:.0f} s of CPU; {before:.0f} s before it was told)",
            flush=True,
        )


if __name__ == "__main__":
    main()
