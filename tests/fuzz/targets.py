"""Every reader of what a user hands in, as something that takes bytes."""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

import allometry as al
from allometry import decode
from allometry._core.errors import InputError
from allometry._core.user_files import parse_json, read_text
from allometry.cli.watch_command import read_log
from allometry.construct import program
from allometry.construct.programs import library
from allometry.construct.programs.expressions import SequenceOperator, indices, tokens
from allometry.construct.programs.operators import aggregate, select, selector_width
from allometry.measure import sample_inputs
from allometry.runs.importers import load
from allometry.runs.schedule_file import read_schedule
from allometry.study import Runs
from allometry.study import load as load_model
from allometry.study.text_generation import Generation
from allometry.targets import (
    Grammar,
    Images,
    NumericTable,
    Text,
    TuringMachine,
    vocabulary_from_dict,
)
from tests.fuzz import seeds


@final
@dataclass(frozen=True)
class Target:
    """A reader under test.

    Args:
        read: Reads the file; what it gives back is not looked at.
        seeds: Valid inputs.
        name: What the input's file is called.
        beside: Other files of its folder.
        words: Pieces of its language, for mutations.
    """

    read: Callable[[Path], Any]
    seeds: Sequence[Callable[[], bytes]]
    name: str
    beside: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    words: Sequence[bytes] = ()

    def write(self, folder: Path, data: bytes) -> Path:
        """The input in its place, and what belongs beside it."""
        for name, made in self.beside.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(made())
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


def imported(path: Path) -> None:
    made = load(path)
    made.words()
    json.dumps(made.to_dict())


def fitted(path: Path) -> None:
    made = load(path)
    law = al.laws.fit(made.columns, "power", bootstrap=0, starts=4)
    json.dumps(law.to_dict(), allow_nan=False)


def study(path: Path) -> None:
    runs = Runs(path.parent)
    runs.frame()
    runs.state()
    runs.left()
    runs.samples()
    runs.measures()
    runs.curves()
    json.dumps(runs.about, default=str)
    read_schedule(path.parent)


def generated(path: Path) -> None:
    saved = load_model(path)
    going = Generation(saved, "a", decode.plain, n=3, seed=0)
    list(going)
    going.describe()


def machine(path: Path) -> None:
    made = TuringMachine.from_file(path)
    made.run("", steps=50)
    made.run(made.symbols[-1:] * 3, steps=50)
    TuringMachine.from_json(made.to_json())


def grammar(path: Path) -> None:
    made = Grammar.from_file(path)
    assert 0 < made.termination.value <= 1
    assert made.mean_length.value >= 0
    made.next_symbol("")
    made.accepts([0])


def built(path: Path) -> None:
    """A program of the library on an input: name, alphabet and input, one a line."""
    name, alphabet, word, *_ = [*read_text(path).split("\n"), "", "", ""]
    made = program(library.named(name), alphabet=alphabet[:3], n=3)
    made(word[:6])


def expression(path: Path) -> None:
    """A random program: each byte adds an operation."""
    stack: list[SequenceOperator] = [tokens, indices]
    numbers = (0, 1, -1, 0.5, 1e308, float("nan"), float("inf"), 10**30, "a", None, True)
    for byte in path.read_bytes()[:8]:
        a, b, value = stack[-1], stack[byte % len(stack)], numbers[byte % len(numbers)]
        made: list[Callable[[], SequenceOperator]] = [
            lambda a=a, b=b: a + b,
            lambda a=a, v=value: a + v,
            lambda a=a, v=value: a * v,
            lambda a=a, v=value: a == v,
            lambda a=a, v=value: a < v,
            lambda a=a, v=value: a // v,
            lambda a=a, b=b: a & b,
            lambda a=a, b=b: aggregate(select(a, b), b),
            lambda a=a, b=b: selector_width(select(a, b)),
            lambda a=a, b=b, v=value: aggregate(select(a, v), b, default=v),
        ]
        stack.append(made[byte % len(made)]())
    program(stack[-1], alphabet="ab", n=2)("ab")


