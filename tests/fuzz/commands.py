"""Malformed command lines: valid ones with a spoiled file or an odd value of an option."""

import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from unittest import mock

import typer.main

from allometry import cli
from tests.fuzz import guard, seeds
from tests.fuzz.mutations import mutate
from tests.fuzz.targets import LARK, LINES, ROWS, SCHEMA, STUDY, TARGETS

SECONDS = 30
"""Of work, for one command."""

ODD = [
    *("nan", "inf", "-inf", "-1", "0", "1e5", "1e400", "9" * 30, "-" + "9" * 30, "", " ", "0.5"),
    *("3,5", "7B", "1_0", "0x10", "true", "None", "\x1b[2J", "a\nb", "\u202eabc", "é", "\u00b2"),
    *(
        "[/bold]",
        "/dev/zero",
        "../../x",
        ".",
        "x" * 3000,
        "1e-320",
        "1e308",
        "--",
        "-",
        "a=b",
        "=",
    ),
    *(
        "N",
        "loss",
        "params=1",
        "power",
        "chinchilla",
        "pca:0",
        "pca:999999999",
        "(",
        "(a{999}){999}",
    ),
]
OUTPUTS = {"--report", "--save", "--page", "--picture", "--output", "--compare", "--folder"} | {
    "--out"
}
"""Options that name a file to write, which a user may put wherever they like."""

PLACES = ["", ".", "missing/x.html", "x" * 300, "x\x1b[2J.html", "runs.csv/x.html"]
SKIPPED = {"--install-completion", "--show-completion", "--help", "--watch", "--audit", "--follow"}
FILES: dict[str, Any] = {
    "runs.csv": seeds.csv,
    "runs.jsonl": seeds.jsonl,
    "runs.parquet": seeds.parquet,
    "trainer_state.json": seeds.trainer_state,
    "events.out.tfevents.1.here": seeds.events,
    "real.npy": lambda: seeds.npy("<f8", (20, 3)),
    "samples.npz": seeds.npz,
    "samples.safetensors": seeds.tensors,
    "samples.csv": lambda: b"a,b,c\n1,2,2.5\n3,4,1\n2,2,2\n5,1,2\n",
    "w.safetensors": seeds.weights,
    "g.lark": lambda: LARK,
    "s.json": lambda: SCHEMA,
    "m.txt": lambda: LINES,
    "text.txt": lambda: b"so it goes, and goes on and on\n" * 60,
    "rows.csv": lambda: ROWS,
    "log.csv": seeds.log,
    "recipes.csv": seeds.recipes,
    "law.json": seeds.law,
    "pixels.npy": lambda: seeds.npy("u1", (30, 4, 4)),
    **{f"study/{name}": made for name, made in STUDY.items()},
    **{f"images/{i}.png": lambda: seeds.picture("png") for i in range(12)},
}
RUN = ("--dry-run", "--rungs", "3", "--largest", "6000", "--seeds", "1", "--tokens", "20000")
QUICK = ("--form", "power")
COMMANDS: list[tuple[str, ...]] = [
    ("fit", "runs.csv", *QUICK, "--bootstrap", "0"),
    ("fit", "runs.csv", *QUICK, "--bootstrap", "10", "--json"),
    ("fit", "runs.jsonl", *QUICK, "--bootstrap", "0"),
    ("fit", "runs.parquet", *QUICK, "--bootstrap", "0"),
    ("fit", "trainer_state.json", *QUICK, "--bootstrap", "0"),
    ("fit", "events.out.tfevents.1.here", *QUICK, "--bootstrap", "0"),
    ("fit", "study", *QUICK, "--bootstrap", "0"),
    ("fit", "runs.csv", "--x", "params", "--form", "E + A/params^alpha"),
    ("plan", "runs.csv", "--compute", "1e21", *QUICK),
    ("plan", "law.json", "--compute", "1e21", "--json"),
    ("next", "runs.csv", "--budget", "1e20", "--compute", "1e22", *QUICK),
    ("compare", "recipes.csv", "--by", "recipe", "--at", "1e19"),
    ("watch", "log.csv", "--total", "2000"),
    ("watch", "log.csv", "--total", "2000", "--schedule", "cosine", "--json"),
    ("measure", "real.npy", "samples.npz", "--only", "energy"),
    ("measure", "real.npy", "samples.safetensors", "--only", "energy", "--json"),
    ("measure", "real.npy", "samples.csv", "--only", "energy"),
    ("generate", "w.safetensors", "--n", "3", "--prompt", "a"),
    ("generate", "w.safetensors", "--n", "3", "--prompt", "a", "--lark", "g.lark"),
    ("generate", "w.safetensors", "--n", "3", "--prompt", "a", "--schema", "s.json"),
    ("generate", "w.safetensors", "--n", "3", "--prompt", "a", "--regex", "[a-f]+"),
    ("generate", "w.safetensors", "--n", "3", "--prompt", "a", "--beam", "2", "--json"),
    ("construct", "turing", "m.txt", "0", "--steps", "4"),
    ("construct", "dyck", "([])", "--n", "4", "--depth", "2", "--seconds", "0.01"),
    ("construct", "program", "sort", "ab", "--n", "3", "--seconds", "0.01", "--alphabet", "ab"),
    ("construct", "universal", "mean", "--n", "2", "--delta", "0.5"),
    ("export", "w.safetensors", "--to", "safetensors"),
    ("export", "w.safetensors", "--to", "hf", "--json"),
    ("export", "w.safetensors", "--to", "onnx"),
    ("status", "study"),
    ("status", "study", "--json"),
    ("run", "text.txt", *RUN),
    ("run", "rows.csv", *RUN),
    ("run", "pixels.npy", *RUN),
    ("run", "images", *RUN),
    ("run", "embedded", *RUN, "--json"),
    ("run", "moons", *RUN, "--family", "diffusion"),
    ("report", "study"),
    ("list", "forms"),
    ("schema", "fit"),
]
TARGET = {  # the language of a file, for its mutations
    "runs.csv": "csv", "g.lark": "lark", "m.txt": "machine", "w.safetensors": "weights",
    "runs.jsonl": "jsonl", "s.json": "schema",
}  # fmt: skip


