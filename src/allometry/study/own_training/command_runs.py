"""One run of a user's command: placeholders filled, output read, failures in one sentence."""

import contextlib
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch

from allometry._core.errors import DivergedError, InputError, WorkerError
from allometry._core.user_files import replace_controls, shorten
from allometry.study.own_training import supervisor
from allometry.study.own_training.metrics import Reader, last_of_file
from allometry.study.recipes.base import identity
from allometry.study.request import Outcome, Request, RunContext
from allometry.train.budget import Budget
from allometry.train.loop import Progress, Stopped

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
POLL = 0.1
"""Seconds between two looks at the clock and at the driver."""

MOST_OUTPUT = 20_000_000
"""Characters of output that are kept in the run's folder."""

OWN = ("seed", "key", "out")
"""Placeholders that every run has."""


def filled(text: str, values: Mapping[str, Any]) -> str:
    """A part of the command with its placeholders replaced; others are left alone."""
    return PLACEHOLDER.sub(
        lambda found: str(values[found[1]]) if found[1] in values else found[0], text
    )


@final
@dataclass(frozen=True)
class CommandRun(Request):
    """One run of a command.

    Args:
        command: Program and arguments, with placeholders such as `{width}`. No shell reads them.
        metric: Where the loss is read; see `metrics`.
        values: What the placeholders stand for. `N`, `D` and `C`, if given, are parameters, data
            and FLOPs; `tokens` stands for `D`.
        family: Name of the recipe.
        target: Name of the task.
        seed: Value of `{seed}`.
        rung: Index of the shape.
        n_metric: Where the number of parameters is read.
        flops_metric: Where the FLOPs are read.
        timeout: Seconds after which the command is ended.
        retries: How often a command that fails is started again.
    """

    command: Sequence[str]
    metric: str
    values: Mapping[str, Any]
    family: str
    target: str
    seed: int
    rung: int
    n_metric: str | None = None
    flops_metric: str | None = None
    timeout: float = 86_400.0
    retries: int = 1

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung, seed, and the values of the placeholders."""
        sizes = ("N", "D", "C")
        shape = ", ".join(f"{k} {v}" for k, v in self.values.items() if k not in sizes)
        own = {k: v for k, v in self.values.items() if k not in sizes}
        return identity(self.family, self.target, shape, self.rung, self.seed) | {
            k: v for k, v in own.items() if k not in ("family", "target", "shape", "rung", "seed")
        }

    def budget(self) -> Budget:
        """What the values say; 0 where the command's output is to say it."""
        N, D = self._value("N"), self._value("D") or self._value("tokens")
        C = self._value("C") or 6.0 * N * D
        return Budget(round(N), 0, round(D), C)

    def _value(self, name: str) -> float:
        value = self.values.get(name, 0.0)
        return float(value) if isinstance(value, int | float) else 0.0

    def work(self) -> float:
        """Unknown; larger shapes later."""
        return 1.0 + self.rung

    def __call__(self, context: RunContext) -> Outcome:
        """Run the command, again if it fails; read its loss."""
        started = time.monotonic()
        out = context.folder / "output" / context.key
        out.mkdir(parents=True, exist_ok=True)
        attempts = 0
        while (code := self._run(context, out, found := _Found(self))) != 0:
            attempts += 1
            if attempts > self.retries or code == supervisor.NOT_STARTED:
                raise WorkerError(_failed(code, found.tail))
        return self._outcome(context, out, found, time.monotonic() - started)

    def _run(self, context: RunContext, out: Path, found: "_Found") -> int:
        """Run the command once; return its exit code."""
        values = dict(self.values) | {"seed": self.seed, "key": context.key, "out": str(out)}
        arguments = [filled(part, values) for part in self.command]
        deadline = time.monotonic() + self.timeout
        with _started(arguments, context) as (process, lines), _log(out) as log:
            while (line := _next(lines)) is not END:
                if context.stop():
                    raise Stopped
                if time.monotonic() > deadline:
                    raise WorkerError(
                        f"the command did not end within {self.timeout:g} s and was stopped"
                        f"{_last(found.tail)}. Raise --timeout, or look for a hang."
                    )
                if isinstance(line, str):
                    found.read(line)
                    log(line)
            return process.wait()

    def _outcome(self, context: RunContext, out: Path, found: "_Found", seconds: float) -> Outcome:
        values = dict(self.values) | {"seed": self.seed, "key": context.key, "out": str(out)}
        loss, extras = found.result(values)
        N = extras.get("N", self._value("N"))
        D = extras.get("D") or self._value("D") or self._value("tokens")
        C = extras.get("C", self._value("C")) or 6.0 * N * D
        if N <= 0:
            raise InputError(
                "the number of parameters must be known; got none. Print it and give --n-metric, "
                "or add it to --shapes, as in N=12*depth*width^2."
            )
        self._check_size(N)
        context.watch(Progress(1, 1, loss))
        columns = self.columns | {
            "N": N, "N_embedding": None, "D": D or None, "D_unique": None, "C": C or None,
            "C_6ND": 6.0 * N * D or None, "loss": loss, "loss_se": None, "seconds": seconds,
        }  # fmt: skip
        return Outcome(columns, found.curve())

    def _check_size(self, N: float) -> None:
        asked = self._value("N")
        if asked and abs(N / asked - 1) > 0.01:
            raise InputError(
                f"the command must train the {asked:g} parameters that --shapes gives; its output "
                f"says {N:g}. Correct one of them."
            )


