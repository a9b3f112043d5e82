"""How commands speak: data to standard output, everything else to standard error."""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from allometry._core.user_files import replace_controls

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@final
class CleanConsole(Console):
    """A console that no text can command: names and messages come from files.

    Control characters, escapes and changes of direction are replaced in whatever is printed; its
    own colours are not text and stay. Brackets and colons are no markup.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The pieces of what is printed, each cleaned."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(replace_controls(segment.text), segment.style)


# A terminal tells its width; a pipe or a file has none, and 80 columns would cut tables up.
out = CleanConsole(width=None if sys.stdout.isatty() else 160)
err = CleanConsole(stderr=True)


def write_json(data: Any) -> None:
    """`data` as JSON on standard output, with what a terminal would obey as escapes."""
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(_HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n")


def one_line(message: str) -> str:
    """A message as one clean line of at most 2,000 characters."""
    line = " ".join(replace_controls(message).split())
    return line if len(line) <= 2000 else f"{line[:995]} ... {line[-1000:]}"


def say(message: str) -> None:
    """A message for the person, never mixed into the data."""
    indent = message[: len(message) - len(message.lstrip(" "))]
    err.print(indent + one_line(message), soft_wrap=True)


def complain(message: str) -> None:
    """The one line on standard error with which a command ends in failure."""
    sys.stderr.write(f"allometry: {one_line(message)}\n")


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
