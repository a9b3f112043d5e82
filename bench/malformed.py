"""Try malformed command lines: `python bench/malformed.py --inputs 5000`.

Each is a valid command with a corrupted file or unusual option values (`tests/fuzz/commands.py`),
run through the program's entry point. It must end with exit code 0, or with 2 and one sentence on
standard error; no traceback, no exit code 70, no control characters, no file touched elsewhere.
Exit code 1 if one does not.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    arguments = parser.parse_args()
    from tests.fuzz import commands

    rng, ends = random.Random(arguments.seed), time.monotonic() + arguments.seconds
    tried, wrong = Counter(), 0
    with commands.folder() as valid:
        for _ in range(arguments.inputs):
            if time.monotonic() > ends:
                break
            case = commands.draw(rng)
            began = time.process_time()
            code, why = commands.run(case, valid)
            tried[case.arguments[0], code] += 1
            if why:
                wrong += 1
                print(f"{case}\n    {why}", flush=True)
            elif time.process_time() - began > 10:
                print(f"{case}\n    took {time.process_time() - began:.0f} s", flush=True)
    for (name, code), count in sorted(tried.items(), key=str):
        print(f"{name[:20]!r:24} exit {code}: {count:6d}")
    print(f"{tried.total()} command lines, {wrong} that did not end in one sentence")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