def formula(path: Path) -> None:
    """A law of the user's own that gives odd values."""
    data = path.read_bytes()
    odd = [0.0, -1.0, float("nan"), float("inf"), 1e308, -1e-300]
    kind = data[0] % 8 if data else 0
    level = odd[data[1] % len(odd)] if len(data) > 1 else 1.0

    def mine(N: Any, E: float = 1.0, k: float = 1.0) -> Any:
        return [
            E + k / N, level + 0 * N, N * level, "text", None, [1, 2], np.zeros(3), E + level / N
        ][kind]  # fmt: skip

    N = np.array(seeds.SIZES)
    al.laws.fit({"N": N, "loss": np.array(seeds.LOSSES)}, mine, bootstrap=0, starts=3)


LETTERS = [bytes([i]) for i in range(256)]


def constrained(
    make: Callable[[Any, list[bytes]], Any], parse: bool = False
) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        text = read_text(path)
        made = make(parse_json(text, "schema") if parse else text, LETTERS)
        state = made.start()
        for _ in range(6):
            allowed = made.allowed(state).nonzero()
            if not len(allowed):
                break
            state = made.advance(state, int(allowed[0]))
        made.complete(state)

    return read


def images(path: Path) -> None:
    Images.folder(str(path.parent), size=4, splits=(0.5, 0.25, 0.25))


def array(path: Path) -> None:
    sample_inputs.tensor(sample_inputs.load(path), "x")


def pixels(path: Path) -> None:
    Images.array(str(path)).describe()


def text(path: Path) -> None:
    for kind in ("characters", "bytes", "words", "bpe"):
        try:
            made = Text(path, vocabulary=kind)
            made.vocabulary.decode(made.train[:50])
            made.describe()
        except InputError:
            if kind == "bytes":
                raise


def vocabulary(path: Path) -> None:
    made = vocabulary_from_dict(parse_json(read_text(path), "vocabulary"))
    made.decode(made.encode("so it goes \ud800\x00é"))
    made.token_bytes()
    made.to_dict()


def _is(data: bytes) -> Callable[[], bytes]:
    return lambda: data


STUDY = {
    "study.json": seeds.study,
    "journal.jsonl": seeds.journal,
    "schedule.json": seeds.schedule,
}
LINES = b"a 0 1 R b\na * * L a ; comment\nb _ 1 N done\n"
MACHINE = b'{"start": "a", "blank": "_", "rules": {"a": {"_": ["1", "R", "b"]}}}'
GRAMMAR = b"S -> '(' S ')' S [0.4] | [0.6]\n# more\nT -> 'a' | S T 'b'\n"
LARK = b'start: "a" b+ | NAME\nb: "b" | "c"\nNAME: /[a-z]{1,3}/\n'
SCHEMA = b'{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [1, "x"]}}}'
ROWS = b"x,y,name\n" + b"".join(b"%d,%d.5,n\n" % (i, i * i % 7) for i in range(30))
COMMAS = ROWS.replace(b",", b";").replace(b".", b",")
MARKED = b'{"kind": "marked", "base": {"kind": "bytes"}, "names": ["a"]}'
PNG = functools.partial(seeds.picture, "png")
PICTURES = [functools.partial(seeds.picture, kind) for kind in ("png", "jpeg", "bmp", "gif")]
PICTURES += [functools.partial(seeds.picture, kind) for kind in ("tiff", "webp")]

