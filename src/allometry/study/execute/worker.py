"""A process that carries out runs, one after another, for a driver connected by pipes.

Orders arrive as JSON lines on standard input, events are written as JSON lines to standard output.
When the input ends (the driver has exited for any reason) the worker exits at once, so that no
orphan keeps running.
"""

import contextlib
import dataclasses
import functools
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, final

import torch

from allometry._core.errors import DivergedError
from allometry._core.library_warnings import hide_library_warnings
from allometry._core.spec import Spec
from allometry.study.execute import run_results
from allometry.study.request import Request, RunContext, TrainingRequest, default_dtype
from allometry.train.device import DeviceSettings
from allometry.train.distributed import Group, HelperFinished, lost_another
from allometry.train.loop import Progress, Stopped
from allometry.train.packed.batched_trainer import BatchedTrainer

REPORT_EVERY = 0.2
"""Seconds between two progress events."""


@final
class Worker:
    """Carries out orders and reports their results.

    Args:
        send: Sends an event, as a line of JSON, to the driver.
        lent: Existing targets, by their specs; they are not made again.
        group: The processes that carry out each run together with this one.
    """

    def __init__(
        self,
        send: Callable[[str], None],
        lent: Mapping[Spec, Any] | None = None,
        group: Group | None = None,
    ) -> None:
        self.send, self.lent, self.group = send, lent, group
        self.broken = False
        """Whether a run ended in a way that its group may have missed."""
        self.stopping = threading.Event()
        self.reported: dict[str, float] = {}

    def report(self, event: dict[str, Any]) -> None:
        """Send one event to the driver."""
        self.send(json.dumps(event, allow_nan=False))

    def watch(self, key: str, progress: Progress) -> None:
        """Report progress, at most every `REPORT_EVERY` seconds."""
        now = time.monotonic()
        if now - self.reported.get(key, 0.0) >= REPORT_EVERY or progress.step == progress.steps:
            self.reported[key] = now
            if (event := run_results.progress_event(key, progress)) is not None:
                self.report(event)

    def carry_out(self, order: dict[str, Any]) -> None:
        """Carry out one order and report how each of its runs ended."""
        started, before = time.monotonic(), time.process_time()
        local = int(os.environ.get("LOCAL_RANK") or order["index"])
        left = {run["key"]: run["spec"] for run in order["runs"]}
        folder = Path(order["folder"])
        packing = packing_column(order)

        def finished(key: str, event: dict[str, Any]) -> None:
            cpu = time.process_time() - before
            self.report(event | {"key": key, "packing": packing, "cpu": cpu})
            del left[key]

        try:
            torch.set_num_threads(order["how"]["threads"])
            requests: dict[str, Request] = {
                key: Spec.from_dict(spec, trusted=True)(self.lent) for key, spec in left.items()
            }
            on = DeviceSettings(**order["on"]).resolved(local)
            contexts = {
                key: RunContext(
                    key, folder, functools.partial(self.watch, key), self.stopping.is_set, on=on
                )
                for key in left
            }
            (dtype,) = {request.dtype for request in requests.values()}
            with on.repeatable(zlib.crc32(order["name"].encode())), default_dtype(dtype):
                if order["plain"]:
                    ((key, request),) = requests.items()
                    self._run_single(request, contexts[key], finished)
                else:
                    for key, event in self._run_bundle(order, requests, contexts):
                        finished(key, event)
        except Stopped:
            self.report({"event": "stopped"})
            return
        except BaseException as error:  # `sys.exit()` inside a run ends the run, not the worker
            self.broken = not isinstance(error, DivergedError)
            if self.group is not None and lost_another(error):
                return  # not the run's fault: the driver notices the group's exit and retries
            event = run_results.failure_event(error) | {"seconds": time.monotonic() - started}
            for key in list(left):
                finished(key, event)
        self.report({"event": "ready"})

    def _run_single(
        self,
        request: Request,
        context: RunContext,
        finished: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Carry out one run; the first process of a group reports its result."""
        if self.group is not None and request.splits:
            context = dataclasses.replace(context, group=self.group)
        if self.group is None or self.group.rank == 0 or request.splits:
            with contextlib.suppress(HelperFinished):
                finished(context.key, run_results.done_event(request(context)))

    def _run_bundle(
        self,
        order: dict[str, Any],
        requests: dict[str, Request],
        contexts: dict[str, RunContext],
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Carry out several trainings in one batched trainer."""
        asked = {key: r for key, r in requests.items() if isinstance(r, TrainingRequest)}
        trainings = {key: request.training() for key, request in asked.items()}
        phases = {key: r.stable_phase for key, r in asked.items() if r.stable_phase is not None}
        how = order["how"]
        on = next(iter(contexts.values())).on
        trainer = BatchedTrainer(
            trainings,
            stable_phases=phases,
            size=how["size"],
            precision=on.packed,
            device=on.device,
            **{name: how.get(name, False) for name in ("compiled", "traced")},
        )
        for result in trainer(
            save_to=Path(order["folder"]) / "checkpoints" / f"{order['name']}.safetensors",
            watch=lambda key, progress: self.watch(key, progress),
            stop=self.stopping.is_set,
        ):
            name = result.name
            if result.error is not None:
                yield name, run_results.failure_event(result.error)
                continue
            assert result.trained is not None
            try:
                outcome = asked[name].finish(
                    contexts[name], trainings[name], result.model, result.trained
                )
                event = run_results.done_event(outcome)
            except Stopped:
                raise
            except BaseException as error:  # the other runs of the bundle continue
                event = run_results.failure_event(error)
            yield name, event


def packing_column(order: dict[str, Any]) -> str:
    """How the runs of an order are carried out: the column `packing` of the journal.

    On equal machines, an equal value means that sums are rounded in the same way.
    """
    how, runs = order["how"], len(order["runs"])
    size = min(how["size"], runs)
    words = [f"{size} as one" if size > 1 else "alone" if order["plain"] else "one by one"]
    words += [way for way in ("compiled", "traced") if how.get(way) and not order["plain"]]
    words += ["1 thread" if how["threads"] == 1 else f"{how['threads']} threads"]
    words += ["deterministic"] if order["on"].get("deterministic") else []
    return ", ".join(words)


def main() -> None:
    """Carry out orders until the driver stops this process or exits."""
    output = private_output()
    worker = Worker(lambda line: print(line, file=output))
    # Cluster managers send SIGTERM shortly before they kill: save a checkpoint, then exit.
    signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=listen, args=(sys.stdin, worker, orders), daemon=True).start()
    worker.report({"event": "ready"})
    with hide_library_warnings():
        while "stop" not in (order := orders.get()):
            worker.carry_out(order)


def private_output() -> IO[str]:
    """The stream for events; anything printed goes to standard error instead."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return output


def listen(source: IO[str], worker: Worker, orders: "SimpleQueue[dict[str, Any]]") -> None:
    """Read the driver's lines until the input ends, then exit at once."""
    try:
        for line in source:
            message = json.loads(line)
            if message.get("stop"):
                worker.stopping.set()
            orders.put(message)
    finally:
        # Also after an invalid line: a worker that reads no input would never exit.
        os._exit(0)


if __name__ == "__main__":
    main()
