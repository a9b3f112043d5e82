"""Fuzz every reader: `python bench/fuzz.py --seconds 600`, which is `make fuzz`.

Each reader of `tests/fuzz/targets.py` gets an equal share of the time in its own process, forked
from one that has imported all of them. Atheris
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
import signal
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


def targets(engine):
    """The readers; what they import is counted by the engine."""
    if engine == "random":
        from tests.fuzz.targets import TARGETS
    else:
        import atheris

        with atheris.instrument_imports(include=["allometry"]):
            from tests.fuzz.targets import TARGETS
    return TARGETS


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
    from tests.fuzz.mutations import mutate
    from tests.fuzz.targets import TARGETS

    target = TARGETS[child.name]
    folder.mkdir()
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


def forked(name, seconds, engine, seed, place):
    """The process of one reader, whose output goes to a file."""
    process = os.fork()
    if process:
        return process
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    child = Child(name, place / "state.json")
    try:
        if engine == "random":
            at_random(child, seconds, seed)
        else:
            by_coverage(child, seconds, seed, place / "inputs")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def watched(name, seconds, engine, seed):
    """Run one reader's process; return its counts and failures."""
    with tempfile.TemporaryDirectory(prefix="fuzz.") as place:
        state = Path(place) / "state.json"
        process = forked(name, seconds, engine, seed, Path(place))
        quiet, last = time.monotonic(), None
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            time.sleep(0.5)
            now = state.stat().st_mtime if state.exists() else None
            if now != last:
                quiet, last = time.monotonic(), now
            # A process writes progress every second, if the machine lets it.
            if time.monotonic() - quiet > 120:
                os.kill(process, signal.SIGKILL)
        progress = json.loads(state.read_text()) if state.exists() else {"count": 0, "found": {}}
        input_, code = state.with_suffix(".input"), os.waitstatus_to_exitcode(ended[1])
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
    arguments = parser.parse_args()
    has = importlib.util.find_spec("atheris") is not None
    engine = arguments.engine or ("atheris" if has else "random")
    os.environ["OMP_NUM_THREADS"] = "1"
    known = targets(engine)
    names = arguments.target or list(known)
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
