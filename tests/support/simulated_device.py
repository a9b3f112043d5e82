"""A simulated GPU: tensors that say `cuda` and compute on CPU, with every transfer counted.

Torch's `FakeTensorMode` has devices but no values, so it stops where a program reads a number; and
without a CUDA driver its backward passes end the process. Here values are computed, so whole runs
can be carried out and compared with the CPU. An operation on tensors of two devices is refused as
CUDA refuses it, and a generator must live on the device of what it fills.

To torch's C++ code the tensors are on the device `meta`, whose autograd needs no driver.
"""

from collections import Counter
from unittest import mock

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

aten = torch.ops.aten
CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")

READS = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
"""Operations whose result is a Python value: the host waits for the device."""

COUNTED_SHAPES = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default}
"""Operations whose shape depends on values: the host waits for the device."""

INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default,
            aten._index_put_impl_.default}  # fmt: skip
"""Operations that accept indices on the host, at the price of a copy."""


class DeviceMismatchError(RuntimeError):
    """An operation on tensors of two devices."""


class OnDevice(torch.Tensor):
    """A tensor on the simulated device."""

    @staticmethod
    def __new__(cls, real: torch.Tensor):
        self = torch.Tensor._make_wrapper_subclass(
            cls, real.shape, strides=real.stride(), dtype=real.dtype, device="meta"
        )
        self.value = real
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return f"OnDevice({self.value!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside the simulation")

    @property
    def device(self):
        return CUDA

    @property
    def is_cuda(self):
        return True

    @property
    def is_meta(self):
        return False

    def tolist(self):
        ACTIVE[-1].counts["to host"] += 1
        return self.value.tolist()

    def numpy(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __deepcopy__(self, memo):
        copied = OnDevice(self.value.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied


ACTIVE: list["SimulatedDevice"] = []


def _real(value):
    return value.value if isinstance(value, OnDevice) else value


class SimulatedDevice(TorchDispatchMode):
    """Everything asked for on `cuda` inside this context is simulated.

    Attributes:
        counts: Transfers: `to device`, `to host`, and `waits` for shapes that depend on values.
    """

    def __init__(self):
        super().__init__()
        self.counts = Counter()
        self.where = []

    def __enter__(self):
        ACTIVE.append(self)
        self.patch = mock.patch.object(torch.cuda, "_lazy_init", return_value=None)
        self.patch.start()
        # A parameter that moves to the device stays the same Python object, as in CUDA.
        torch.__future__.set_swap_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error):
        self.patch.stop()
        torch.__future__.set_swap_module_params_on_conversion(False)
        ACTIVE.pop()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        flat, _ = tree_flatten((args, kwargs))
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        ours = [t for t in tensors if isinstance(t, OnDevice)]
        asked = kwargs.get("device")
        if asked is not None:
            asked = CPU if torch.device(asked).type == "cpu" else CUDA
        if func is aten.copy_.default:
            return self._copy(args)
        if func is aten._to_copy.default:
            return self._to_copy(args[0], asked, kwargs)
        target = asked or (CUDA if ours else CPU)
        if not ours and target.type != "cuda":
            return func(*args, **kwargs)
        self._check(func, tensors, kwargs, target)
        if asked is not None:
            kwargs["device"] = CPU
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = None
        return self._compute(func, args, kwargs)

    def _compute(self, func, args, kwargs):
        """Compute on the real tensors; what is written in place keeps its identity."""
        before = {
            id(t.value): t for t in tree_flatten((args, kwargs))[0] if isinstance(t, OnDevice)
        }
        given = tree_map(_real, (args, kwargs))
        if func in READS:
            self._note("to host", func)
        if func in COUNTED_SHAPES:
            self._note("waits", func)
        out = func(*given[0], **given[1])
        if torch.Tag.inplace_view in func.tags:
            with no_dispatch():  # shape and strides of the tensor itself change
                func(*args, **kwargs)

        def wrap(value):
            if not isinstance(value, torch.Tensor):
                return value
            return before[id(value)] if id(value) in before else OnDevice(value)

        flat, spec = tree_flatten(out)
        return tree_unflatten([wrap(value) for value in flat], spec)

    def _note(self, kind, func):
        self.counts[kind] += 1
        self.where.append((kind, str(func)))

    def _check(self, func, tensors, kwargs, target):
        rng = kwargs.get("generator")
        if rng is not None and rng.device.type != target.type:
            raise DeviceMismatchError(f"{func}: a generator on {rng.device} for {target}")
        hosts = [t for t in tensors if not isinstance(t, OnDevice) and t.ndim > 0]
        if not hosts:
            return
        if func in INDEXING and isinstance(tensors[0], OnDevice):
            self._note("to device", func)
            return
        shapes = [tuple(t.shape) for t in hosts]
        raise DeviceMismatchError(f"{func}: tensors on cuda:0 and on cpu {shapes}")

    def _copy(self, args):
        to, source = args[:2]
        if isinstance(to, OnDevice) != isinstance(source, OnDevice) and source.numel():
            self._note("to device" if isinstance(to, OnDevice) else "to host", aten.copy_.default)
        _real(to).copy_(_real(source))
        return to

    def _to_copy(self, source, asked, kwargs):
        ours = isinstance(source, OnDevice)
        target = asked or (CUDA if ours else CPU)
        if ours != (target.type == "cuda"):
            self._note("to device" if target.type == "cuda" else "to host", aten._to_copy.default)
        kwargs = kwargs | ({"device": CPU} if asked is not None else {})
        made = aten._to_copy.default(_real(source), **kwargs)
        made = made.clone() if made is _real(source) else made
        return OnDevice(made) if target.type == "cuda" else made
