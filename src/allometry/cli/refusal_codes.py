"""Stable codes for refusals and warnings, so that scripts act on them and not on sentences.

docs/json.md lists them. A code keeps its meaning; a sentence may be reworded together with its
pattern here, and a test makes each of them happen.
"""

import re
from collections.abc import Sequence
from typing import Any

from allometry._core.errors import (
    DivergedError,
    InputError,
    LockedError,
    MissingExtraError,
    StorageError,
    UnidentifiedError,
    WorkerError,
)

CLASSES: tuple[tuple[type[BaseException], str], ...] = (
    (UnidentifiedError, "not_identified"),
    (DivergedError, "diverged"),
    (LockedError, "locked"),
    (WorkerError, "worker_failed"),
    (MissingExtraError, "missing_dependency"),
    (StorageError, "storage"),
    (InputError, "invalid_input"),
)
"""Codes of errors by class, if no pattern of `REFUSALS` matches."""

OTHERS = ("usage", "out_of_memory", "defect")
"""Codes of wrong options, of too little memory and of a defect of allometry."""

REFUSALS: tuple[tuple[str, str], ...] = (
    ("no_such_file", r"no such (path|file|folder)"),
    ("newer_version", r"upgrade allometry"),
    ("damaged_file", r"checksum does not match|incomplete or damaged|whose parts fit together"),
    ("too_few_runs", r"must have at least \d+ (runs|different)|given several runs|too few runs"),
    ("no_variation", r"must vary; got|must differ in N, D or C|take several values"),
    (
        "missing_column",
        r"(have|be|name) (a|at least one of the) columns?|loss column|--by must be",
    ),
    ("tokens_unknown", r"must know the number of tokens"),
    ("unknown_name", r"must be one of"),
)
"""Codes of invalid input by pattern of the message; the first that matches counts."""

WARNINGS: tuple[tuple[str, str], ...] = (
    ("irreducible_loss_not_identified", r"irreducible loss E is not id|identify an irreducible"),
    (
        "allocation_not_identified",
        r"allocation between N and D is not identified|identify the compute-optimal allocation|"
        r"law is in compute alone",
    ),
    (
        "exponent_not_identified",
        r"exponent \w+ is not identified|separate effects|takes two values|exponent comes from",
    ),
    ("claim_not_supported", r": not identified by these runs"),
    ("no_interior_optimum", r"show no interior optimum|its optimum is not identified"),
    ("weakly_determined", r"runs determine the \d+ parameters"),
    ("loss_rises", r"^The loss rises with"),
    ("poor_fit", r"mean backtest error on larger runs is|No form predicts these runs well"),
    ("not_backtested", r"too few runs to backtest|too few runs for backtests"),
    ("far_extrapolation", r"times the largest run, further"),
    ("search_uncertain", r"did not converge|starts reached the best fit"),
    ("rows_left_out", r"left out"),
    ("data_repeated", r"[Dd]ata are repeated|repeats? the data|times over"),
)
"""Codes of warnings by pattern; `note` if none matches."""

NOTE = "note"

MEANINGS = {
    "not_identified": "these runs do not determine what was asked, such as a loss out of reach",
    "too_few_runs": "more runs, or runs of other sizes, are needed",
    "no_variation": "a variable or the loss is the same in all runs",
    "missing_column": "a column is missing or was not recognised",
    "tokens_unknown": "data are counted in steps, and a plan needs tokens",
    "unknown_name": "a form, measure or other name does not exist",
    "invalid_input": "another argument is wrong",
    "usage": "a wrong option or argument of the command line",
    "no_such_file": "the file or folder does not exist",
    "damaged_file": "a saved law is incomplete or was changed",
    "newer_version": "a newer allometry wrote the file",
    "storage": "a file can't be read or written",
    "locked": "another process uses the study's folder",
    "missing_dependency": "an extra is not installed; the message names it",
    "worker_failed": "worker processes don't start",
    "diverged": "a training loss is not finite",
    "out_of_memory": "the machine has too little memory",
    "defect": "a defect of allometry; the exit code is 70",
    "allocation_not_identified": "the runs do not determine how to divide compute between N and D",
    "irreducible_loss_not_identified": "the runs do not determine the irreducible loss",
    "exponent_not_identified": "the runs do not determine an exponent",
    "claim_not_supported": "the plan's loss did not pass its guards; `claims` has the reason",
    "no_interior_optimum": "the best value of a column is at the edge of the search",
    "weakly_determined": "few runs for so many parameters: the priors matter",
    "far_extrapolation": "the budget is further beyond the runs than backtests reach",
    "not_backtested": "there are too few runs for backtests",
    "poor_fit": "one law does not fit these runs",
    "loss_rises": "larger runs have higher losses",
    "search_uncertain": "the optimiser may have missed a better fit",
    "rows_left_out": "some rows were not used",
    "data_repeated": "the plan repeats data",
    "note": "anything else",
}
"""What each code means; docs/json.md has the same table."""


def refusal_code(error: BaseException) -> str:
    """The code of an error.

    Example:
        >>> refusal_code(InputError("runs.csv must be a file; got no such path."))
        'no_such_file'
    """
    if isinstance(error, InputError | StorageError):
        for code, pattern in REFUSALS:
            if re.search(pattern, str(error)):
                return code
    return next((code for kind, code in CLASSES if isinstance(error, kind)), "defect")


def warning_codes(warnings: Sequence[str]) -> list[str]:
    """The code of each warning, in the same order."""
    return [
        next((code for code, pattern in WARNINGS if re.search(pattern, text)), NOTE)
        for text in warnings
    ]


def refusal(code: str, message: str, exit_code: int = 2) -> dict[str, Any]:
    """A refusal as JSON: `do` is the part of the message that says what to do."""
    parts = re.split(r"(?<=[.!?]) (?=[A-Z`'\"(])", message, maxsplit=1)
    do = parts[1] if len(parts) > 1 else ""
    return {"error": {"code": code, "message": message, "do": do, "exit_code": exit_code}}
