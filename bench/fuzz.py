"""Fuzz every reader: `python bench/fuzz.py --seconds 600`, which is `make fuzz`.

Each reader of `tests/fuzz/targets.py` gets an equal share of the time in its own process. Atheris
guides the inputs by coverage if it is installed (`pip install 'allometry[fuzz]'`); otherwise valid
inputs are mutated at random. An input fails if it ends in anything but a result or an
`AllometryError`, takes more than 10 seconds, or changes a file outside its folder. Failing inputs
are kept in `tests/fuzz/corpus`, which the tests run from then on. Exit code 1 if there is one.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
sys.path[:0] = [str(ROOT)]


def keep(name, data, error, found):
    """Store a failing input, once for each source line that failed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "allometry" in f.filename]
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    where = f"{type(error).__name__} at {last}"
    if where not in found:
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        (CORPUS / name / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
        found[where] = f"{str(error)[:120]!r}"


class Child:
    """One reader in this process; it writes progress to a file for the parent."""

    def __init__(self, name, state):
        self.name, self.state = name, state
        self.count, self.accepted, self.found, self.written = 0, 0, {}, 0.0

    def one(self, data):
        """Try an input."""
        from tests.fuzz import guard
        from tests.fuzz.targets import TARGETS

        target = TARGETS[self.name]
        self.state.with_suffix(".input").write_bytes(data)
        try:
            self.accepted += guard.check(target.read, target.write, data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            keep(self.name, data, error, self.found)
            self.written = 0.0
        self.count += 1
        if time.monotonic() - self.written > 1:
            self.write_progress()

    def write_progress(self):
        """Write the counts and failures so far."""
        self.written = time.monotonic()
        progress = {"count": self.count, "accepted": self.accepted, "found": self.found}
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(progress))
        part.replace(self.state)


def at_random(child, seconds, seed):
    from tests.fuzz.mutations import mutate
    from tests.fuzz.targets import TARGETS

    rng, target = random.Random(f"{child.name} {seed}"), TARGETS[child.name]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        child.one(mutate(rng.choice(target.seeds)(), rng, target.words))
    child.write_progress()


def by_coverage(child, seconds, seed, folder):
    import atheris

    with atheris.instrument_imports(include=["allometry"]):
        from tests.fuzz.mutations import mutate
        from tests.fuzz.targets import TARGETS
    target = TARGETS[child.name]
    for i, made in enumerate(target.seeds):
        (folder / f"seed{i}").write_bytes(made())

    def change(data, most, seed):
        rng = random.Random(seed)
        made = (
            atheris.Mutate(data, most) if rng.random() < 0.5 else mutate(data, rng, target.words)
        )
        return made[:most]

    options = [f"-max_total_time={int(seconds)}", "-timeout=0", "-max_len=20000", "-verbosity=0"]
    options += [f"-seed={seed + 1}", "-rss_limit_mb=6000", "-print_final_stats=0"]
    argv = [sys.argv[0], *options, str(folder)]
    atheris.Setup(argv, child.one, custom_mutator=change)
    atheris.Fuzz()


def watched(name, seconds, engine, seed):
    """Run one reader's child process; return its counts and failures."""
    with tempfile.TemporaryDirectory(prefix="fuzz.") as place:
        state = Path(place) / "state.json"
        command = [sys.executable, __file__, "--child", name, "--state", str(state)]
        command += ["--seconds", str(seconds), "--engine", engine, "--seed", str(seed)]
        with (Path(place) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            quiet, last = time.monotonic(), None
            while process.poll() is None:
                time.sleep(0.5)
                now = state.stat().st_mtime if state.exists() else None
                if now != last:
                    quiet, last = time.monotonic(), now
                # Imports take a while; after that a child writes progress every second.
                if time.monotonic() - quiet > (60 if last is None else 30):
                    process.kill()
                    process.wait()
        progress = json.loads(state.read_text()) if state.exists() else {"count": 0, "found": {}}
        input_, code = state.with_suffix(".input"), process.returncode
        if code != 0:
            tail = (Path(place) / "log").read_text(errors="replace")[-500:]
            progress["found"][f"the process ended with {code}"] = tail
            if input_.exists():
                (CORPUS / name).mkdir(parents=True, exist_ok=True)
                data = input_.read_bytes()
                (CORPUS / name / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
        return progress


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="in total")
    parser.add_argument("--target", action="append", help="only this reader; may be repeated")
    parser.add_argument("--engine", choices=["atheris", "random"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child")
    parser.add_argument("--state", type=Path)
    arguments = parser.parse_args()
    has = importlib.util.find_spec("atheris") is not None
    engine = arguments.engine or ("atheris" if has else "random")
    if arguments.child:
        os.environ["OMP_NUM_THREADS"] = "1"
        child = Child(arguments.child, arguments.state)
        if engine == "random":
            at_random(child, arguments.seconds, arguments.seed)
        else:
            folder = arguments.state.parent / "inputs"
            folder.mkdir()
            by_coverage(child, arguments.seconds, arguments.seed, folder)
        return 0
    from tests.fuzz.targets import TARGETS

    names = arguments.target or list(TARGETS)
    print(
        f"{len(names)} readers, {arguments.seconds:g} s in total, inputs by {engine}", flush=True
    )
    inputs = failures = 0
    for name in names:
        progress = watched(name, arguments.seconds / len(names), engine, arguments.seed)
        inputs += progress["count"]
        failures += len(progress["found"])
        accepted = progress.get("accepted", 0)
        print(f"{name:14s} {progress['count']:7d} inputs, {accepted:7d} accepted", flush=True)
        for where, what in progress["found"].items():
            print(f"    {where}: {what}", flush=True)
    print(f"{inputs} inputs, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
