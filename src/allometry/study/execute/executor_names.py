"""Executors by the names that the command line has for them."""

from allometry._core.errors import InputError
from allometry.study.execute.executors import Executor, local
from allometry.study.execute.ray_cluster import ray
from allometry.study.execute.torchrun import torchrun
from allometry.train.device import DeviceSettings


def executor_by_name(
    name: str,
    *,
    workers: int | None = None,
    threads: int | None = None,
    on: DeviceSettings | None = None,
) -> Executor:
    """The executor for `"local"`, `"ray"`, `"ray:ADDRESS"`, `"torchrun"` or `"torchrun:shard"`.

    Args:
        name: As on the command line.
        workers: As the executor takes it; for torchrun the number of processes.
        threads: As the executor takes it.
        on: As the executor takes it.

    Example:
        >>> executor_by_name("local", workers=3).workers
        3
        >>> executor_by_name("slurm")
        Traceback (most recent call last):
        allometry._core.errors.InputError: executor must be one of local, ray, ...; got 'slurm'.
    """
    kind, colon, rest = name.partition(":")
    if kind == "local" and not colon:
        return local(workers, threads, on)
    if kind == "ray" and bool(colon) == bool(rest.strip()):
        return ray(rest or None, workers=workers, threads=threads, on=on)
    if kind == "torchrun" and (not colon or rest == "shard"):
        processes = 2 if workers is None else workers
        return torchrun(processes, shard=bool(rest), threads=threads, on=on)
    names = "local, ray, ray:ADDRESS, torchrun, torchrun:shard"
    raise InputError(f"executor must be one of {names}; got {name!r}.")
