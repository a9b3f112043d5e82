"""Runs on a Ray cluster, or on a private Ray instance on this machine."""

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
from allometry.study.execute.driver import Event, Workers, WorkerState, drive, order
from allometry.study.execute.executors import Executor, longest_first
from allometry.study.execute.ray_cleanup import private_ray_folder
from allometry.study.request import Target
from allometry.study.tasks import Bundle, Task
from allometry.train.device import DeviceSettings


@final
@dataclass(frozen=True)
class RayResources:
    """Resources that a worker reserves on its node while it carries out a bundle.

    Args:
        cpus: Cores. Default: the number of threads.
        gpus: GPUs; a fraction shares one.
        memory: Bytes.
        others: Custom resources of the cluster, by name.
    """

    cpus: float | None = None
    gpus: float = 0.0
    memory: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)


@final
class RayExecutor(Executor):
    """Workers on the nodes of a Ray cluster; see `ray`."""

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
            _check_reachable(address)

    def __repr__(self) -> str:
        return f"ray({self.address!r}, workers={self._workers}, threads={self.threads})"

    @property
    def workers(self) -> int:
        """As requested, or as the cores of this machine allow."""
        return self._workers or max(1, available_cores() // self._threads)

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return self._threads

    def __call__(self, tasks: Iterable[Task | Bundle], folder: Path) -> Iterator[Event]:
        """Longest first, so that workers end at about the same time."""
        waiting = longest_first(tasks)
        if not waiting:
            return
        with connected(self.address, self.workers * self._threads) as module:
            actors = _Actors(module, folder, self._threads, self.needs, self.on)
            yield from drive(actors, waiting, self._workers or self._capacity(module))

    def _capacity(self, module: Any) -> int:
        """Number of workers that fit into the cluster."""
        needs = self.needs if isinstance(self.needs, RayResources) else RayResources()
        available = module.cluster_resources()
        fit = [available.get("CPU", 1.0) / (needs.cpus or self._threads)]
        fit += [available.get("GPU", 0.0) / needs.gpus] if needs.gpus else []
        fit += [available.get(name, 0.0) / amount for name, amount in needs.others.items()]
        return max(1, int(min(fit)))


def ray(
    address: str | None = None,
    *,
    workers: int | None = None,
    threads: int | None = None,
    needs: RayResources | Callable[[Bundle], RayResources] | None = None,
    on: DeviceSettings | None = None,
) -> RayExecutor:
    """Workers that Ray keeps on the nodes of a cluster; the driver alone writes the journal.

    A worker that exits unexpectedly is replaced, and its run is retried once. Targets are in Ray's
    object store; each worker reads them once. Nodes that see the study's folder write checkpoints
    and weights there. Otherwise weights come back with the results, and checkpoints are shared by
    the workers of one node only.

    A process that uses Ray already keeps its connection. Otherwise the connection, or the private
    Ray instance, lasts as long as the study. The private instance listens on the loopback
    interface only, has no dashboard, keeps its files in a folder private to the user and ends with
    this process even if that is killed. Nodes need this package.

    Args:
        address: Of a running cluster: `"auto"`, `"host:6379"` or `"ray://host:10001"`. Default: a
            private instance on this machine.
        workers: Largest number at once. Default: as many as fit.
        threads: Of each worker, unless a bundle has its own number.
        needs: Resources of a worker, or a function from a bundle to resources.
        on: As for `local`, on the workers' nodes.
    """
    return RayExecutor(address, workers=workers, threads=threads, needs=needs, on=on)


@contextlib.contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """The module `ray`, connected inside the context.

    Args:
        address: As for `ray`.
        cpus: Of a private instance.
    """
    if address is None:
        # Otherwise Ray binds to all interfaces. It reads this when it is first imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    module = require_extra("ray", "ray")
    if module.is_initialized():
        yield module
        return
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"address": address}
        if address is None:
            options = {"num_cpus": cpus, "include_dashboard": False}
            options |= {
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": str(stack.enter_context(private_ray_folder())),
            }
            sys.modules["ray._private.ray_constants"].ENABLE_RAY_CLUSTER = False  # pyright: ignore
        stack.enter_context(_no_ray_output())
        _connect(module, address, options)
        try:
            yield module
        finally:
            module.shutdown()


