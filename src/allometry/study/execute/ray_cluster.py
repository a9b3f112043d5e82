"""Runs on a Ray cluster, or on a Ray of one's own on this machine."""

import contextlib
import dataclasses
import functools
import os
import secrets
import signal
import socket
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.errors import WorkerError, require, require_extra
from allometry._core.files import atomic_write, path_inside, storage_errors
from allometry._core.process import available_cores
from allometry._core.spec import Spec
from allometry.study.execute.crew import Workers, WorkerState, order
from allometry.study.execute.driver import Event, drive
from allometry.study.execute.executors import Executor, longest_first
from allometry.study.execute.ray_cleanup import reaped
from allometry.study.request import Target
from allometry.study.tasks import Bundle, Task
from allometry.train.device import DeviceSettings


@final
@dataclass(frozen=True)
class RayResources:
    """What a worker must have of a node for as long as it is at a bundle.

    Args:
        cpus: Cores; as many as threads if not given.
        gpus: Of them; a fraction shares one.
        memory: Bytes.
        others: Resources that the cluster has names for.
    """

    cpus: float | None = None
    gpus: float = 0.0
    memory: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)


@final
class ray(Executor):  # noqa: N801 - reads as `executor=ray()`
    """Workers that Ray keeps on the nodes of a cluster; the driver alone writes the journal.

    A worker that dies is replaced and its run given to another, once. Targets lie in Ray's object
    store and are read from there, once by each worker. Where the nodes see the study's folder,
    checkpoints and weights go there; where they don't, weights come back with the results, and a
    checkpoint serves the workers of one node alone.

    A process that uses Ray already keeps its connection. Otherwise the connection, or the Ray on
    this machine, lasts as long as the study; that Ray listens to this machine only, has no
    dashboard, keeps its files in a folder private to the user and ends with this process even if
    that is killed. Nodes need this package.

    Args:
        address: Of a running cluster: `"auto"`, `"host:6379"` or `"ray://host:10001"`. A Ray of
            one's own on this machine if not given.
        workers: At once, at most; as many as there is room for if not given.
        threads: Of each, where a bundle does not say.
        needs: What a worker must have; or a function that says so of each bundle.
        on: As for `local`, of the workers' nodes.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        threads: int | None = None,
        needs: RayResources | Callable[[Bundle], RayResources] | None = None,
        on: DeviceSettings | None = None,
    ) -> None:
        self.on = on or DeviceSettings()
        self.address, self._workers = address, workers
        self._threads = 1 if threads is None else threads
        self.needs = needs or RayResources()
        require(workers is None or workers >= 1, "ray.workers", "be at least 1", workers)
        require(self._threads >= 1, "ray.threads", "be at least 1", threads)
        require_extra("ray", "ray")
        if address is not None:
            _knock(address)

    @property
    def workers(self) -> int:
        """As asked for, or as there are cores."""
        return self._workers or max(1, available_cores() // self._threads)

    @property
    def threads(self) -> int:
        """Of each."""
        return self._threads

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first, so that no worker ends much later than the others."""
        waiting = longest_first(tasks)
        if not waiting:
            return
        with connected(self.address, self.workers * self._threads) as module:
            crew = _Actors(module, folder, self._threads, self.needs, self.on)
            workers = self._workers or self._room(module)
            yield from drive(crew, waiting, workers)

    def _room(self, module: Any) -> int:
        """Workers that the whole cluster has room for."""
        needs = self.needs if isinstance(self.needs, RayResources) else RayResources()
        there = module.cluster_resources()
        fit = [there.get("CPU", 1.0) / (needs.cpus or self._threads)]
        fit += [there.get("GPU", 0.0) / needs.gpus] if needs.gpus else []
        fit += [there.get(name, 0.0) / much for name, much in needs.others.items()]
        return max(1, int(min(fit)))


@contextlib.contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """The module `ray`, connected for as long as the context lasts.

    Args:
        address: As for `ray`.
        cpus: Of a Ray of one's own.
    """
    if address is None:
        # Without this Ray binds to every interface. It is read when Ray is first imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    module = require_extra("ray", "ray")
    if module.is_initialized():
        yield module
        return
    with contextlib.ExitStack() as stack:
        place: dict[str, Any] = {"address": address}
        if address is None:
            place = {"num_cpus": cpus, "include_dashboard": False}
            place |= {
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": str(stack.enter_context(reaped())),
            }
            sys.modules["ray._private.ray_constants"].ENABLE_RAY_CLUSTER = False  # pyright: ignore
        stack.enter_context(_silent())
        _connect(module, address, place)
        try:
            yield module
        finally:
            module.shutdown()


