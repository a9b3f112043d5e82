"""Generate docs/cli.md from the command line: `python docs/make_cli.py [--check]`."""

import sys
from pathlib import Path
from typing import Any

import typer

from allometry.cli import app
from allometry.cli.help_examples import EXAMPLES

PAGE = Path(__file__).parent / "cli.md"
HEAD = """# The command line

Data go to standard output (`--json` for scripts), progress and messages to standard error. Exit
codes are 0 for success, 1 if some runs failed, 2 for invalid input or a missing dependency (a
one-sentence message says what to do), and 70 for a defect of allometry.
`allometry --install-completion` sets up completion for your shell.

`docs/make_cli.py` generates this page; a test compares it with the program.
"""


def _command(name: str, command: Any) -> str:
    arguments, options = [], []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append((str(parameter.name), parameter.help or ""))
        elif "--help" not in parameter.opts:
            default = parameter.default
            shown = "" if default in (None, False) else f" Default: {_value(default)}."
            options.append((", ".join(parameter.opts), (parameter.help or "") + shown))
    usage = " ".join(["allometry", name, *(a.upper() for a, _ in arguments), "[OPTIONS]"])
    text = [f"## {name}", "", (command.help or "").strip(), "", f"    {usage}", ""]
    if arguments or options:
        text += ["| | |", "|---|---|"]
        text += [f"| `{a.upper()}` | {words} |" for a, words in arguments]
        text += [f"| `{o}` | {words} |" for o, words in options]
        text.append("")
    lines = EXAMPLES[name]
    text += ["```sh", *lines, "```", ""]
    return "\n".join(text)


def _value(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)


def page() -> str:
    """The whole page."""
    return HEAD + "\n" + "\n".join(_walk(typer.main.get_command(app)))


def _walk(group: Any, prefix: str = "") -> list[str]:
    parts = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            parts += _walk(command, f"{prefix}{name} ")
        else:
            parts.append(_command(prefix + name, command))
    return parts


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else "docs/cli.md is out of date")
    PAGE.write_text(page())