TABLES = {
    "csv": Target(
        imported,
        [
            seeds.csv,
            lambda: seeds.csv(";", ","),
            lambda: seeds.csv("\t"),
            _is(b"sep=;\nN;loss\n1;2,5\n3;2\n"),
        ],
        "runs.csv",
        words=[b"loss", b"N", b",", b";", b"\t", b'"', b"1,300,000", b"failed"],
    ),
    "fit": Target(fitted, [seeds.csv], "runs.csv", words=[b"loss", b"1,300,000", b" failed"]),
    "jsonl": Target(imported, [seeds.jsonl], "runs.jsonl", words=[b"{", b"}", b'"loss":', b"NaN"]),
    "parquet": Target(imported, [seeds.parquet], "runs.parquet"),
    "trainer_state": Target(imported, [seeds.trainer_state], "trainer_state.json"),
    "tensorboard": Target(imported, [seeds.events], "events.out.tfevents.1.here"),
    "mlflow": Target(
        lambda path: imported(path.parents[3]),
        [_is(b"1 2.5 1\n2 2.25 2\n")],
        "0/run/metrics/loss",
        {"0/run/params/params": _is(b"1000000")},
    ),
    "histories": Target(
        lambda path: imported(path.parent),
        [_is(b"_step,loss,params\n1,3.5,1e6\n2,3.25,1e6\n")],
        "190M.csv",
        {"370M.csv": _is(b"_step,loss,params\n1,3.5,2e6\n2,3.1,2e6\n")},
    ),
    "rows": Target(array, [_is(b"a,b\n1,2.5\n3,4\n"), _is(b"1;2,5\n3;4,5\n")], "x.csv"),
    "table": Target(lambda path: NumericTable(str(path)), [_is(ROWS), _is(COMMAS)], "x.csv"),
}
FOLDERS = {
    "journal": Target(study, [seeds.journal], "journal.jsonl", STUDY),
    "study": Target(study, [seeds.study], "study.json", STUDY),
    "schedule": Target(study, [seeds.schedule], "schedule.json", STUDY),
}
LANGUAGES = {
    "machine": Target(
        machine, [_is(b"1RB1LB_1LA1RZ"), _is(LINES), _is(MACHINE)], "m.txt", words=[b"*", b"---"]
    ),
    "grammar": Target(
        grammar, [_is(GRAMMAR)], "g.txt", words=[b"->", b"|", b"[0.5]", b"S", b"'a'"]
    ),
    "program": Target(
        built,
        [_is(b"sort\nabc\ncab"), _is(b"reverse\nab\nab"), _is(b"addition\n01+\n1+1")],
        "p.txt",
        words=[name.encode() for name in library.NAMED],
    ),
    "expression": Target(expression, [_is(b"\x03"), _is(b"\x03\x08")], "e.bin"),
    "formula": Target(formula, [_is(b"\x00\x00")], "f.bin"),
    "lark": Target(constrained(decode.lark), [_is(LARK)], "g.lark", words=[b"start", b"%import"]),
    "regex": Target(constrained(decode.regex), [_is(rb"(a|b)*c{2,3}[^d-f]\w+")], "r.txt"),
    "schema": Target(
        constrained(decode.json_schema, True), [_is(SCHEMA)], "s.json", words=[b'"$ref"']
    ),
    "text": Target(text, [_is("so it goes, café\n".encode() * 30)], "x.txt"),
    "vocabulary": Target(
        vocabulary,
        [_is(b'{"kind": "characters", "characters": "so it"}'), seeds.tokenizer, _is(MARKED)],
        "v.json",
    ),
}
ARRAYS = {
    "weights": Target(
        generated, [seeds.weights], "w.safetensors", words=[b"allometry.", b"F64", b"vocabulary"]
    ),
    "image": Target(images, PICTURES, "a.png", dict.fromkeys(("b.png", "c.png", "d.png"), PNG)),
    "npy": Target(array, [seeds.npy, lambda: seeds.npy(">i4", (6, 3))], "x.npy"),
    "pixels": Target(pixels, [lambda: seeds.npy("u1", (10, 4, 4))], "x.npy"),
    "npz": Target(array, [seeds.npz], "x.npz"),
    "safetensors": Target(array, [seeds.tensors], "x.safetensors"),
}


