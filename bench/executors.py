"""Cost of executors: results per second through the driver, and one model in two processes.

Run: python bench/executors.py [--runs 2000] [--workers 2] [local ray]
     python bench/executors.py --model 1e6 [--tokens 120000]

The first executes empty runs, so it measures requests, events and journal lines only. The second
trains one transformer in one process with two threads, and in two processes with the model
replicated or sharded.
"""

import argparse
import functools
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import needs

from allometry import Spec
from allometry.study import (
    Outcome,
    Request,
    RunContext,
    Study,
    local,
    recipes,
    torchrun,
)
from allometry.study.execute.executor_names import executor_by_name
from allometry.targets import Text
from allometry.train import Budget


@dataclass(frozen=True)
class Nothing(Request):
    """A run that ends at once, with the columns of a real one."""

    target: Text
    number: int

    @property
    def columns(self) -> dict[str, Any]:
        """Those of a transformer."""
        return {"family": "none", "target": "none", "shape": "none", "rung": 0, "seed": 0}

    def budget(self) -> Budget:
        """None."""
        return Budget(1, 1, 1, 1.0)

    def work(self) -> float:
        """None."""
        return 0.001

    def __call__(self, place: RunContext) -> Outcome:
        """Done."""
        cost = {"N": 1, "N_embedding": 1, "D": 1, "D_unique": 1, "C": 1.0, "C_6ND": 6.0}
        loss = {"loss": 1.0, "loss_se": 0.1, "test_loss": 1.0, "test_loss_se": 0.1, "seconds": 0.0}
        curve = {name: [float(i) for i in range(12)] for name in ("step", "tokens", "loss")}
        return Outcome(self.columns | cost | loss, curve, "the value of the expression " * 8)


def study(runs):
    text = Text.embedded()

    def recipe(target, ladder, *, tokens, seeds):
        import executors  # the name under which workers import it

        return [Spec(executors.Nothing, target=text.spec, number=i) for i in range(runs)]

    return Study(text, [recipe], [1000], tokens=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", type=float, default=None)
    parser.add_argument("--tokens", type=float, default=120_000)
    parser.add_argument("names", nargs="*", default=["local", "ray"])
    arguments = parser.parse_args()
    if arguments.model is not None:
        two_processes(arguments.model, arguments.tokens)
        return
    for name in arguments.names:
        measure(name, arguments.runs, arguments.workers)


def measure(name, runs, workers):
    place = executor_by_name(name, workers=workers, threads=1)
    ended = []

    def watch(event):
        if event.kind == "done":
            ended.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        one_study = study(runs)
        started, spent = time.perf_counter(), time.process_time()
        one_study.run(Path(folder), place, watch=watch)
        spent = time.process_time() - spent
    rate = (len(ended) - 1) / (ended[-1] - ended[0])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name}: first result after {ended[0] - started:.1f} s, then {rate:,.0f} results/s; "
        f"driver {1e3 * spent / len(ended):.2f} ms of CPU per result, peak {most:.2f} GiB"
    )


def two_processes(N, D):
    places = {
        "one process, two threads": local(workers=1, threads=2),
        "two processes, replicated (DDP)": torchrun(2, threads=1),
        "two processes, sharded (FSDP2)": torchrun(2, shard=True, threads=1),
    }
    text = Text.embedded()
    recipe = functools.partial(recipes.transformer, batch=32)
    for name, place in places.items():
        with tempfile.TemporaryDirectory() as folder:
            one_study = Study(text, [recipe], [N], seeds=1, tokens=[D])
            (row,) = one_study.run(Path(folder), place).frame().to_dict("records")
        print(f"{name}: {row['D'] / row['seconds']:,.0f} tokens/s, loss {row['loss']:.5f}")


if __name__ == "__main__":
    needs.run(main)
