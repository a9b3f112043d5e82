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
from typing import Any, get_args, get_type_hints

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
    key = (fn.__code__, tuple(fn.__annotations__.items())) if nested else None
    try:
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

    def arguments(args, kwargs):
        if signature is None:
            return {}
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
_plans = {}
_NO_PLAN = object()


def _matches(hint, value):
    """As jaxtyping's `isinstance(value, hint)`, in fewer steps for the shapes that we write."""
    plan = _plans.get(hint)
    if plan is None:
        plan = _plans[hint] = _plan(hint)
    if plan is _NO_PLAN or not isinstance(value, plan.array):
        return _slow_matches(hint, value)
    if value.dtype not in plan.dtypes:
        found = _slow_matches(hint, value)
        if found:  # else its dtype or its shape is wrong
            plan.dtypes.add(value.dtype)
        return found
    shape = tuple(value.shape)
    if plan.rest is None:
        if len(shape) != plan.ndim:
            return False
        sizes, rest = shape, None
    else:
        if len(shape) < plan.ndim:
            return False
        after = len(shape) - plan.ndim + plan.rest
        sizes, rest = shape[: plan.rest] + shape[after:], shape[plan.rest : after]
    stack = getattr(_shape_storage, "memo_stack", None)
    known, shapes = stack[-1][:2] if stack else ({}, {})
    new = {}
    for dim, size in zip(plan.dims, sizes, strict=True):
        if dim is None:
            continue
        expected = dim if type(dim) is int else known.get(dim, new.get(dim))
        if expected is None:
            new[dim] = size
        elif expected != size:
            return False
    if plan.rest_name is not None:
        # The flag is for "#*name", which broadcasts.
        if shapes.get(plan.rest_name, (False, rest)) != (False, rest):
            return _slow_matches(hint, value)
        shapes[plan.rest_name] = False, rest
    known.update(new)
    return True


class _Plan:
    """How to check one hint: `dims` are sizes, names or `None`; `rest` is where "..." stands."""

    def __init__(self, array, dims, rest, rest_name):
        self.array, self.dims, self.rest, self.rest_name = array, dims, rest, rest_name
        self.ndim, self.dtypes = len(dims), set()


def _plan(hint):
    """The plan of a hint, or `_NO_PLAN` if it has dimensions that broadcast or are formulas."""
    if hint._skip_instancecheck or getattr(hint, "array_type", None) not in _ARRAYS:
        return _NO_PLAN
    dims, rest_name = [], None
    for dim in hint.dims:
        if dim in (_array_types._anonymous_dim, _array_types._anonymous_variadic_dim):
            dims.append(None)
        elif dim.broadcastable or getattr(dim, "treepath", False):
            return _NO_PLAN
        elif isinstance(dim, _array_types._NamedVariadicDim):
            rest_name = dim.name
            dims.append(None)
        elif isinstance(dim, _array_types._NamedDim):
            dims.append(dim.name)
        elif isinstance(dim, _array_types._FixedDim):
            dims.append(dim.size)
        else:
            return _NO_PLAN
    if hint.index_variadic is not None:
        del dims[hint.index_variadic]
    return _Plan(hint.array_type, dims, hint.index_variadic, rest_name)


_ARRAYS = (np.ndarray, torch.Tensor)

_Array.__instancecheck__ = _matches
