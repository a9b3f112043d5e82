"""Journals of every kind of job, for the report: rows with the columns that each kind writes.

Those in `journals` were written by small real studies; the others are made here, where a real one
takes minutes.
"""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any, final

import pandas as pd

from tests.report.synthetic import synthetic_runs

HERE = Path(__file__).parent / "journals"
MEASURES = ("energy_distance", "precision", "recall")


@final
@dataclasses.dataclass(frozen=True)
class Kept:
    """What `allometry.study.Runs` promises, from rows of a journal."""

    rows: list[dict[str, Any]]
    about: dict[str, Any]

    def frame(self):
        from allometry.runs.folder import COLUMNS
        from allometry.runs.frame import frame

        return frame([self.rows] if self.rows else [], COLUMNS)

    def curves(self):
        lines = [
            {"key": r["key"], "step": s, "tokens": 64.0 * s, "flops": 1e3 * s, "loss": 3.0 / s}
            for r in self.rows
            for s in (1, 2, 4)
        ]
        return pd.DataFrame(lines, columns=["key", "step", "tokens", "flops", "loss"])

    def samples(self):
        return {r["key"]: r["sample"] for r in self.rows if r.get("sample")}

    def measures(self):
        return list(dict.fromkeys(name for r in self.rows for name in r.get("measures") or ()))


def _row(family, target, shape, N, D, loss, **more):
    base = {"family": family, "target": target, "shape": shape, "rung": 0, "seed": 0, "N": N}
    base |= {"N_embedding": 0, "D": D, "D_unique": D, "C": 6.0 * N * D, "C_6ND": 6.0 * N * D}
    base |= {"loss": loss, "loss_se": 0.005, "test_loss": loss, "test_loss_se": 0.005}
    base |= {"seconds": 1.0, "status": "done", "error": None, "sample": "", "measures": []}
    made = base | more
    made["key"] = f"{family} {target} {shape} {D} {made['seed']}"
    return made


def _measured(loss):
    found = {"measures": list(MEASURES)} | dict.fromkeys(MEASURES, loss / 3)
    return found | {f"{name}_se": 0.01 for name in MEASURES}


def text():
    runs = synthetic_runs(seeds=1, broken=False, per_parameter=(5.0, 20.0))
    rows = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in r.items()}
        | {"error": None, "sample": "a text"}
        | _measured(r["loss"])
        for r in runs.table.to_dict("records")
    ]
    # The largest data of one size are the last to come, as in a study that is still running.
    return Kept(sorted(rows, key=lambda r: (r["D"], r["N"])), runs.about)


def dyck():
    rows = []
    for nesting in (2, 4, 8):
        name = f"brackets of 8 types, {nesting} deep"
        exact = {2: 1.392, 4: 1.55, 8: 1.632}[nesting]
        more = {"nesting": nesting, "closing": 0.9, "closing_se": 0.01, "closing_longer": 0.8}
        more |= {"closing_longer_se": 0.01, "recalled": 0.7, "recalled_se": 0.02}
        more |= {"recalled_longer": 0.6, "recalled_longer_se": 0.02}
        own = more | {"kind": "construction", "layers": 2, "C": None, "C_6ND": None}
        rows.append(
            _row(f"construction, nesting {nesting}", name, "2 layers", 549, 1, exact, **own)
        )
        for kind, layers in itertools.product(("transformer", "lstm", "convolution"), (1, 2, 3)):
            own = more | {"kind": kind, "layers": layers}
            loss = exact + 0.3 / layers - 0.1 * (kind == "convolution") * (layers > 2)
            shape = f"{layers} layers, width 32"
            N, family = 3000 * layers, f"{kind}, nesting {nesting}"
            rows.append(_row(family, name, shape, N, 900_000, loss, **own))
    target = {"name": "brackets of 8 types, 8 deep", "unit": "nats per symbol"}
    return Kept(rows, {"target": target | {"entropy_rate": 1.6309}, "runs": []})


def ring():
    rows = [
        _row(
            *(family, "ring", f"3 layers, width {w}", 2 * w * w, 6000.0 * r, 0.5 / w**0.2),
            **_measured(0.4),
            D_unique=100_000,
        )
        for family in ("GAN", "WGAN")
        for w in (16, 32, 64, 128)
        for r in (1, 2)
    ]
    more = {"data_loss": 0.02, "data_loss_se": 0.01, "C": None, "C_6ND": None} | _measured(0.3)
    rows.insert(3, _row("gaussian", "ring", "full covariance", 5, 50_000, 0.31, **more))
    target = {"name": "ring", "kind": "points", "unit": "sliced Wasserstein distance"}
    target |= {"token": "point", "D_unique": None, "entropy": {"value": -4.29}}
    return Kept(rows, {"target": target, "runs": []})


def domains():
    rows = [
        _row(
            *(name, name, f"{d} layers, width {16 * d}", 1500 * d**2, 5e4 * t, 0.9 / (d + t)),
            nats=1.0,
            nats_se=0.01,
            symbol_entropy=2.5,
            D_unique=3e5,
            floor=0.4 if name == "series" else None,
            seed=s,
        )
        for name in ("text", "digits", "tunes", "series")
        for d in (1, 2, 3)
        for t in (1, 2)
        for s in (0, 1)
    ]
    target = {"name": "domains", "unit": "of the entropy of a symbol", "token": "symbol"}
    return Kept(rows[::3] + rows[1::3], {"target": target | {"D_unique": 2e5}, "runs": []})


