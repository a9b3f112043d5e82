"""How commands speak: data to standard output, everything else to standard error."""

import json
import sys
from typing import Any

from rich.console import Console

# A terminal tells its width; a pipe or a file has none, and 80 columns would cut tables up.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def write_json(data: Any) -> None:
    """`data` as JSON on standard output."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write("\n")


def say(message: str) -> None:
    """A message for the person, never mixed into the data."""
    err.print(message, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Example:
        >>> duration(75), duration(4000)
        ('1 min 15 s', '1 h 6 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
