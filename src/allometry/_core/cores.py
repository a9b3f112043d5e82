"""How many cores this process may use."""

import os


def available_cores() -> int:
    """Cores this process may run on, which a container or `taskset` may have made fewer."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
