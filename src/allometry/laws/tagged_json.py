"""The parts of a law as JSON and back, to the last digit.

Numbers, text, lists and objects of JSON stand for themselves. An object with one of these keys
stands for something else:

| key | meaning |
|---|---|
| `$type` | a dataclass of `TYPES`; its fields stand beside the key |
| `$form` | a form of `FORMS`; its arguments stand beside the key |
| `$array` | an array of this dtype, with `shape`, `data` and, if by columns, `order` |
| `$tuple`, `$set`, `$map` | a tuple, a set, a mapping whose keys are not text |
| `$number` | `inf`, `-inf` or `nan` |
| `$steps` | an expression in postfix order |
| `$same` | the type or form that was completed as number k of the file |

A file names classes by the labels of two tables, so it can't make anything else.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.errors import InputError
from allometry._core.user_files import shorten
from allometry.laws.coupled_forms import Coupled, Kaplan, Steps, Tied
from allometry.laws.data_transfer import Product
from allometry.laws.forms import Additive, Form
from allometry.laws.frontier_form import Frontier
from allometry.laws.law import Law
from allometry.laws.learning_curves import Broken, Shifted, Sigmoid
from allometry.laws.multivariate.expression_forms import ExpressionForm, Parameter
from allometry.laws.multivariate.law import VariableLaw
from allometry.laws.multivariate.law_expressions import Node
from allometry.laws.repeated_data import Repeated


def _dataclasses(*roots: type) -> dict[str, type]:
    """The dataclasses that the fields of some dataclasses may hold, by name."""
    found: dict[str, type] = {}
    waiting: list[Any] = list(roots)
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind is not Node:
            if found.setdefault(kind.__name__, kind) is not kind:
                raise AssertionError(f"two parts of a law are called {kind.__name__}")
            known = [item.type for item in dataclasses.fields(kind)]
            waiting += [each for each in known if each not in found.values()]
    return found


TYPES = _dataclasses(Law, VariableLaw, Parameter)
"""Dataclasses of a law by their labels in files. A label is never reused for something else, and
a class that is renamed keeps its label here."""

_ONE = {"x": lambda form: form.variables[0]}
FORMS: dict[str, tuple[type[Form], dict[str, Callable[[Any], Any]]]] = {
    "Additive": (
        Additive,
        {
            "name": lambda form: form.name,
            "variables": lambda form: form.variables,
            "irreducible": lambda form: form.irreducible,
        },
    ),
    "Broken": (Broken, _ONE | {"breaks": lambda form: form.breaks, "flat": lambda f: f.flat}),
    "Coupled": (Coupled, {}),
    "Kaplan": (Kaplan, {}),
    "Frontier": (Frontier, {"irreducible": lambda form: form.irreducible}),
    "Repeated": (Repeated, {}),
    "Shifted": (Shifted, _ONE),
    "Sigmoid": (Sigmoid, _ONE),
    "Steps": (Steps, {}),
    "Tied": (Tied, {}),
    "Transfer": (Product, {}),
    "Expression": (
        ExpressionForm,
        {
            "name": lambda form: form.name,
            "text": lambda form: form.node,
            "variables": lambda form: form.variables,
            "link": lambda form: form.link,
            "parameters": lambda form: {p.name: p for p in form.parameters},
        },
    ),
}
"""Forms by their labels in files, with the arguments that make each one again."""

EARLIER: dict[str, dict[str, Callable[[dict[str, Any]], Any]]] = {
    # Before predictions beyond the runs were corrected, folds did not record how far they were.
    "Fold": {
        "decline": lambda fold: np.zeros_like(fold["error"]),
        "beyond": lambda fold: np.zeros_like(fold["error"]),
    },
}
"""Values of fields that files of earlier versions lack and that have no default."""

_LABELS = {cls: label for label, cls in TYPES.items()}
_FORM_LABELS = {cls: label for label, (cls, _) in FORMS.items()}
_DTYPES = {"float64": np.float64, "int64": np.int64, "bool": np.bool_}
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(value: Any) -> Any:
    """A law, or a part of one, as values of JSON.

    Raises:
        InputError: A part can't be described by a file, such as a Python function.
    """
    return _Encoder()(value)


def decode(data: Any) -> Any:
    """What `encode` was given.

    Raises:
        InputError: The data do not describe parts of a law.
    """
    try:
        return _Decoder()(data)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"A saved law must be complete; got {shorten(error)}.") from None


@final
class _Encoder:
    """Encodes one law; an object that occurs twice is written once."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, int | np.integer):
            return int(value)
        if isinstance(value, float | np.floating):
            return float(value) if math.isfinite(value) else {"$number": str(float(value))}
        if isinstance(value, ndarray):
            return _array(value)
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, tuple):
            return {"$tuple": [self(item) for item in value]}
        if isinstance(value, frozenset | set):
            return {"$set": sorted(self(item) for item in value)}
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, Node):
            return {"$steps": _postfix(value)}
        return self._object(value)

    def _mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self(item) for key, item in value.items()}
        return {"$map": [[self(key), self(item)] for key, item in value.items()]}

    def _object(self, value: Any) -> dict[str, Any]:
        if id(value) in self.known:
            return {"$same": self.known[id(value)]}
        if type(value) in _LABELS:
            out = {"$type": _LABELS[type(value)]}
            for item in dataclasses.fields(value):
                out[item.name] = self(getattr(value, item.name))
        elif type(value) in _FORM_LABELS:
            label = _FORM_LABELS[type(value)]
            out = {"$form": label}
            for name, argument in FORMS[label][1].items():
                out[name] = self(argument(value))
        else:
            name = getattr(value, "name", type(value).__name__)
            raise InputError(
                f"law.save must be given a form that a file can describe; got the Python object "
                f"{shorten(name)!r}. Write the form as an expression: "
                "fit(..., form='E + A/N^alpha')."
            )
        self.known[id(value)] = len(self.known)
        return out