@final
@dataclass(frozen=True)
class Case:
    """A command line and the files it finds."""

    arguments: tuple[str, ...]
    spoiled: tuple[tuple[str, bytes], ...] = ()

    def __str__(self) -> str:
        files = ", ".join(f"{name}={data[:200]!r}" for name, data in self.spoiled)
        return f"allometry {' '.join(map(repr, self.arguments))[:600]} {files}"


def options(command: Sequence[str]) -> list[Any]:
    """The options of a command, from the program itself."""
    found: Any = typer.main.get_command(cli.app)
    for name in command:
        if name not in getattr(found, "commands", {}):
            break
        found = found.commands[name]
    return [p for p in found.params if p.param_type_name == "option" and p.opts[0] not in SKIPPED]


def draw(rng: random.Random) -> Case:
    """A malformed command line."""
    command = list(rng.choice(COMMANDS))
    used = [name for name in command if name in FILES]
    if "study" in command:
        used += [name for name in FILES if name.startswith("study/")]
    if "images" in command:
        used.append("images/3.png")
    if used and rng.random() < 0.6:
        name = rng.choice(used)
        words = TARGETS[TARGET[name]].words if name in TARGET else ()
        return Case(tuple(command), ((name, mutate(FILES[name](), rng, words)),))
    for _ in range(rng.choice((1, 1, 2))):
        known = options(command)
        if known and rng.random() < 0.85:
            option = rng.choice(known)
            name = option.opts[0]
            value = rng.choice(PLACES if name in OUTPUTS else ODD)
            command += [name] if option.is_flag else [f"{name}={value}"]
        else:
            command[rng.randrange(1, len(command))] = rng.choice(ODD)
    return Case(tuple(command))


@contextlib.contextmanager
def folder() -> Any:
    """All valid files, in a folder of their own; made once, copied for each case."""
    with tempfile.TemporaryDirectory(prefix="malformed.") as place:
        for name, made in FILES.items():
            path = Path(place) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made())
        yield Path(place)


def run(case: Case, valid: Path) -> tuple[Any, str]:
    """The exit code, and what is wrong with how the command ended, which should be nothing."""
    here, path = Path.cwd(), list(sys.path)
    with tempfile.TemporaryDirectory(prefix="malformed.") as place:
        shutil.copytree(valid, place, dirs_exist_ok=True)
        for name, data in case.spoiled:
            (Path(place) / name).write_bytes(data)
        os.chdir(place)
        try:
            return _ended(case, place)
        finally:
            os.chdir(here)
            sys.path[:] = path


def _ended(case: Case, place: str) -> tuple[Any, str]:
    # As of a terminal: bytes that no encoding has must not matter.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    code: Any = None
    # A name cannot hold NUL, whatever is typed.
    argv = ["allometry", *(argument.replace("\0", "") for argument in case.arguments)]
    try:
        with (
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
            guard.confined(place),
            guard.bounded(SECONDS),
        ):
            warnings.simplefilter("default")
            cli.main()
    except SystemExit as error:
        code = error.code or 0
    except guard.Touched as error:
        return code, f"touched {error}"
    except BaseException as error:
        return code, f"{type(error).__name__}: {error}"
    said = err.buffer.getvalue().decode("utf-8", "replace")
    return code, _judged(code, said, out.buffer.getvalue().decode("utf-8", "replace"))


def _judged(code: Any, err: str, out: str) -> str:
    lines = err.splitlines()
    odd = {c for c in err + out if ord(c) < 32 and c not in "\n\t"} | ({"\u202e"} & set(err + out))
    if odd:
        return f"printed {odd}"
    if "Traceback" in err or ("Error:" in err and code == 0):
        return f"printed {err[-300:]}"
    if code == 0:
        return ""
    if code != 2:
        return f"ended with {code}: {err[-400:]}"
    fine = len(lines) == 1 and lines[0].startswith("allometry: ") and err.rstrip()[-1] in ".?!"
    return "" if fine else f"ended with 2 and said {err[-500:]!r}"
