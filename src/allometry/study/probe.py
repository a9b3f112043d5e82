"""How long a step of a training takes here: a second of trying, in processes like the workers.

As many probes run at once as there will be workers, since cores that share memory and power are
slower together than one is alone.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.spec import Spec
from allometry.study.executors import available_cores


@final
@dataclass(frozen=True)
class Price:
    """Seconds that one shape takes.

    Args:
        step: One update of one model in the plain loop.
        packed: One update of so many models stepped as one; empty where that could not pay.
        measure: One measurement of the curve.
        finish: What comes after the last step; `None` where it was not tried.
    """

    step: float
    packed: dict[int, float]
    measure: float
    finish: float | None = None


@final
@dataclass(frozen=True)
class Compiled:
    """Seconds of one update eager and compiled, and of the compiling."""

    eager: float
    compiled: float
    once: float


def probe(shapes: Sequence[Sequence[Spec]], workers: int, threads: int) -> list[Price | None]:
    """The price of each shape, smallest first, given by runs that differ in seed, rate or length.

    `None` for a shape that could not be tried.

    Args:
        shapes: Runs of each shape that might be packed.
        workers: Processes that will work at once.
        threads: Threads of each.
    """
    found = []
    for prices in _answers(shapes, workers, threads, compiled=False):
        if not prices:
            found.append(None)
            continue
        packed = {int(m): _mean(p["packed"].get(m) for p in prices) for m in prices[0]["packed"]}
        step, measure = (_mean(p[name] for p in prices) for name in ("step", "measure"))
        tried = [p["finish"] for p in prices if p["finish"] is not None]
        finish = _mean(tried) if tried else None
        found.append(Price(step, {m: t for m, t in packed.items() if t > 0}, measure, finish))
    return found


def probe_compiled(
    packs: Sequence[Sequence[Spec]], workers: int, threads: int
) -> list[Compiled | None]:
    """As `probe`, of whole packs and compiled. It takes as long as compiling does.

    What is compiled stays on the disk, where workers find it.
    """
    found = []
    for prices in _answers(packs, workers, threads, compiled=True):
        names = ("eager", "compiled", "once")
        values = {name: _mean(p[name] for p in prices) for name in names} if prices else None
        found.append(Compiled(**values) if values else None)
    return found


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are there; 0 where none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else 0.0


def _answers(
    shapes: Sequence[Sequence[Spec]], workers: int, threads: int, *, compiled: bool
) -> list[list[dict[str, Any]]]:
    """What the processes say of each shape."""
    asked = {"shapes": [[spec.to_dict() for spec in specs] for specs in shapes]}
    words = json.dumps(asked | {"compiled": compiled}).encode()
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "allometry.study.prober"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        # A cluster may have room for more than this machine has.
        for _ in range(min(workers, 2 * available_cores()))
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(words)
        process.stdin.close()
    answers = []
    for process in processes:
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        if process.wait() == 0:
            answers.append(json.loads(said))
    return [[a[i] for a in answers if a[i] is not None] for i in range(len(shapes))]
