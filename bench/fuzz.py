"""Fuzz every reader: `python bench/fuzz.py --seconds 600`, which is `make fuzz`.

Each reader of `tests/fuzz/targets.py` gets an even share of the time in a process of its own.
Atheris guides the inputs by coverage where it is installed (`pip install 'allometry[fuzz]'`);
elsewhere valid inputs are mutated at random. An input that ends in anything but a result or an
`AllometryError`, takes more than 10 seconds, or changes a file outside its folder is kept in
`tests/fuzz/corpus`, where the tests try it from then on. Exit code 1 if there is one.
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
    """File an input that failed, once for each place in the source that failed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "allometry" in f.filename]
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    where = f"{type(error).__name__} at {last}"
    if where not in found:
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        (CORPUS / name / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
        found[where] = f"{str(error)[:120]!r}"


class Child:
    """One reader in this process; progress goes to a file that the parent reads."""

    def __init__(self, name, state):
        self.name, self.state = name, state
        self.count, self.taken, self.found, self.told = 0, 0, {}, 0.0

    def one(self, data):
        """Try an input."""
        from tests.fuzz import guard
        from tests.fuzz.targets import TARGETS

        target = TARGETS[self.name]
        self.state.with_suffix(".input").write_bytes(data)
        try:
            self.taken += guard.check(target.read, target.write, data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            keep(self.name, data, error, self.found)
            self.told = 0.0
        self.count += 1
        if time.monotonic() - self.told > 1:
            self.tell()

    def tell(self):
        """Write down how far it is."""
        self.told = time.monotonic()
        said = {"count": self.count, "taken": self.taken, "found": self.found}
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(said))
        part.replace(self.state)


def at_random(child, seconds, seed):
    from tests.fuzz.mutations import mutate
    from tests.fuzz.targets import TARGETS

    rng, target = random.Random(f"{child.name} {seed}"), TARGETS[child.name]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        child.one(mutate(rng.choice(target.seeds)(), rng, target.words))
    child.tell()


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
    """Run one reader's child; what it found, and whether it had to be ended."""
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
                # Loading takes a while; after that a child tells of itself every second.
                if time.monotonic() - quiet > (60 if last is None else 30):
                    process.kill()
                    process.wait()
        said = json.loads(state.read_text()) if state.exists() else {"count": 0, "found": {}}
        input_, code = state.with_suffix(".input"), process.returncode
        if code != 0:
            tail = (Path(place) / "log").read_text(errors="replace")[-500:]
            said["found"][f"the process ended with {code}"] = tail
            if input_.exists():
                (CORPUS / name).mkdir(parents=True, exist_ok=True)
                data = input_.read_bytes()
                (CORPUS / name / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
        return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="in total")
    parser.add_argument("--target", action="append", help="only this reader; may be repeated")
    parser.add_argument("--engine", choices=["atheris", "random"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child")
    parser.add_argument("--state", type=Path)
    asked = parser.parse_args()
    has = importlib.util.find_spec("atheris") is not None
    engine = asked.engine or ("atheris" if has else "random")
    if asked.child:
        os.environ["OMP_NUM_THREADS"] = "1"
        child = Child(asked.child, asked.state)
        if engine == "random":
            at_random(child, asked.seconds, asked.seed)
        else:
            folder = asked.state.parent / "inputs"
            folder.mkdir()
            by_coverage(child, asked.seconds, asked.seed, folder)
        return 0
    from tests.fuzz.targets import TARGETS

    names = asked.target or list(TARGETS)
    print(f"{len(names)} readers, {asked.seconds:g} s in total, inputs by {engine}", flush=True)
    inputs = failures = 0
    for name in names:
        said = watched(name, asked.seconds / len(names), engine, asked.seed)
        inputs += said["count"]
        failures += len(said["found"])
        taken = said.get("taken", 0)
        print(f"{name:14s} {said['count']:7d} inputs, {taken:7d} taken", flush=True)
        for where, what in said["found"].items():
            print(f"    {where}: {what}", flush=True)
    print(f"{inputs} inputs, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
