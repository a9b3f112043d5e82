"""How types and shapes are checked under test: an int may stand for a float, as in any call.

pytest's option `--jaxtyping-packages` decorates every function of the package by
`jaxtyping.jaxtyped(typechecker=tests.typechecker)`. That decorator checks arguments twice, binds
every call's signature, and compiles its checks anew whenever a nested function is defined: half
of the suite's time. `checked` replaces it. The checks are the same, made once. `_matches` replaces
the check of one array against one shape: jaxtyping's copies all sizes known so far each time, and
spells the dtype. Checks of shapes were a third of the time of tests that fit scaling laws.
"""

import functools
import inspect
import types
from typing import Any, get_args, get_origin, get_type_hints

import jaxtyping
import numpy as np
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import _array_types
from jaxtyping._storage import _shape_storage, pop_shape_memo, push_shape_memo

typechecker = beartype(
    conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
)

_jaxtyped = jaxtyping.jaxtyped
_nested = {}


def checked(fn=None, *, typechecker=typechecker):
    """The function with its arguments and result checked; a decorator if called without one."""
    if fn is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(fn):
        if hasattr(fn, "__dataclass_fields__") and not hasattr(fn.__init__, "__checked__"):
            fn.__init__ = checked(fn.__init__)
        return fn
    if isinstance(fn, classmethod | staticmethod):
        return type(fn)(checked(fn.__func__))
    if isinstance(fn, property):
        return property(*(part and checked(part) for part in (fn.fget, fn.fset, fn.fdel)))
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_flags & _GENERATOR:
        return _jaxtyped(fn, typechecker=typechecker)
    return _function(fn)


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _function(fn):
    nested = "<locals>" in fn.__qualname__
    try:
        key = (fn.__code__, _same(tuple(fn.__annotations__.items()))) if nested else None
        known = _nested.get(key)
    except TypeError:  # a hint that cannot be hashed
        key = known = None
    if known is None:
        hints = {k: _resolved(hint, fn.__globals__) for k, hint in fn.__annotations__.items()}
        inner = _copy(fn)
        inner.__annotations__ = hints
        checks = typechecker(inner)
        if checks is inner:  # nothing to check
            return fn
        shapes = [shape for hint in hints.values() for shape in _shapes(hint)]
        if key is not None and (checks.__kwdefaults__ or {}).get(_INNER) is inner:
            _nested[key] = checks, shapes
    else:
        made, shapes = known
        checks = _copy(made)
        checks.__kwdefaults__ = made.__kwdefaults__ | {_INNER: fn}
    if shapes:
        checks = _scoped(fn, checks, any("{" in shape for shape in shapes))
    checks.__wrapped__, checks.__annotations__ = fn, fn.__annotations__
    checks.__checked__ = True
    return checks


_INNER = "__beartype_func"
"""The argument by which beartype's wrappers know the function they wrap."""


def _same(hint):
    """A value that is equal for equal hints; jaxtyping makes a new class for each `Float[...]`."""
    if isinstance(hint, list | tuple):
        return tuple(map(_same, hint))
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return hint.dtype, hint.array_type, hint.dim_str
    parts = get_args(hint)
    return (get_origin(hint), *map(_same, parts)) if parts else hint


def _copy(fn):
    copied = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copied.__kwdefaults__, copied.__qualname__ = fn.__kwdefaults__, fn.__qualname__
    copied.__module__, copied.__doc__ = fn.__module__, fn.__doc__
    copied.__dict__.update(fn.__dict__)
    return copied


