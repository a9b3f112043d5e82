"""Executors by the names that the command line has for them."""

from allometry._core.errors import InputError
from allometry.study.execute.executors import Executor, local
from allometry.study.execute.ray_cluster import ray
from allometry.study.execute.torchrun import torchrun
from allometry.train.device import DeviceSettings


def executor(
    words: str,
    *,
    workers: int | None = None,
    threads: int | None = None,
    on: DeviceSettings | None = None,
) -> Executor:
    """The executor that `words` name.

    `"local"`, `"ray"`, `"ray:ADDRESS"`, `"torchrun"` or `"torchrun:shard"`.

    Args:
        words: A name, and what it is to know after a colon.
        workers: As the executor takes it; of torchrun the processes.
        threads: As the executor takes it.
        on: As the executor takes it.

    Example:
        >>> executor("local", workers=3).workers
        3
        >>> executor("slurm")
        Traceback (most recent call last):
        allometry._core.errors.InputError: executor must be one of local, ray, ...; got 'slurm'.
    """
    name, colon, rest = words.partition(":")
    if name == "local" and not colon:
        return local(workers, threads, on)
    if name == "ray" and bool(colon) == bool(rest.strip()):
        return ray(rest or None, workers=workers, threads=threads, on=on)
    if name == "torchrun" and (not colon or rest == "shard"):
        return torchrun(
            2 if workers is None else workers, shard=bool(rest), threads=threads, on=on
        )
    names = "local, ray, ray:ADDRESS, torchrun, torchrun:shard"
    raise InputError(f"executor must be one of {names}; got {words!r}.")
