"""The runtime that `allometry run` estimates before it starts, and the measured runtime.

Run: python bench/expected.py [NAME ...] [-- OPTIONS]

Runs small jobs of different kinds (all of `JOBS`, or those named), one after another, each in a
temporary folder. Prints for each the estimated runtime, the measured runtime from the estimate to
the end, and its CPU seconds. `OPTIONS` apply to every job, such as `--workers 1`.
"""

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
    "vae": "digits --family vae --rungs 4 --largest 3e4 --tokens 1e5",
    "flow": "moons --family affine_coupling --rungs 4 --largest 2e4 --tokens 2e5",
    "text": "embedded --family mlp --family ngram --rungs 5 --largest 1e5 --tokens 2e5",
    "gan": "ring --rungs 3 --largest 1e4 --tokens 1e5",
    "budget": "embedded --family transformer --rungs 5 --budget 40s",
    "flops": "moons --family spline_coupling --rungs 3 --flops 3e11",
}


def spent(pid):
    """CPU seconds of a running process and of its finished children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def job(words):
    """Estimated, measured and CPU seconds, and the seconds before the estimate."""
    code = "from allometry.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, "run", *words, "-o", f"{folder}/runs"]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen(command, **pipes)
        begun, messages, estimated = time.monotonic(), "", None
        for line in process.stderr:
            messages += line
            found = re.search(r"about (.*) with the report", messages)
            if estimated is None and found:
                estimated = seconds_of(found[1])
                started, before = time.monotonic(), spent(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        ended = time.monotonic()
    if status or estimated is None:
        raise SystemExit(messages)
    cpu = usage.ru_utime + usage.ru_stime - before
    return estimated, ended - started, cpu, started - begun


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    for name in words[:at] or JOBS:
        estimated, measured, cpu, before = job([*JOBS[name].split(), *words[at + 1 :]])
        print(
            f"{name}: estimated {estimated:.0f} s, measured {measured:.0f} s: ratio "
            f"{measured / estimated:.2f} ({cpu:.0f} s of CPU; {before:.0f} s before the estimate)",
            flush=True,
        )


if __name__ == "__main__":
    needs.run(main)
