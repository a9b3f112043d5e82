"""What was asked for, written down so that it can be hashed, compared and done again."""

import copy
import functools
import hashlib
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, final

from allometry._core.errors import InputError
from allometry._core.registry import lookup, name_of, resolve

LARGEST = {"density": 4096}
"""Largest whole number that a file may pass to what it names, by kind: a file of a few bytes must
not ask for more memory than there is. Models are bounded by the tensors beside them instead."""

DEEPEST = 16
"""Levels of lists, mappings and inner specs in what a file asks for."""

Made = TypeVar("Made", bound=Callable[..., Any])


@final
class Spec:
    """A callable and the arguments it will be called with.

    Arguments are bound to the signature at once, so a typo fails where it is written, and the
    defaults are filled in, so that a call that spells a default out is the same call. `key` is a
    hash of the function's registered name (`module:qualname` where it has none) and the sorted
    arguments: the resume key, the cache key, the row id. Where a file lies is no part of it if its
    content is (see `identified_by_content`).

    Args:
        function: A class or function that can be imported by name.
        **arguments: Plain values (numbers, strings, booleans, `None`, lists, tuples, mappings) or
            other specs.

    Example:
        >>> from allometry import Spec
        >>> from allometry._core.estimate import Estimate
        >>> Spec(Estimate, value=1.0) == Spec(Estimate, value=1.0, level=0.95)
        True
        >>> Spec(Estimate, value=1.0, sse=2.0)
        Traceback (most recent call last):
        allometry._core.errors.InputError: Estimate got an unexpected keyword argument 'sse'. ...
    """

    def __init__(self, function: Callable[..., Any], /, **arguments: Any) -> None:
        signature = inspect.signature(function)
        try:
            bound = signature.bind(**arguments)
        except TypeError as error:
            takes = ", ".join(signature.parameters)
            raise InputError(f"{function.__qualname__} {error}. It takes: {takes}.") from None
        if "<" in function.__qualname__:
            raise InputError(
                f"Spec.function must be importable by name; got {function.__qualname__}. "
                "Move it to the top level of a module."
            )
        bound.apply_defaults()
        self.name = name_of(function)
        self.arguments: dict[str, Any] = dict(bound.arguments)
        self._located: tuple[tuple[str, ...], tuple[str, ...]]
        self._located = getattr(function, "_located", ((), ()))
        self._canonical = _canonical(self.name, _plain(self.arguments, self.name))
        self._key: str | None = None
        self._identity: str | None = None

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that name this request."""
        return self.identity if self._key is None else self._key

    @property
    def identity(self) -> str:
        """The key by content, whatever name a folder knows this request by."""
        if self._identity is None:
            self._identity = _hashed(_canonical(self.name, self._by_content()["arguments"]))
        return self._identity

    def _by_content(self) -> dict[str, Any]:
        """As `to_dict`, without the paths of files that are identified by content."""
        places, _ = self._located
        gone = places if self.arguments.get("fingerprint") is not None else ()
        kept = {k: v for k, v in self.arguments.items() if k not in gone}
        return {"spec": self.name, "arguments": _plain(kept, self.name, Spec._by_content)}

    def former(self, places: Mapping[str, Any] | None = None) -> str:
        """The key that earlier versions had for this request, with the places of files in it.

        Args:
            places: Where the files lay then, by argument; where they lie now if not given.
        """

        def then(spec: "Spec") -> dict[str, Any]:
            names, since = spec._located
            moved = {k: v for k, v in (places or {}).items() if k in names}
            kept = {k: v for k, v in (spec.arguments | moved).items() if k not in since}
            return {"spec": spec.name, "arguments": _plain(kept, spec.name, then)}

        return _hashed(_canonical(self.name, then(self)["arguments"]))

    def under(self, key: str) -> "Spec":
        """The same request, known by another key."""
        made = copy.copy(self)
        made._key = key
        return made

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready picture of the request; `Spec.from_dict` reads it back."""
        name, arguments = json.loads(self._canonical)
        return {"spec": name, "arguments": arguments}

    @staticmethod
    def from_dict(
        data: Any, kind: Literal["model", "density"] = "model", *, trusted: bool = False
    ) -> "Spec":
        """The spec that `to_dict` wrote.

        Only registered names are looked up, and arguments are checked against the signature, so
        that a file can ask for nothing but what it should hold.

        Args:
            data: As `to_dict` gives it.
            kind: What the file should name; see `allometry.register`. Inner specs must be of the
                same kind.
            trusted: Import any name. Only for what this program itself wrote in this session (the
                orders that a driver sends to its workers), never for what a file says.
        """
        if trusted:
            arguments = {k: _revive(v) for k, v in data["arguments"].items()}
            return Spec(resolve(str(data["spec"])), **arguments)
        return _from_file(data, kind, 0)

    def __call__(self, lent: Mapping["Spec", Any] | None = None) -> Any:
        """Do what was asked. Inner specs (a run's target) are made once and shared.

        Args:
            lent: What some inner specs would make, where somebody has made it already.
        """

        def make(inner: "Spec") -> Any:
            if not lent:
                return _shared(inner)
            return lent[inner] if inner in lent else inner(lent)

        made = {k: make(v) if isinstance(v, Spec) else v for k, v in self.arguments.items()}
        return resolve(self.name)(**made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._canonical == other._canonical

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        return f"Spec({self.name}, {inside})"


@functools.lru_cache(maxsize=4)
def _shared(spec: Spec) -> Any:
    """What an inner spec makes: a text is read once, not for every run on it."""
    return spec()


def identified_by_content(*places: str, since: tuple[str, ...] = ()) -> Callable[[Made], Made]:
    """Say that arguments tell where files lie: they are no part of a spec's key.

    The argument `fingerprint` tells their content in their place; without it they stay in the key.

    Args:
        *places: The arguments.
        since: Arguments that keys did not have while places were part of them.
    """

    def mark(function: Made) -> Made:
        setattr(function, "_located", (places, since))  # noqa: B010 - of any callable
        return function

    return mark


def _canonical(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True, ensure_ascii=True)


def _hashed(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _plain(value: Any, where: str, inner: "Callable[[Spec], Any] | None" = None) -> Any:
    """`value` as JSON with one spelling for each meaning (1 and 1.0 are one number).

    Args:
        value: To be written.
        where: Its name, for the error.
        inner: What is written of a spec inside; `to_dict` if not given.
    """
    if isinstance(value, Spec):
        return value.to_dict() if inner is None else inner(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where} must be finite to be hashed; got {value}.")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{where}[{k!r}]", inner) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, where, inner) for v in value]
    raise InputError(
        f"{where} must be made of plain values (numbers, strings, lists, specs); "
        f"got {type(value).__name__}."
    )


