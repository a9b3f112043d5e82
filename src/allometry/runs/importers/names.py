"""Which column holds which quantity: known names, nested names, units in brackets."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from allometry._core.errors import InputError
from allometry._core.number_parsing import number
from allometry.runs.importers import loss_names

_UNITS = {
    "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9,
    "t": 1e12, "trillion": 1e12, "pfdays": 8.64e19, "pflopsdays": 8.64e19, "pflopdays": 8.64e19,
    "gflops": 1e9, "tflops": 1e12, "pflops": 1e15, "eflops": 1e18, "zflops": 1e21,
}  # fmt: skip

NAMES: dict[str, tuple[str, ...]] = {
    "N": (
        "n", "params", "parameters", "nparams", "nparameters", "numparams", "numparameters",
        "paramcount", "parametercount", "modelsize", "modelparams", "totalparams",
        "totalparameters", "totalparametercount", "numtrainableparams", "trainableparams",
        "nonembeddingparams", "nnoemb", "size",
    ),
    "D": (
        "d", "tokens", "ntokens", "numtokens", "traintokens", "trainingtokens", "totaltokens",
        "tokensseen", "ntokensseen", "numinputtokensseen", "throughputtotaltokens",
        "traintokensseen", "consumedtokens", "consumedtraintokens", "tokensconsumed", "timetoken",
        "numtokensseen", "totaltokensseen", "trainnumtokens",
        "seenexamples", "examples", "samples", "dataset", "datasetsize", "data", "trainsize",
    ),
    "C": (
        "c", "flops", "flop", "compute", "totalflops", "trainingflops", "trainingflop",
        "trainflops", "totalflos", "budget", "c6nd",
    ),
    "loss": loss_names.KNOWN,
    "loss_se": ("lossse", "lossstderr", "losssd", "lossstd"),
    "seed": ("seed", "torchseed", "randomseed"),
    "family": ("family", "architecture", "arch"),
    "status": ("status", "state"),
    "D_unique": ("dunique", "uniquetokens", "uniquedata"),
}  # fmt: skip
"""Column names of each quantity, letters and digits only, likeliest first."""

RUN = ("run", "runid", "runname", "wandbid", "wandbname", "experiment", "experimentname", "trial",
       "job", "jobid", "name", "id")  # fmt: skip
"""Names of a column that identifies the run."""

STEP = ("step", "steps", "globalstep", "trainerglobalstep", "trainglobalstep", "iteration",
        "iterations", "iter", "iternum", "timebatch", "update", "epoch")  # fmt: skip
"""Names of a column that counts updates along a training."""

_WORDS = {
    "N": r"(?:^|[^a-z])n?_?(?:params?|parameters?|param_count|parameter_count)(?:$|[^a-z])",
    "D": r"(?:^|[^a-z])tokens(?:_seen|_trained|_consumed)?$",
}
"""Patterns of nested or composite names, tried last and only if one column matches."""

_NOT_SIZE = re.compile(
    r"embed|emb\b|lr|norm|grad|optim|group|per_|_per|vocab|frozen|non_?trainable"
)


def plain(name: str) -> tuple[str, float]:
    """A column's name reduced to letters and digits, and the factor of its unit in brackets."""
    factor = 1.0
    unit = re.search(r"[(\[]([^()\[\]]+)[)\]]", name)
    if unit:
        key = re.sub(r"[^a-z]", "", unit.group(1).lower())
        if key in _UNITS:
            factor = _UNITS[key]
            name = name[: unit.start()] + name[unit.end() :]
    return re.sub(r"[^a-z0-9]", "", name.lower()), factor


def recognise(
    names: Sequence[str],
    chosen: Mapping[str, str | None],
    cells: Mapping[str, Sequence[Any]] | None = None,
    *,
    log: bool = False,
) -> dict[str, tuple[str, float]]:
    """The column of each quantity, with the factor of its unit.

    Args:
        names: All columns.
        chosen: Columns that the user named; `None` to recognise them.
        cells: Their cells; nested names are used only if they hold numbers.
        log: The columns are metrics of a training, where `loss` is the training loss.
    """
    found: dict[str, tuple[str, float]] = {}
    taken: set[str] = set()
    for quantity, column in chosen.items():
        if column is None:
            continue
        if column not in names:
            raise InputError(
                f"--{quantity.lower()} must name a column; got {column!r}. "
                f"There are {', '.join(map(str, names[:12]))}."
            )
        found[quantity] = (column, plain(column)[1])
        taken.add(column)
    error = f"{chosen.get('loss')}_se"
    if error in names and "loss_se" not in found:
        # A measure named as the loss has its own standard error.
        found["loss_se"] = (error, 1.0)
        taken.add(error)
    simple = {name: plain(name) for name in names}
    for quantity, known in NAMES.items():
        if quantity in found:
            continue
        free = {name: short for name, short in simple.items() if name not in taken}
        if quantity == "loss":
            best = loss_names.best(list(free), log=log)
        elif quantity in free:
            best = quantity
        else:
            best = _nearest(free, known) or _nested(free, quantity, known, cells)
        if best is not None:
            found[quantity] = (best, 1.0 if best == quantity else simple[best][1])
            taken.add(best)
    return found


def column_named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with the likeliest of the known names."""
    return _nearest({name: plain(name) for name in names}, known)


def numeric(values: Sequence[Any]) -> bool:
    """Whether some of the first cells are numbers and none is another text."""
    some = False
    for value in values[:200]:
        if value is None or str(value).strip() in ("", "nan", "NaN", "None"):
            continue
        if not math.isfinite(number(value)):
            return False
        some = True
    return some


def _nearest(simple: Mapping[str, tuple[str, float]], known: Sequence[str]) -> str | None:
    """The column with the likeliest exact name."""
    for name in known:
        for column, (short, _) in simple.items():
            if short == name:
                return column
    return None


def _nested(
    simple: Mapping[str, tuple[str, float]],
    quantity: str,
    known: Sequence[str],
    cells: Mapping[str, Sequence[Any]] | None,
) -> str | None:
    """The column whose last parts (`model.n_params`, `config/tokens`) are a known name."""
    if quantity not in ("N", "D", "C", "seed", "status"):
        return None
    # Short names such as `size` or `data` mean other things inside a configuration.
    known = [name for name in known if len(name) > 4 and name not in ("dataset", "samples")]
    candidates = [c for c in simple if cells is None or quantity == "status" or numeric(cells[c])]
    for depth in (1, 2):
        ends = {c: plain(".".join(re.split(r"[./]", c)[-depth:])) for c in candidates}
        inner = {c: short for c, short in ends.items() if re.search(r"[./]", c)}
        best = _nearest(inner, known)
        if best is not None:
            return best
    if quantity in _WORDS:
        pattern = re.compile(_WORDS[quantity])
        fitting = [
            c for c in candidates if len(c) < 200
            and pattern.search(c.lower()) and not _NOT_SIZE.search(c.lower())
        ]  # fmt: skip
        return fitting[0] if len(fitting) == 1 else None
    return None
