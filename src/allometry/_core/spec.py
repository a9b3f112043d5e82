"""What was asked for, written down so that it can be hashed, compared and done again."""

import functools
import hashlib
import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, final

from allometry._core.errors import InputError


@final
class Spec:
    """A callable and the arguments it will be called with.

    Arguments are bound to the signature at once, so a typo fails where it is written, and the
    defaults are filled in, so that a call that spells a default out is the same call. `key` is a
    hash of `module:qualname` and the sorted arguments: the resume key, the cache key, the row id.

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
        self.name = f"{function.__module__}:{function.__qualname__}"
        self.arguments: dict[str, Any] = dict(bound.arguments)
        self._canonical = json.dumps(
            [self.name, _plain(self.arguments, self.name)], sort_keys=True, ensure_ascii=True
        )

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that name this request."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready picture of the request; `Spec.from_dict` reads it back."""
        name, arguments = json.loads(self._canonical)
        return {"spec": name, "arguments": arguments}

    @staticmethod
    def from_dict(data: Mapping[str, Any], *, anywhere: bool = False) -> "Spec":
        """The spec that `to_dict` wrote.

        Args:
            data: As `to_dict` gives it.
            anywhere: Import names outside this package too. Only for data of one's own making:
                what a file names is not to be imported on its word.
        """
        name = str(data["spec"])
        if not anywhere and name.partition(":")[0].split(".")[0] != "allometry":
            raise InputError(f"spec must name something of allometry; got {name!r}.")
        arguments = {k: _revive(v, anywhere) for k, v in data["arguments"].items()}
        return Spec(_imported(name), **arguments)

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
        return _imported(self.name)(**made)

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


def _plain(value: Any, where: str) -> Any:
    """`value` as JSON with one spelling for each meaning (1 and 1.0 are one number)."""
    if isinstance(value, Spec):
        return value.to_dict()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where} must be finite to be hashed; got {value}.")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{where}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, where) for v in value]
    raise InputError(
        f"{where} must be made of plain values (numbers, strings, lists, specs); "
        f"got {type(value).__name__}."
    )


def _imported(name: str) -> Any:
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _revive(value: Any, anywhere: bool) -> Any:
    if isinstance(value, dict) and set(value) == {"spec", "arguments"}:
        return Spec.from_dict(value, anywhere=anywhere)
    if isinstance(value, dict):
        return {k: _revive(v, anywhere) for k, v in value.items()}
    if isinstance(value, list):
        return [_revive(v, anywhere) for v in value]
    return value