def _scoped(fn, checks, named):
    """Checks in a scope where equal letters are equal sizes; "{name}" refers to an argument."""
    signature = inspect.signature(fn) if named else None

    if signature is None:
        return _plainly_scoped(fn, checks)

    def arguments(args, kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    @functools.wraps(fn)
    def scoped(*args, **kwargs):
        __tracebackhide__ = True
        push_shape_memo(arguments(args, kwargs))
        try:
            return checks(*args, **kwargs)
        finally:
            pop_shape_memo()

    return scoped


def _plainly_scoped(fn, checks):
    """As jaxtyping's `push_shape_memo({})` and `pop_shape_memo()` around each call."""

    @functools.wraps(fn)
    def scoped(*args, **kwargs):
        __tracebackhide__ = True
        try:
            stack = _shape_storage.memo_stack
        except AttributeError:
            stack = _shape_storage.memo_stack = []
        stack.append(({}, {}, {}, {}))
        try:
            return checks(*args, **kwargs)
        finally:
            stack.pop()

    return scoped


def _resolved(hint, scope):
    """An annotation without strings; `Any` for names that are imported for type checkers only."""

    def of(value):
        del value

    of.__annotations__ = {"value": hint}
    try:
        return get_type_hints(of, scope, include_extras=True)["value"]
    except Exception:  # as jaxtyping does: also a shape that is no shape
        return Any


def _shapes(hint):
    """The shapes of an annotation's arrays."""
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return [hint.dim_str]
    return [shape for part in get_args(hint) for shape in _shapes(part)]


jaxtyping.jaxtyped = checked

_Array = _array_types._MetaAbstractArray
_slow_matches = _Array.__instancecheck__
_fast = {}


def _matches(hint, value):
    """As jaxtyping's `isinstance(value, hint)`, by a function made for the hint."""
    matches = _fast.get(hint)
    if matches is None:
        matches = _fast[hint] = _match_function(hint)
    return matches(value)


def _match_function(hint):
    """A function of a value; jaxtyping's for hints with dimensions that broadcast or are formulas.

    Of a hint "2 n" it is, but for names:

        def matches(value):
            if type(value) is not ndarray or value.dtype not in dtypes:
                return otherwise(value)
            shape = value.shape
            if len(shape) != 2 or shape[0] != 2:
                return False
            sizes = memo_stack[-1][0]
            known = sizes.get("n")
            if known is None:
                sizes["n"] = shape[1]
            elif known != shape[1]:
                return False
            return True
    """
    slow = functools.partial(_slow_matches, hint)
    array = getattr(hint, "array_type", None)
    if hint._skip_instancecheck or array not in (np.ndarray, torch.Tensor):
        return slow
    dtypes = set()

    def otherwise(value):
        found = slow(value)
        if found and type(value) is array:
            dtypes.add(value.dtype)
        return found

    rest = hint.index_variadic
    ndim = len(hint.dims)
    test = f"len(shape) != {ndim}" if rest is None else f"len(shape) < {ndim - 1}"
    wrong, names, others = [test], {}, None
    for i, dim in enumerate(hint.dims):
        if dim in (_array_types._anonymous_dim, _array_types._anonymous_variadic_dim):
            continue
        if dim.broadcastable or getattr(dim, "treepath", False):
            return slow
        size = f"shape[{i if rest is None or i < rest else i - ndim}]"
        if isinstance(dim, _array_types._FixedDim):
            wrong.append(f"{size} != {dim.size}")
        elif isinstance(dim, _array_types._NamedDim) and dim.name in names:
            wrong.append(f"{size} != {names[dim.name]}")
        elif isinstance(dim, _array_types._NamedDim):
            names[dim.name] = size
        elif isinstance(dim, _array_types._NamedVariadicDim):
            others = dim.name, f"shape[{i}:{i - ndim + 1 or ''}]"
        else:
            return slow
    lines = [
        "def matches(value):",
        "    if type(value) is not array or value.dtype not in dtypes:",
        "        return otherwise(value)",
        "    shape = value.shape",
        f"    if {' or '.join(wrong)}:",
        "        return False",
    ]
    if names or others:
        lines.append("    stack = getattr(storage, 'memo_stack', None)")
        lines.append("    if not stack:")
        lines.append("        return True")
        lines.append("    sizes, shapes = stack[-1][:2]")
    for i, (name, size) in enumerate(names.items()):
        lines.append(f"    known{i} = sizes.get({name!r})")
        lines.append(f"    if known{i} is not None and known{i} != {size}:")
        lines.append("        return False")
    if others:
        lines.append(f"    others = False, {others[1]}  # the flag is for '#*x', which broadcasts")
        lines.append(f"    if shapes.setdefault({others[0]!r}, others) != others:")
        lines.append("        return slow(value)")
    for i, (name, size) in enumerate(names.items()):
        lines.append(f"    if known{i} is None:")
        lines.append(f"        sizes[{name!r}] = {size}")
    lines.append("    return True")
    made = {"array": array, "dtypes": dtypes, "otherwise": otherwise, "slow": slow}
    made["storage"] = _shape_storage
    exec("\n".join(lines), made)
    return made["matches"]


_Array.__instancecheck__ = _matches
