"""One thread where several would only wait for one another."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1_000_000
"""Numbers in the data below which a second thread costs more than it does."""


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Keep torch, BLAS and OpenMP to one thread inside, if `small`.

    Products of small matrices are over before a second thread has woken up. It then spins, which
    on a busy machine takes ten times the processor time of the work itself.
    """
    if not small:
        yield
        return
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
