"""Output of commands: data to standard output, messages to standard error."""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from allometry._core.user_files import replace_controls
from allometry.cli.refusal_codes import warning_codes

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@final
class CleanConsole(Console):
    """A console for untrusted text: names and messages come from files.

    Control characters, escapes and changes of text direction are replaced in everything that is
    printed; rich's own styles are kept. Brackets and colons are not interpreted as markup.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments to print, with control characters replaced."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(replace_controls(segment.text), segment.style)


# A pipe or a file has no width, and rich's default of 80 columns would wrap tables.
out = CleanConsole(width=None if sys.stdout.isatty() else 160)
err = CleanConsole(stderr=True)


def write_json(data: Any) -> None:
    """Write `data` as JSON to standard output; control characters are escaped.

    `codes` are added beside `warnings`: scripts act on them, people read the sentences.
    """
    if isinstance(data, dict) and isinstance(data.get("warnings"), list):
        data = data | {"codes": warning_codes(data["warnings"])}
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(_HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n")


def one_line(message: str) -> str:
    """A message as one line of at most about 2,000 characters, control characters replaced."""
    line = " ".join(replace_controls(message).split())
    return line if len(line) <= 2000 else f"{line[:995]} ... {line[-1000:]}"


def say(message: str) -> None:
    """Print a message to standard error."""
    indent = message[: len(message) - len(message.lstrip(" "))]
    err.print(indent + one_line(message), soft_wrap=True)


def complain(message: str) -> None:
    """Print the one-line error of a failed command to standard error."""
    sys.stderr.write(f"allometry: {one_line(message)}\n")


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "run"), counted(12, "run")
        ('1 run', '12 runs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Seconds in hours, minutes and seconds.

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