def formula_of_columns(path: Path) -> None:
    rows = path.parent / "runs.csv"
    made = load(rows, n_from=path.read_text(encoding="utf-8", errors="replace"))
    json.dumps(made.to_dict())


def law_expression(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    N = [1e6, 4e6, 1.6e7, 6.4e7]
    law = al.laws.fit({"N": N, "loss": [4.0, 3.5, 3.1, 2.8]}, text, variables=["N"], bootstrap=0)
    law.predict(N=1e9)


def watched(path: Path) -> None:
    steps, losses, _ = read_log(path, loss=None, step=None, metric=None, run=None)
    al.laws.watch(steps, losses, 2000)


def sample(name: str) -> Callable[[], bytes]:
    return (Path(__file__).parents[1] / "data" / "logs" / name).read_bytes


WANDB = "wandb/wandb/offline-run-20261118_071113-89vt59hk/run-89vt59hk.wandb"
LIGHTNING = "lightning/lightning_logs/version_0/"
PRINTED = b"number of parameters: 0.80M\ntokens per iteration will be: 16,384\n" + b"".join(
    b"step %d: train loss %.4f, val loss %.4f\n" % (i * 100, 4 - i / 9, 4.1 - i / 9)
    for i in range(9)
)
LOGS = {
    "wandb": Target(imported, [sample(WANDB)], "run-89vt59hk.wandb"),
    "excel": Target(imported, [sample("excel/runs.xlsx")], "runs.xlsx"),
    "mlflow_database": Target(imported, [sample("mlflow_sqlite/mlflow.db")], "mlflow.db"),
    "trackio": Target(imported, [sample("trackio/ladder.db")], "ladder.db"),
    "keras": Target(
        lambda path: imported(path.parent),
        [sample("keras/w4-e8.json")],
        "w4-e8.json",
        {"runs.yaml": sample("keras/runs.yaml")},
    ),
    "settings": Target(
        lambda path: load(path.parent, config=path),
        [sample("keras/runs.yaml")],
        "runs.yaml",
        {"w4-e8.json": sample("keras/w4-e8.json")},
    ),
    "lightning": Target(
        lambda path: imported(path.parent),
        [sample(LIGHTNING + "metrics.csv")],
        "metrics.csv",
        {"hparams.yaml": sample(LIGHTNING + "hparams.yaml")},
    ),
    "printed": Target(imported, [_is(PRINTED)], "train.log", words=[b"step 3:", b"val loss nan"]),
    "config": Target(
        lambda path: imported(path.parent),
        [sample("huggingface/w8-s20/checkpoint-20/config.json")],
        "config.json",
        {"trainer_state.json": sample("huggingface/w8-s20/checkpoint-20/trainer_state.json")},
    ),
    "columns": Target(
        formula_of_columns,
        [_is(b"12*params^2"), _is(b"(params+1)/2")],
        "e.txt",
        {"runs.csv": seeds.csv},
        words=[b"params", b"loss", b"(", b")", b"^", b"/0"],
    ),
    "aim": Target(imported, [sample("aim/metrics.csv")], "metrics.csv", words=[b",nan", b"\n"]),
    "law_file": Target(al.laws.load, [seeds.law], "law.json"),
    "watched": Target(
        watched,
        [seeds.log],
        "log.csv",
        words=[b"step", b"loss", b"\n100,", b",nan", b"1e308"],
    ),
    "law": Target(
        law_expression,
        [_is(b"E + A/N^alpha"), _is(b"exp(a - b*log(N))")],
        "law.txt",
        words=[b"E", b"A", b"N", b"^", b"(", b")", b"log", b"/0", b"alpha"],
    ),
}
TARGETS: dict[str, Target] = TABLES | FOLDERS | LANGUAGES | ARRAYS | LOGS
"""By name; a folder of `corpus` and a part of `make fuzz` each."""
