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

from allometry._core.cores import available_cores
from allometry._core.spec import Spec


@final
@dataclass(frozen=True)
class Ways:
    """How runs will be carried out.

    Args:
        workers: Processes at once.
        threads: Of each.
        precision: In which they will train; see `train.Crowd`.
    """

    workers: int
    threads: int
    precision: str = "float32"


@final
@dataclass(frozen=True)
class Price:
    """Seconds that one shape takes.

    Args:
        step: One update of one model in the plain loop.
        packed: One update of so many models stepped as one; empty where that could not pay.
        measure: One measurement of the curve.
        finish: What comes after the last step; `None` where it was not tried.
        traced: Share of a packed step's time that it takes once traced.
    """

    step: float
    packed: dict[int, float]
    measure: float
    finish: float | None = None
    traced: float = 1.0


@final
@dataclass(frozen=True)
class Whole:
    """Seconds of a whole run that is no training; see `trial`."""

    seconds: float


@final
@dataclass(frozen=True)
class Compiled:
    """Seconds of one update eager and compiled, and until a worker finds what is compiled."""

    eager: float
    compiled: float
    once: float


def probe(shapes: Sequence[Sequence[Spec]], ways: Ways) -> list[Price | Whole | None]:
    """The price of each shape, given by runs that differ in seed, rate or length.

    Of a shape that is no training the first run is tried and priced as a whole. `None` for what
    could not be tried.

    Args:
        shapes: Runs of each shape that might be packed; those of a family follow one another,
            smallest first.
        ways: How they will be carried out.
    """
    found: list[Price | Whole | None] = []
    for prices in _answers(shapes, ways):
        if not prices:
            found.append(None)
        elif "seconds" in prices[0]:
            tried = [p["seconds"] for p in prices if p["seconds"] is not None]
            found.append(Whole(_mean(tried)) if tried else None)
        else:
            found.append(_price(prices))
    return found


def _price(prices: list[dict[str, Any]]) -> Price:
    """What several processes found, in the mean."""
    packed = {int(m): _mean(p["packed"].get(m) for p in prices) for m in prices[0]["packed"]}
    step, measure = (_mean(p[name] for p in prices) for name in ("step", "measure"))
    tried = [p["finish"] for p in prices if p["finish"] is not None]
    finish = _mean(tried) if tried else None
    packed = {m: t for m, t in packed.items() if t > 0}
    return Price(step, packed, measure, finish, _mean(p["traced"] for p in prices))


def probe_compiled(packs: Sequence[Sequence[Spec]], ways: Ways) -> list[Compiled | None]:
    """What compiling whole packs is worth. It takes as long as compiling does.

    Each pack is compiled by one process; what is compiled stays on the disk, where workers find
    it within seconds.
    """
    workers = min(ways.workers, 2 * available_cores(), len(packs))
    shares = [list(range(i, len(packs), workers)) for i in range(workers)]
    asked = [[packs[i] for i in share] for share in shares]
    found: list[Compiled | None] = [None] * len(packs)
    for share, prices in zip(shares, _ask(asked, ways, compiled=True), strict=True):
        for i, price in zip(share, prices, strict=True):
            found[i] = None if price is None else Compiled(**price)
    return found


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are there; 0 where none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else 0.0


def _answers(shapes: Sequence[Sequence[Spec]], ways: Ways) -> list[list[dict[str, Any]]]:
    """What several processes at once say of each shape."""
    # A cluster may have room for more than this machine has.
    number = min(ways.workers, 2 * available_cores())
    answers = [a for a in _ask([shapes] * number, ways, compiled=False) if a]
    columns = ([a[i] for a in answers] for i in range(len(shapes)))
    return [[found for found in column if found is not None] for column in columns]


def _ask(
    asked: Sequence[Sequence[Sequence[Spec]]], ways: Ways, *, compiled: bool
) -> list[list[dict[str, Any] | None]]:
    """What processes that work at once say of the shapes that each is given."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(ways.threads),
        "MKL_NUM_THREADS": str(ways.threads),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "allometry.study.prober"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for _ in asked
    ]
    for process, shapes in zip(processes, asked, strict=True):
        plain = [[spec.to_dict() for spec in specs] for specs in shapes]
        families = [str(specs[0]().columns["family"]) for specs in shapes]
        assert process.stdin is not None
        about = {"shapes": plain, "families": families, "compiled": compiled}
        about |= {"precision": ways.precision}
        process.stdin.write(json.dumps(about).encode())
        process.stdin.close()
    answers = []
    for process, shapes in zip(processes, asked, strict=True):
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        answers.append(json.loads(said) if process.wait() == 0 else [None] * len(shapes))
    return answers