def _revive(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"spec", "arguments"}:
        return Spec.from_dict(value, trusted=True)
    if isinstance(value, dict):
        return {k: _revive(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_revive(v) for v in value]
    return value


def _from_file(data: Any, kind: str, depth: int) -> Spec:
    """A spec that a file asks for, refused unless it is a registered `kind` called properly."""
    if not isinstance(data, dict) or set(data) != {"spec", "arguments"}:
        raise InputError(
            f"A {kind} in a file must have the keys spec and arguments; got {_short(data)}."
        )
    function = lookup(data["spec"], kind)
    arguments = data["arguments"]
    if not isinstance(arguments, dict):
        raise InputError(f"{data['spec']}.arguments must be a mapping; got {_short(arguments)}.")
    parameters = inspect.signature(function).parameters
    checked: dict[str, Any] = {}
    for name, value in arguments.items():
        where = f"{function.__qualname__}.{name}"
        checked[name] = _plain_from_file(value, kind, where, depth + 1)
        if name in parameters and not _fits(checked[name], parameters[name].annotation):
            wanted = inspect.formatannotation(parameters[name].annotation)
            raise InputError(f"{where} must be of type {wanted}; got {_short(value)}.")
    return Spec(function, **checked)


def _plain_from_file(value: Any, kind: str, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise InputError(f"{where} must be nested at most {DEEPEST} levels deep; got more.")
    if isinstance(value, dict):
        if "spec" in value:
            return _from_file(value, kind, depth)
        return {k: _plain_from_file(v, kind, where, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain_from_file(v, kind, where, depth + 1) for v in value]
    most = LARGEST.get(kind, 2**53)
    if isinstance(value, int) and abs(value) > most:
        raise InputError(f"{where} must be at most {most}; got {_short(value)}.")
    return value


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a plain value may be passed where `annotation` stands; any spec may."""
    origin = typing.get_origin(annotation)
    inside = typing.get_args(annotation)
    if annotation in (Any, inspect.Parameter.empty) or isinstance(value, Spec):
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inside)
    if origin is Literal:
        return value in inside
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        whole = isinstance(value, float) and value.is_integer()
        return (isinstance(value, int) or whole) and not isinstance(value, bool)
    if annotation in (str, bool):
        return isinstance(value, annotation)
    kind = origin if isinstance(origin, type) else annotation
    if not isinstance(kind, type):
        return True  # a type variable or an alias that says nothing about plain values
    if issubclass(kind, Mapping):
        return isinstance(value, Mapping)
    if issubclass(kind, tuple | Sequence) or kind is Iterable:
        each = [a for a in inside if a is not ...]
        return isinstance(value, list | tuple) and (
            not each or all(any(_fits(v, a) for a in each) for v in value)
        )
    return False


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**15:
        return "a number of more than 15 digits"
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