def tasks():
    rows = [
        _row(task, "sources", f"{d} layers, width 16", 900 * d**2, 4e3 * t, 1.8 / d**0.1 / t**0.1,
             right=0.4, untrained=0.2, upstream_loss=2.0, right_se=0.01,
             measures=["right", "untrained", "upstream_loss"])
        for task in ("next symbol", "masked", "reversed")
        for d in (1, 2, 3)
        for t in (1, 2)
    ]  # fmt: skip
    return Kept(rows, {"target": {"name": "sources", "unit": "nats per window"}, "runs": []})


def quantiser():
    rows = [
        _row("quantiser", "moons", f"{K} codes", 2 * K, 4096 * t, 1.0 / K / t**0.01, C=1e3 * K * t)
        for K in (4, 8, 16, 32, 64)
        for t in (1, 4)
    ]
    target = {"name": "moons", "kind": "points", "unit": "squared error per dimension"}
    return Kept(rows, {"target": target | {"D_unique": None, "token": "point"}, "runs": []})


def _question(name, rows):
    asked = {"kind": "question", "name": name, "question": f"What of {name}?", "unit": "rank"}
    return Kept(rows, {"target": asked | {"token": "point"}, "runs": []})


NONE = {"C": None, "C_6ND": None, "loss_se": None, "test_loss": None, "test_loss_se": None}


def rank():
    rows = [
        _row(family, "rank", f"{L} of degree {d}", 32 * L * d, 0, None, **NONE, part="rank",
             form=family, degree=d, layers=L, forms=L * d, rank=d**L, exact=True,
             method="2, 3 at 64 points", bound=d**L + 1, epsilon_rank=None, epsilon_lo=None,
             epsilon_hi=None)
        for family in ("network", "narrow")
        for d, L in ((2, 3), (3, 2), (6, 1))
    ]  # fmt: skip
    ends = {"epsilon_rank": 3.0, "epsilon_lo": 2.0, "epsilon_hi": 4.0}
    ends |= {"near_rank": 5.0, "near_lo": 4.0, "near_hi": 7.0}
    for i, stack in enumerate(("T_2", "T_3", "T_e")):
        more = NONE | ends | {"part": "stack", "rung": i}
        rows.insert(2 * i, _row(stack, "rank", "stack", 90, 0, None, **more))
    return _question("rank", rows)


def mixer():
    rows = [
        _row(f"{form} mixer", "mixer", f"{L} layers", 40 * L, 0, None, **NONE, part="mixer",
             form=form, degree=None, layers=L, forms=2 * L,
             rank=None if form == "gelu" else 2 * L, exact=form != "gelu", method="2, 3 at 9",
             bound=None if form == "gelu" else 9 * L, epsilon_rank=3.0, epsilon_lo=2.0,
             epsilon_hi=5.0)
        for form in ("gelu", "linear", "quadratic", "cubic", "attention")
        for L in (1, 2)
    ]  # fmt: skip
    return _question("mixer", rows)


def built():
    more = {"part": "built", "layers": 1, "width": 3, "lengths": [11, 17, 23], "bound": 1,
            "reason": "It depends on every position."}  # fmt: skip
    rows = []
    for i, task in enumerate(("parity", "copy", "sorting")):
        right = [[0.5, 0.5, 0.5], [1.0, 0.2, 0.0], [0.9995, 1.0, 0.9992]][i]
        own = NONE | more | {"accuracy": [1.0, 1.0, 1.0], "reached": None}
        rows.append(_row("built", task, "compiled program", 444 + i, 0, None, **own))
        for k in (1, 2):
            run = more | {"part": "trained", "width": 8 * k, "accuracy": right, "layers": k}
            run |= {"reached": right[0] > 0.999, "bound": None, "reason": None}
            loss = 1 - right[0]
            rows.append(
                _row("trained", task, f"{k} layers", 920 * k, 7000, loss, C=1e6 * k, **run)
            )
    return _question("built-against-trained", rows)


def degree():
    rows = [
        _row(stack, teacher, "2 + 2", 128, 500, 0.2, C=1e6, test_lo=0.1 * i, test_hi=0.15 * i,
             test_loss=0.12 * i, part="learning", seeds=6, rate=0.01, rung=i,
             errors=[0.1 * i, None, 0.14 * i], rank=4 if teacher == "one" else None,
             epsilon_rank=3)
        for teacher in ("one", "two")
        for i, stack in enumerate(("T_2", "T_3", "T_4", "T_e"), start=1)
    ]  # fmt: skip
    for k, stack in ((9, "T_2, six forms"), (9, "T_3, six forms"), (8, "T_2, six forms")):
        more = {"part": "solving", "solved": 0.4, "solved_lo": 0.3, "solved_hi": 0.5, "seeds": 40}
        made = _row(stack, f"Chebyshev {k}", "2, 2, 2", 12, 200, 0.6, k=k, **more)
        rows.insert(k - 7, made | {"C": None, "C_6ND": None})
    return _question("degree", rows)


def _read(path):
    about, *rows = (json.loads(line) for line in path.read_text().splitlines())
    return Kept(rows, about)


KINDS = {path.stem: _read(path) for path in sorted(HERE.glob("*.jsonl"))}
KINDS |= {
    made.__name__: made()
    for made in (text, dyck, ring, domains, tasks, quantiser, rank, mixer, built, degree)
}