def _connect(module: Any, address: str | None, options: Mapping[str, Any]) -> None:
    """Start or reach Ray; its workers use the import path of this process."""
    variables = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if address is None and "RAY_AUTH_MODE" not in os.environ:
        # Other users of this machine can reach its loopback interface. From 2.60 on Ray requires a
        # token; by default it stores it in the home folder in a file that all users can read.
        variables |= {"RAY_AUTH_TOKEN": _token()}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with _environment(variables), _keep_sigterm(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's deprecation warnings
            module.init(**options, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise WorkerError(f"Can't reach Ray {where}: {_first_line(error)}.") from error


@contextlib.contextmanager
def _no_ray_output() -> Iterator[None]:
    """Keep Ray's messages (such as lost nodes) off standard output, which has results."""
    worker: Any = sys.modules.get("ray._private.worker")
    name = "print_to_stdstream"
    original = getattr(worker, name, None)
    if original is None:
        yield
        return
    setattr(worker, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(worker, name, original)


@functools.cache
def _token() -> str:
    """One token for the whole process, since Ray reads it once."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the context and restore them afterwards."""
    before = {name: os.environ.get(name) for name in (*variables, "RAY_AUTH_MODE")}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def _check_reachable(address: str) -> None:
    """Refuse an address that does not answer; Ray itself tries for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    valid = bool(host) and port.isdigit()
    require(valid, "ray.address", "be auto, HOST:PORT or ray://HOST:PORT", address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkerError(f"Can't reach Ray at {address}: {reason}.") from error


@contextlib.contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Keep the SIGTERM handler of this process; Ray's exits at once."""
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
    """Workers that are Ray actors.

    An actor is created for its first bundle with the bundle's resources, and replaced if a later
    bundle needs other resources.
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
        self.reasons: dict[int, str] = {}
        self.gone: list[int] = []
        # A node that sees this file sees the study's folder.
        self.seen = folder.absolute() / f".seen-{uuid.uuid4().hex}"
        with storage_errors("write", folder):
            self.seen.touch()

    def start(self, index: int) -> None:
        """Ready at once: the actor is created with the resources of its first bundle."""
        self.members[index] = WorkerState(idle=True)

    def dispatch(self, index: int, bundle: Bundle) -> None:
        """Send a bundle to an actor that has its resources."""
        needs = self.needs if isinstance(self.needs, RayResources) else self.needs(bundle)
        threads = self.threads_of(bundle)
        needs = dataclasses.replace(needs, cpus=needs.cpus or threads)
        if index in self.actors and self.actors[index][1] != needs:
            self._end(index)
        if index not in self.actors:
            self._make(index, needs)
        self.members[index].start(bundle)
        used: dict[str, Any] = {}
        runs = [{"key": t.key, "spec": self._light(t.spec, used)} for t in bundle.tasks]
        message = order(bundle, self.folder, threads, self.on, 0) | {"runs": runs}
        self.working[index] = self.actors[index][0].carry_out.remote(message, used)

    def _make(self, index: int, needs: RayResources) -> None:
        from allometry.study.execute.ray_worker import RayWorker

        options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        options |= {"memory": needs.memory} if needs.memory else {}
        options |= {"resources": dict(needs.others)} if needs.others else {}
        # One call carries out runs, one waits for events, one may stop the worker.
        actor = self.ray.remote(RayWorker).options(**options, max_restarts=0, max_concurrency=4)
        self.actors[index] = actor.remote(str(self.seen)), needs
        self._ask(index)

    def _ask(self, index: int) -> None:
        self.asked[self.actors[index][0].events.remote()] = index

    def _light(self, spec: Spec, used: dict[str, Any]) -> dict[str, Any]:
        """A spec as plain values with keys instead of targets; the targets are added to `used`."""
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
        """The stored target that `spec` makes; `None` if it makes no target."""
        if spec.key not in self.stored:
            target, reference = spec(), None
            if isinstance(target, Target):
                # A target that can't be serialised is made again by the worker.
                with contextlib.suppress(TypeError):
                    reference = self.ray.put((spec.to_dict(), target))
            self.stored[spec.key] = reference
        return self.stored[spec.key]

    def wait(self) -> list[tuple[int, dict[str, Any] | None]]:
        """See `Workers`. Files are written to the folder before their messages are returned."""
        messages: list[tuple[int, dict[str, Any] | None]] = [(index, None) for index in self.gone]
        self.gone = []
        if messages:
            return messages
        ready, _ = self.ray.wait(list(self.asked), num_returns=1, timeout=self.timeout)
        more, _ = self.ray.wait(list(self.asked), num_returns=len(self.asked), timeout=0)
        for reference in dict.fromkeys([*ready, *more]):
            index = self.asked.pop(reference)
            try:
                batch = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.reasons[index] = f"died ({_first_line(error)})"
                messages.append((index, None))
                continue
            self._ask(index)
            for event, files in batch:
                for name, data in files.items():
                    with atomic_write(path_inside(self.folder, "weights", name), "wb") as file:
                        file.write(data)
                messages.append((index, event))
        return messages

    def shut_down(self, index: int) -> None:
        """End an idle worker."""
        if index in self.actors:
            self._end(index)
        self.gone.append(index)

    def _end(self, index: int) -> None:
        actor, _ = self.actors.pop(index)
        self.asked = {r: i for r, i in self.asked.items() if i != index}
        self.working.pop(index, None)
        self.ray.kill(actor)

    def remove(self, index: int) -> str:
        """See `Workers`."""
        del self.members[index]
        if index in self.actors:
            self._end(index)
        return self.reasons.pop(index, "left")

    def close(self, grace: float = 10.0) -> None:
        """See `Workers`."""
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
    """The first line of an error's message, without the full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