@final
@dataclass
class _Found:
    """What was read of a run's output so far."""

    run: CommandRun
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    def __post_init__(self) -> None:
        run = self.run
        from_file = run.metric.startswith("file:")
        self.loss = None if from_file else Reader(run.metric, "metric")
        self.others = {
            name: Reader(metric, option)
            for name, metric, option in (
                ("N", run.n_metric, "n_metric"),
                ("C", run.flops_metric, "flops_metric"),
            )
            if metric is not None
        }

    def read(self, line: str) -> None:
        """Read a line of output."""
        if line.strip():
            self.tail.append(line.strip())
        for reader in (self.loss, *self.others.values()):
            if reader is not None:
                reader.read(line)

    def result(self, values: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        """The loss, and N, D and C where the output has them."""
        if self.loss is None:
            path = Path(filled(self.run.metric.removeprefix("file:"), values))
            found = last_of_file(path)
            loss, extras = found.pop("loss"), found
        else:
            loss, extras = self._printed(self.loss), dict(self.loss.extras)
        for name, reader in self.others.items():
            if reader.value is None or not reader.value > 0:
                raise InputError(
                    f"the output must have {name} by the pattern {reader.metric!r}; got none"
                    f"{_last(self.tail)}."
                )
            extras[name] = reader.value
        return loss, extras

    def _printed(self, reader: Reader) -> float:
        if reader.value is None:
            raise InputError(
                f"the output must have a line that matches the metric {reader.metric!r}; got none"
                f"{_last(self.tail)}."
            )
        if not math.isfinite(reader.value):
            raise DivergedError(f"the command printed a loss of {shorten(reader.text, 40)!r}")
        return reader.value

    def curve(self) -> dict[str, list[float]]:
        """Losses along the training, if the metric has a group or key `step`."""
        if self.loss is None or len(self.loss.steps) < 2:
            return {}
        return {"step": self.loss.steps, "loss": self.loss.values}


END = object()
_IDLE = object()


def _next(lines: "queue.Queue[Any]") -> Any:
    """The next line; `END` after the last; another object if there is none yet."""
    try:
        return lines.get(timeout=POLL)
    except queue.Empty:
        return _IDLE


@contextlib.contextmanager
def _started(
    arguments: list[str], context: RunContext
) -> Iterator[tuple["subprocess.Popen[str]", "queue.Queue[Any]"]]:
    """The command under its supervisor, and the lines it prints; both end with the block."""
    process = subprocess.Popen(
        [sys.executable, "-I", supervisor.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(context),
        shell=False,
    )
    lines: queue.Queue[Any] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        yield process, lines
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()  # the supervisor ends the command
        try:
            process.wait(2 * supervisor.GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        reader.join(1.0)
        process.stdout.close()


def _forward(source: Any, lines: Any) -> None:
    """Put the lines of a pipe in a queue; `END` after the last, however it ends."""
    try:
        with contextlib.suppress(ValueError, OSError):
            while line := source.readline(100_000):
                lines.put(line)
    finally:
        lines.put(END)


def environment(context: RunContext) -> dict[str, str]:
    """The environment of the command: its share of threads, and its GPU."""
    threads = str(torch.get_num_threads())
    found = dict(os.environ) | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    found["PYTHONUNBUFFERED"] = "1"
    kind, _, index = context.on.device.partition(":")
    if kind == "cuda" and index:
        visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
        found["CUDA_VISIBLE_DEVICES"] = visible[int(index)] if visible else index
    return found


@contextlib.contextmanager
def _log(out: Path) -> Iterator[Any]:
    """A function that appends lines to the run's output file, up to a limit."""
    left = MOST_OUTPUT
    with (out / "output.txt").open("w", encoding="utf-8") as file:

        def write(line: str) -> None:
            nonlocal left
            file.write(line[: max(left, 0)])
            file.flush()
            left -= len(line)

        yield write


def _failed(code: int, tail: "deque[str]") -> str:
    if code == supervisor.NOT_STARTED:
        return f"the command can't be started{_last(tail)}"
    how = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
    return f"the command {how}{_last(tail)}"


def _last(tail: "deque[str]") -> str:
    """The last line of the output, to be put behind a sentence."""
    return f"; its last line was {shorten(replace_controls(tail[-1]), 200)!r}" if tail else ""
