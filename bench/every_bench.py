"""Start every bench and list those that end in a traceback.

Run: `python bench/every_bench.py [--seconds 8] [NAME ...]`

Each bench is started without arguments in an empty folder and killed after some CPU seconds, or
after eight times as many seconds on the clock. In a fresh clone it must end in a result, still
run, or say in one sentence what it lacks (public data, a package, an argument).
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRACEBACK = "Traceback (most recent call last)"


def benches(names):
    """Programs of this folder, without the modules that others import."""
    files = sorted(HERE.glob("*.py"))
    files = [file for file in files if file != Path(__file__).resolve()]
    programs = [file for file in files if '__name__ == "__main__"' in file.read_text()]
    return [file for file in programs if not names or file.stem in names]


def started(file, seconds):
    """How a bench ended, and its last line."""
    source = str(HERE.parent / "src")
    paths = os.pathsep.join([source, str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, str(file)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
        )
        try:
            code = process.wait(8 * seconds)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        for end in (signal.SIGTERM, signal.SIGKILL):  # workers stop at the first
            try:
                os.killpg(process.pid, end)
            except ProcessLookupError:
                break
        process.wait()
        output.seek(0)
        text = output.read().strip()
    last = text.splitlines()[-1] if text else ""
    if TRACEBACK in text:
        return "TRACEBACK", last
    killed = code in (-signal.SIGKILL, -signal.SIGXCPU)
    return ("running" if killed else "ended" if code == 0 else "refused"), last


def main():
    """Start all benches, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="Default: all.")
    parser.add_argument("--seconds", type=int, default=8, help="CPU seconds of each.")
    asked = parser.parse_args()
    wrong = 0
    for file in benches(asked.names):
        how, last = started(file, asked.seconds)
        wrong += how == "TRACEBACK"
        print(f"{how:10} {file.stem:20} {last[:110]}", flush=True)
    print(f"{wrong} ended in a traceback.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
