"""`Spec`: a callable with its arguments, which can be hashed, compared, saved and called."""

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
"""Largest integer argument in a file, by kind: a small file must not request all memory. Models
are bounded by the tensors in their file instead."""

DEEPEST = 16
"""Largest nesting depth of lists, mappings and inner specs in a file."""

Function = TypeVar("Function", bound=Callable[..., Any])


@final
class Spec:
    """A callable and the arguments it will be called with.

    Arguments are bound to the signature at once, so a typo fails where it is written. Defaults are
    filled in, so an explicit default gives the same spec. `key` is a hash of the function's
    registered name (`module:qualname` if it has none) and the sorted arguments: the resume key,
    the cache key, the row id. The path of a file is not part of the key if its content is (see
    `identified_by_content`).

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
        self._file_arguments: tuple[tuple[str, ...], tuple[str, ...]]
        self._file_arguments = getattr(function, "_file_arguments", ((), ()))
        self._canonical = _canonical(self.name, _plain(self.arguments, self.name))
        self._key: str | None = None
        self._identity: str | None = None

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify this request."""
        return self.identity if self._key is None else self._key

    @property
    def identity(self) -> str:
        """The key by content, even if the study folder knows this request by another key."""
        if self._identity is None:
            self._identity = _hashed(_canonical(self.name, self._by_content()["arguments"]))
        return self._identity

    def _by_content(self) -> dict[str, Any]:
        """As `to_dict`, without the paths of files that are identified by content."""
        paths, _ = self._file_arguments
        dropped = paths if self.arguments.get("fingerprint") is not None else ()
        kept = {k: v for k, v in self.arguments.items() if k not in dropped}
        return {"spec": self.name, "arguments": _plain(kept, self.name, Spec._by_content)}

    def legacy_key(self, paths: Mapping[str, Any] | None = None) -> str:
        """The key that earlier versions gave this request; it includes the paths of files.

        Args:
            paths: The paths at that time, by argument. Default: the current paths.
        """

        def legacy_dict(spec: "Spec") -> dict[str, Any]:
            names, newer = spec._file_arguments
            moved = {k: v for k, v in (paths or {}).items() if k in names}
            kept = {k: v for k, v in (spec.arguments | moved).items() if k not in newer}
            return {"spec": spec.name, "arguments": _plain(kept, spec.name, legacy_dict)}

        return _hashed(_canonical(self.name, legacy_dict(self)["arguments"]))

    def with_key(self, key: str) -> "Spec":
        """The same request with another key."""
        renamed = copy.copy(self)
        renamed._key = key
        return renamed

    def to_dict(self) -> dict[str, Any]:
        """The request as JSON values; `Spec.from_dict` reads it back."""
        name, arguments = json.loads(self._canonical)
        return {"spec": name, "arguments": arguments}

    @staticmethod
    def from_dict(
        data: Any, kind: Literal["model", "density"] = "model", *, trusted: bool = False
    ) -> "Spec":
        """The spec that `to_dict` wrote.

        Only registered names are looked up, and arguments are checked against the signature, so a
        file can't call anything else.

        Args:
            data: The value of `to_dict`.
            kind: What the file should name; see `allometry.register`. Inner specs must be of the
                same kind.
            trusted: Import any name. Only for messages of this program in this session (from a
                driver to its workers), never for the content of a file.
        """
        if trusted:
            arguments = {k: _revive(v) for k, v in data["arguments"].items()}
            return Spec(resolve(str(data["spec"])), **arguments)
        return _from_file(data, kind, 0)

    def __call__(self, prebuilt: Mapping["Spec", Any] | None = None) -> Any:
        """Call the function. Inner specs (a run's target) are built once and shared.

        Args:
            prebuilt: Objects that exist already, by their specs.
        """

        def build(inner: "Spec") -> Any:
            if not prebuilt:
                return _shared(inner)
            return prebuilt[inner] if inner in prebuilt else inner(prebuilt)

        values = {k: build(v) if isinstance(v, Spec) else v for k, v in self.arguments.items()}
        return resolve(self.name)(**values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._canonical == other._canonical

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        return f"Spec({self.name}, {inside})"


@functools.lru_cache(maxsize=4)
def _shared(spec: Spec) -> Any:
    """The object of an inner spec: a text is read once, not for every run on it."""
    return spec()


def identified_by_content(
    *paths: str, since: tuple[str, ...] = ()
) -> Callable[[Function], Function]:
    """Exclude arguments that are file paths from a spec's key.

    The argument `fingerprint` identifies the content instead; without it the paths stay in the
    key.

    Args:
        *paths: Names of the path arguments.
        since: Arguments that were not part of keys while the paths were.
    """

    def mark(function: Function) -> Function:
        setattr(function, "_file_arguments", (paths, since))  # noqa: B010 - any callable
        return function

    return mark


def _canonical(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True, ensure_ascii=True)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any, where: str, inner: "Callable[[Spec], Any] | None" = None) -> Any:
    """Convert `value` to canonical JSON values: 1 and 1.0 are the same number.

    Args:
        value: The value.
        where: Its name, for the error message.
        inner: Converts inner specs. Default: `to_dict`.
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
    """The spec in a file; refused unless it is a registered `kind` with valid arguments."""
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
            expected = inspect.formatannotation(parameters[name].annotation)
            raise InputError(f"{where} must be of type {expected}; got {_short(value)}.")
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
    """Whether a plain value matches `annotation`; a spec matches any."""
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
        return True  # a type variable or an alias that does not restrict plain values
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
