"""Executors by the names that the command line has for them."""

from allometry._core.errors import InputError
from allometry.study.cluster import ray
from allometry.study.executors import Executor, local


def executor(words: str, *, workers: int | None = None, threads: int | None = None) -> Executor:
    """The executor that `words` name: `"local"`, `"ray"` or `"ray:ADDRESS"`.

    Args:
        words: A name, and what it is to know after a colon.
        workers: As the executor takes it.
        threads: As the executor takes it.

    Example:
        >>> executor("local", workers=3).workers
        3
        >>> executor("slurm")
        Traceback (most recent call last):
        allometry._core.errors.InputError: executor must be local, ray or ray:ADDRESS; got 'slurm'.
    """
    name, colon, rest = words.partition(":")
    if name == "local" and not colon:
        return local(workers, threads)
    if name == "ray" and bool(colon) == bool(rest.strip()):
        return ray(rest or None, workers=workers, threads=threads)
    raise InputError(f"executor must be local, ray or ray:ADDRESS; got {words!r}.")