@final
class _Decoder:
    """Decodes one law."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self.special: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
            "$type": self._type,
            "$form": self._form,
            "$array": _unpack,
            "$tuple": lambda items, _: tuple(self(item) for item in items),
            "$set": lambda items, _: frozenset(self(item) for item in items),
            "$map": lambda pairs, _: {self(key): self(item) for key, item in pairs},
            "$number": lambda text, _: _NUMBERS[text],
            "$steps": lambda steps, _: _tree(steps),
            "$same": lambda place, _: self.known[place],
        }

    def __call__(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self(item) for item in data]
        if not isinstance(data, dict):
            return data
        key = next((key for key in data if key.startswith("$")), None)
        if key is None:
            return {name: self(item) for name, item in data.items()}
        if key not in self.special:
            raise InputError(f"A saved law must use known keys; got {shorten(key)!r}.")
        return self.special[key](data[key], {k: v for k, v in data.items() if k != key})

    def _type(self, label: str, data: dict[str, Any]) -> Any:
        if label not in TYPES:
            raise InputError(
                f"A saved law must have known parts; got {shorten(label)!r}. A newer version of "
                "allometry may have written it: upgrade allometry."
            )
        cls = TYPES[label]
        wanted = {item.name: item for item in dataclasses.fields(cls)}
        odd = [name for name in data if name not in wanted]
        if odd:
            raise InputError(
                f"{label} in a saved law must have known fields; got {shorten(odd[0])!r}. A newer "
                "version of allometry may have written it: upgrade allometry."
            )
        values = {name: self(item) for name, item in data.items()}
        for name, made in EARLIER.get(label, {}).items():
            if name in wanted and name not in values:
                values[name] = made(values)
        for name, value in values.items():
            if not _fits(value, wanted[name].type):
                raise InputError(
                    f"{label}.{name} in a saved law must have its type; got "
                    f"{shorten(repr(value), 40)}."
                )
        return self._keep(cls(**values))  # a missing field without a default is a TypeError

    def _form(self, label: str, data: dict[str, Any]) -> Form:
        if label not in FORMS:
            raise InputError(f"A saved law must have a known form; got {shorten(label)!r}.")
        cls, arguments = FORMS[label]
        if set(data) != set(arguments):
            raise InputError(
                f"The form {label} in a saved law must have {', '.join(arguments) or 'nothing'}; "
                f"got {shorten(', '.join(data)) or 'nothing'}."
            )
        return self._keep(cls(**{name: self(item) for name, item in data.items()}))

    def _keep(self, value: Any) -> Any:
        self.known.append(value)
        return value


def _array(value: ndarray) -> dict[str, Any]:
    """An array with its memory order, on which the last digit of a matrix product may depend."""
    dtype = {"f": "float64", "i": "int64", "b": "bool"}[value.dtype.kind]
    by_columns = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
    order = "F" if by_columns else "C"
    data = value.astype(_DTYPES[dtype]).ravel(order=order).tolist()
    if dtype == "float64" and not np.isfinite(value).all():
        data = [v if math.isfinite(v) else str(v) for v in data]
    out: dict[str, Any] = {"$array": dtype, "shape": list(value.shape)}
    return out | ({"order": "F"} if by_columns else {}) | {"data": data}


def _unpack(dtype: str, rest: dict[str, Any]) -> ndarray:
    data = [_NUMBERS[v] if isinstance(v, str) else v for v in rest["data"]]
    if any(isinstance(v, dict | list) or v is None for v in data):
        raise InputError("An array in a saved law must hold numbers; got something else.")
    return np.array(data, dtype=_DTYPES[dtype]).reshape(
        rest["shape"], order="F" if rest.get("order") == "F" else "C"
    )


def _postfix(node: Node) -> list[list[Any]]:
    """An expression as steps, operands first: kind, number of operands, value, name."""
    steps = [step for part in node.parts for step in _postfix(part)]
    return [*steps, [node.kind, len(node.parts), node.value, node.name]]


def _tree(steps: list[Any]) -> Node:
    stack: list[Node] = []
    for kind, count, value, name in steps:
        parts = tuple(stack[len(stack) - count :])
        if len(parts) != count or not isinstance(kind, str) or not isinstance(name, str):
            raise InputError("An expression in a saved law must be complete; got a part of one.")
        del stack[len(stack) - count :]
        stack.append(Node(kind, parts, float(value), name))
    if len(stack) != 1:
        raise InputError(f"A saved expression must be one; got {len(stack)}.")
    return stack[0]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value has the type of a field; text annotations are not checked."""
    if kind is Any or isinstance(kind, str):
        return True
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in inner)
    if origin is tuple and inner:
        same = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is ... else inner
        return (
            isinstance(value, tuple) and len(value) == len(same) and all(map(_fits, value, same))
        )
    if origin is typing.Literal:
        return value in inner
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items()
        )
    if origin in (list, frozenset):
        return isinstance(value, origin) and all(_fits(v, inner[0]) for v in value)
    if origin is not None:
        return isinstance(value, origin)
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, type(None) if kind is None else kind)
