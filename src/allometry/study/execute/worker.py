"""A process that carries out runs, one after another, for a driver at the other end of a pipe.

Tasks come in as JSON lines on standard input, events go out as JSON lines on standard output. When
the input ends (the driver left, however it died) the worker leaves at once, so no orphan goes on.
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
from allometry.study.execute import results
from allometry.study.request import Request, RunContext, TrainingRequest
from allometry.train.device import DeviceSettings
from allometry.train.distributed import Group, HelperFinished, lost_another
from allometry.train.loop import Progress, Stopped
from allometry.train.packed.loop import BatchedTrainer

TELL_EVERY = 0.2
"""Seconds between two progress events."""


@final
class Worker:
    """Carries orders out and tells what comes of them.

    Args:
        send: Takes each event, as a line of JSON, to the driver.
        lent: Targets that need not be made again, by their specs.
        group: The processes that carry each run out together with this one.
    """

    def __init__(
        self,
        send: Callable[[str], None],
        lent: Mapping[Spec, Any] | None = None,
        group: Group | None = None,
    ) -> None:
        self.send, self.lent, self.group = send, lent, group
        self.broken = False
        """Whether a run ended in a way that its group may not have noticed."""
        self.stopping = threading.Event()
        self.told: dict[str, float] = {}

    def tell(self, event: dict[str, Any]) -> None:
        """One event to the driver."""
        self.send(json.dumps(event, allow_nan=False))

    def watch(self, key: str, progress: Progress) -> None:
        """Pass progress on, but not more often than anyone can read."""
        now = time.monotonic()
        if now - self.told.get(key, 0.0) >= TELL_EVERY or progress.step == progress.steps:
            self.told[key] = now
            if (event := results.progress(key, progress)) is not None:
                self.tell(event)

    def carry_out(self, order: dict[str, Any]) -> None:
        """Tell how each run of one order ended, whatever it gives back or raises."""
        started, before = time.monotonic(), time.process_time()
        local = int(os.environ.get("LOCAL_RANK") or order["index"])
        left = {run["key"]: run["spec"] for run in order["runs"]}
        folder = Path(order["folder"])
        packing = packed_as(order)

        def ended(key: str, event: dict[str, Any]) -> None:
            cpu = time.process_time() - before
            self.tell(event | {"key": key, "packing": packing, "cpu": cpu})
            del left[key]

        try:
            torch.set_num_threads(order["how"]["threads"])
            requests: dict[str, Request] = {
                key: Spec.from_dict(spec, trusted=True)(self.lent) for key, spec in left.items()
            }
            on = DeviceSettings(**order["on"]).resolved(local)
            tell = {key: functools.partial(self.watch, key) for key in left}
            places = {
                key: RunContext(key, folder, tell[key], self.stopping.is_set, on=on)
                for key in left
            }
            with on.repeatable(zlib.crc32(order["name"].encode())):
                if order["plain"]:
                    ((key, request),) = requests.items()
                    self._alone(request, places[key], ended)
                else:
                    for key, event in self._together(order, requests, places):
                        ended(key, event)
        except Stopped:
            self.tell({"event": "stopped"})
            return
        except BaseException as error:  # `sys.exit()` inside a run ends the run, not the worker
            self.broken = not isinstance(error, DivergedError)
            if self.group is not None and lost_another(error):
                return  # no fault of the run's: the driver sees the group end and begins again
            event = results.failed(error) | {"seconds": time.monotonic() - started}
            for key in list(left):
                ended(key, event)
        self.tell({"event": "ready"})

    def _alone(
        self, request: Request, place: RunContext, ended: Callable[[str, dict[str, Any]], None]
    ) -> None:
        """One run by itself; of a group, the first process tells what came of it."""
        if self.group is not None and request.splits:
            place = dataclasses.replace(place, group=self.group)
        if self.group is None or self.group.rank == 0 or request.splits:
            with contextlib.suppress(HelperFinished):
                ended(place.key, results.done(request(place)))

    def _together(
        self, order: dict[str, Any], requests: dict[str, Request], places: dict[str, RunContext]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        asked = {key: r for key, r in requests.items() if isinstance(r, TrainingRequest)}
        trainings = {key: request.training() for key, request in asked.items()}
        trunks = {key: r.trunk for key, r in asked.items() if r.trunk is not None}
        how = order["how"]
        ways = {name: how.get(name, False) for name in ("compiled", "traced")}
        precision = DeviceSettings(**order["on"]).packed
        crowd = BatchedTrainer(
            trainings, trunks=trunks, size=how["size"], precision=precision, **ways
        )
        folder = Path(order["folder"])
        for end in crowd(
            save_to=folder / "checkpoints" / f"{order['name']}.safetensors",
            watch=lambda key, progress: self.watch(key, progress),
            stop=self.stopping.is_set,
        ):
            name = end.name
            if end.error is not None:
                yield name, results.failed(end.error)
                continue
            assert end.trained is not None
            try:
                made = asked[name].finish(places[name], trainings[name], end.model, end.trained)
                event = results.done(made)
            except Stopped:
                raise
            except BaseException as error:  # its own end: those packed with it go on
                event = results.failed(error)
            yield name, event


def packed_as(order: dict[str, Any]) -> str:
    """How the runs of an order are carried out, as the journal says it of each of them.

    Equal words, on equal machines, mean sums that are rounded in the same way.
    """
    how, runs = order["how"], len(order["runs"])
    size = min(how["size"], runs)
    words = [f"{size} as one" if size > 1 else "alone" if order["plain"] else "one by one"]
    words += [way for way in ("compiled", "traced") if how.get(way) and not order["plain"]]
    words += ["1 thread" if how["threads"] == 1 else f"{how['threads']} threads"]
    words += ["deterministic"] if order["on"].get("deterministic") else []
    return ", ".join(words)


def main() -> None:
    """Serve until told to stop or the driver is gone."""
    output = private_output()
    worker = Worker(lambda line: print(line, file=output))
    # Whoever takes the machine away gives a moment's notice: checkpoint, then leave.
    signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=listen, args=(sys.stdin, worker, orders), daemon=True).start()
    worker.tell({"event": "ready"})
    with hide_library_warnings():
        while "stop" not in (order := orders.get()):
            worker.carry_out(order)


def private_output() -> IO[str]:
    """Where events go: anything that prints must not speak into the pipe."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return output


def listen(source: IO[str], worker: Worker, orders: "SimpleQueue[dict[str, Any]]") -> None:
    """Read the driver's lines until it hangs up, then leave without further ado."""
    try:
        for line in source:
            message = json.loads(line)
            if message.get("stop"):
                worker.stopping.set()
            orders.put(message)
    finally:
        # Also where a line can't be read: a worker that no longer listens would never leave.
        os._exit(0)


if __name__ == "__main__":
    main()
