"""Limit small computations to one thread."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1_000_000
"""Size of the data below which a second thread costs more than it saves."""


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Limit torch, BLAS and OpenMP to one thread inside, if `small`.

    Products of small matrices end before a second thread wakes up. Its busy waiting takes ten
    times the CPU time of the work itself on a loaded machine.
    """
    if not small:
        yield
        return
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
