"""Load runs; ask on a terminal for columns that were not recognised, and keep the answers."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allometry._core.errors import InputError
from allometry.cli.console import say

if TYPE_CHECKING:
    from allometry.runs.importers import Imported

_QUESTIONS = {
    "loss": "Which column holds the loss?",
    "N": "Which column holds the number of parameters (N)? A name, or an expression such as "
    "12*n_layer*d_model^2",
    "D": "Which column holds the tokens (D)? A name, or an expression such as step*524288",
}
_MOST_NAMES = 40


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def load_runs(
    path: Path, reading: dict[str, Any], *, remember: bool = False, ask: bool = True
) -> "Imported":
    """The runs by the options, by `allometry.toml`, and by asking on a terminal.

    Args:
        path: The runs.
        reading: Arguments of `allometry.runs.load`; options that were given win over the file.
        remember: Whether to save the options in `allometry.toml`.
        ask: Whether questions are allowed: not if JSON is to be printed.
    """
    from allometry.runs.importers.clipboard import is_stream
    from allometry.runs.mapping_file import KEYS, NAME, save_mapping, saved_mapping

    stream = is_stream(path)
    known = {} if stream else saved_mapping(path)
    given = {k: v for k, v in reading.items() if v not in (None, (), "auto")}
    used = {k: v for k, v in known.items() if k not in given}
    reading = reading | used
    answers: dict[str, str] = {}
    imported = _asked(path, reading, answers, ask and is_terminal() and not stream)
    settings = {
        k: str(v) for k, v in (known | given | answers).items() if k in KEYS and v is not None
    }
    if answers and not remember:
        remember = _input(f"Save these columns in {NAME}? [Y/n]").lower() in ("", "y", "yes")
    notes = []
    if used:
        listed = ", ".join(f"{key} = {value}" for key, value in used.items())
        notes.append(f"Columns by {NAME}: {listed}.")
    if remember and settings and not stream:
        notes.append(f"Columns saved in {save_mapping(path, settings)}.")
    return replace(imported, notes=[*notes, *imported.notes])


def _asked(path: Path, reading: dict[str, Any], answers: dict[str, str], ask: bool) -> "Imported":
    """Load the runs; while something is missing and a person can be asked, ask and load again."""
    from allometry.runs.importers import load
    from allometry.runs.importers.columns import UnrecognisedError

    skipped: set[str] = set()
    while True:
        try:
            imported = load(path, **reading | answers)
        except UnrecognisedError as error:
            if not ask or error.quantity in skipped:
                raise
            say(str(error))
            _answer(error.quantity, error.names, answers, skipped)
            continue
        except InputError as error:
            if not answers:
                raise
            say(str(error))  # a wrong answer: ask again
            answers.popitem()
            continue
        missing = _missing(imported) if ask else None
        if missing is None or missing in skipped:
            return imported
        say(imported.words()[0])
        names = [*imported.unrecognised, *imported.recognised.values()]
        _answer(missing, names, answers, skipped)


def _missing(imported: "Imported") -> str | None:
    """The quantity that a law in N and D lacks."""
    columns = set(imported.columns)
    if imported.rows == "points":
        return None
    if "N" not in columns and not {"D", "C"} <= columns:
        return "N"
    if imported.counted_in != "tokens" or ("D" not in columns and not {"N", "C"} <= columns):
        return "D"
    return None


def _answer(quantity: str, names: list[str], answers: dict[str, str], skipped: set[str]) -> None:
    """Ask for a quantity; an empty answer leaves it out."""
    shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    say(f"Columns: {shown}.")
    text = _input(f"{_QUESTIONS[quantity]} (Enter: none)")
    if not text:
        skipped.add(quantity)
    elif text in names or quantity == "loss":
        answers[quantity] = text
    else:
        answers[f"{quantity.lower()}_from"] = text


def _input(question: str) -> str:
    """One line from the terminal; empty at its end."""
    sys.stderr.write(question + " ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()