def _connect(module: Any, address: str | None, place: Mapping[str, Any]) -> None:
    """Start a Ray, or reach one, so that its workers import from where this process does."""
    own = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if address is None and "RAY_AUTH_MODE" not in os.environ:
        # Other users of this machine reach its loopback interface too. From 2.60 on Ray asks for a
        # token, and would by itself keep it in the home in a file that all can read.
        own |= {"RAY_AUTH_TOKEN": _token()}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with _environment(own), _own_sigterm(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of changes to come
            module.init(**place, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise WorkerError(f"Can't reach Ray {where}: {_first_line(error)}.") from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep Ray's own messages off standard output, where answers go; it prints nodes' deaths."""
    worker: Any = sys.modules.get("ray._private.worker")
    name = "print_to_stdstream"
    kept = getattr(worker, name, None)
    if kept is None:
        yield
        return
    setattr(worker, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(worker, name, kept)


@functools.cache
def _token() -> str:
    """One for the whole process, for Ray reads it once."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _environment(own: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes started meanwhile have; afterwards all are as they were."""
    kept = {name: os.environ.get(name) for name in (*own, "RAY_AUTH_MODE")}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def _knock(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    whole = bool(host) and port.isdigit()
    require(whole, "ray.address", "be auto, HOST:PORT or ray://HOST:PORT", address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkerError(f"Can't reach Ray at {address}: {reason}.") from error


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep whatever this process does when it is told to leave; Ray would exit at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@final
class _Actors(Workers):
    """Workers that are Ray's actors.

    An actor is made when it is first given something, with what that needs, and made anew where
    the next bundle needs something else.
    """

    def __init__(
        self,
        module: Any,
        folder: Path,
        threads: int,
        needs: RayResources | Callable[[Bundle], RayResources],
        on: DeviceSettings,
    ) -> None:
        super().__init__(threads, on)
        self.ray, self.folder, self.needs = module, folder, needs
        self.actors: dict[int, tuple[Any, RayResources]] = {}
        self.working: dict[int, Any] = {}
        self.asked: dict[Any, int] = {}
        self.stored: dict[str, Any] = {}
        self.deaths: dict[int, str] = {}
        self.gone: list[int] = []
        # Who sees this file sees the study's folder.
        self.seen = folder.absolute() / f".seen-{uuid.uuid4().hex}"
        with storage_errors("write", folder):
            self.seen.touch()

    def start(self, index: int) -> None:
        """Ready at once: the actor is made when it is known what it needs."""
        self.members[index] = WorkerState(idle=True)

    def give(self, index: int, bundle: Bundle) -> None:
        """To an actor that has what the bundle needs."""
        needs = self.needs if isinstance(self.needs, RayResources) else self.needs(bundle)
        threads = self.threads_of(bundle)
        needs = dataclasses.replace(needs, cpus=needs.cpus or threads)
        if index in self.actors and self.actors[index][1] != needs:
            self._end(index)
        if index not in self.actors:
            self._make(index, needs)
        self.members[index].take(bundle)
        used: dict[str, Any] = {}
        runs = [{"key": t.key, "spec": self._light(t.spec, used)} for t in bundle.tasks]
        told = order(bundle, self.folder, threads, self.on, 0) | {"runs": runs}
        self.working[index] = self.actors[index][0].carry_out.remote(told, used)

    def _make(self, index: int, needs: RayResources) -> None:
        from allometry.study.execute.ray_worker import RayWorker

        options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        options |= {"memory": needs.memory} if needs.memory else {}
        options |= {"resources": dict(needs.others)} if needs.others else {}
        # One call works, one waits for events, one may say stop.
        made = self.ray.remote(RayWorker).options(**options, max_restarts=0, max_concurrency=4)
        self.actors[index] = made.remote(str(self.seen)), needs
        self._ask(index)

    def _ask(self, index: int) -> None:
        self.asked[self.actors[index][0].events.remote()] = index

    def _light(self, spec: Spec, used: dict[str, Any]) -> dict[str, Any]:
        """A spec as plain values, with keys in place of targets; these are added to `used`."""
        about = spec.to_dict()
        for name, value in spec.arguments.items():
            if not isinstance(value, Spec):
                continue
            reference = self._store(value)
            if reference is None:
                about["arguments"][name] = self._light(value, used)
            else:
                about["arguments"][name] = {"stored": value.key}
                used[value.key] = reference
        return about

    def _store(self, spec: Spec) -> Any:
        """Where in the store the target lies that `spec` makes; `None` if it makes none."""
        if spec.key not in self.stored:
            made, reference = spec(), None
            if isinstance(made, Target):
                # What can't be sent is made anew where it is used.
                with contextlib.suppress(TypeError):
                    reference = self.ray.put((spec.to_dict(), made))
            self.stored[spec.key] = reference
        return self.stored[spec.key]

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """As `Workers` says; files that came along are in the folder before anyone is told."""
        messages: list[tuple[int, dict[str, Any] | None]] = [(index, None) for index in self.gone]
        self.gone = []
        if messages:
            return messages
        ready, _ = self.ray.wait(list(self.asked), num_returns=1, timeout=self.patience)
        more, _ = self.ray.wait(list(self.asked), num_returns=len(self.asked), timeout=0)
        for reference in dict.fromkeys([*ready, *more]):
            index = self.asked.pop(reference)
            try:
                batch = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.deaths[index] = f"died ({_first_line(error)})"
                messages.append((index, None))
                continue
            self._ask(index)
            for event, files in batch:
                for name, data in files.items():
                    with atomic_write(path_inside(self.folder, "weights", name), "wb") as file:
                        file.write(data)
                messages.append((index, event))
        return messages

    def hang_up(self, index: int) -> None:
        """End a worker that is at nothing."""
        if index in self.actors:
            self._end(index)
        self.gone.append(index)

    def _end(self, index: int) -> None:
        actor, _ = self.actors.pop(index)
        self.asked = {r: i for r, i in self.asked.items() if i != index}
        self.working.pop(index, None)
        self.ray.kill(actor)

    def remove(self, index: int) -> str:
        """As `Workers` says."""
        del self.members[index]
        if index in self.actors:
            self._end(index)
        return self.deaths.pop(index, "left")

    def close(self, grace: float = 10.0) -> None:
        """As `Workers` says."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            for index in self.working:
                self.actors[index][0].stop.remote()
            if self.working:
                work = list(self.working.values())
                self.ray.wait(work, num_returns=len(work), timeout=grace)
        for index in list(self.actors):
            self._end(index)
        self.seen.unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    """Of what it says, without the stop at its end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
