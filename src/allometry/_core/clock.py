"""How long this process has been at work, as whoever started it sees it."""

import os
import time
from pathlib import Path

_IMPORTED = time.monotonic()


def seconds_since_start() -> float:
    """Seconds since this process was started, or, where the system doesn't say, since import."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        begun = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - begun
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED
