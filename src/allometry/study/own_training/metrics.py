"""Where the loss, the size and the FLOPs of a command's run are read from.

`([0-9.]+) nats`    a regular expression on its output; the last match counts
`json:val_loss`     the last line of its output that is a JSON object with this key
`file:PATH`         a log that `allometry fit` reads, by its last loss; PATH may have placeholders
"""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry._core.number_parsing import number

LONGEST_LINE = 4000
"""Characters of a line of output that are searched."""

KEYS = {
    "N": ("N", "n_params", "params", "parameters", "num_params", "num_parameters"),
    "D": ("D", "tokens", "tokens_seen", "n_tokens"),
    "C": ("C", "flops", "total_flops", "training_flops"),
}
"""Keys of a JSON line for parameters, data and FLOPs."""


@final
@dataclass
class Reader:
    """Reads one quantity from lines of output; the last value counts.

    Args:
        metric: A regular expression with one group, or `json:KEY`.
        option: Its name in errors.
    """

    metric: str
    option: str
    value: float | None = None
    text: str = ""
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    extras: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = self.metric.removeprefix("json:") if self.metric.startswith("json:") else None
        if self.key is None:
            self.pattern = compiled(self.metric, self.option)

    def read(self, line: str) -> None:
        """Read one line."""
        line = line[:LONGEST_LINE]
        if self.key is not None:
            self._read_json(line)
            return
        found = self.pattern.search(line)
        if found is None:
            return
        named = found.groupdict()
        self._record(named.get("loss") or found[1], named.get("step"))

    def _read_json(self, line: str) -> None:
        start = line.find("{")
        if start < 0:
            return
        try:
            row = json.loads(line[start:])
        except (ValueError, RecursionError):
            return
        if not isinstance(row, dict):
            return
        for quantity, keys in KEYS.items():
            found = next((row[k] for k in keys if isinstance(row.get(k), int | float)), None)
            if found is not None and math.isfinite(found):
                self.extras[quantity] = float(found)
        assert self.key is not None
        if self.key in row:
            step = row.get("step")
            self._record(str(row[self.key]), None if step is None else str(step))

    def _record(self, text: str, step: str | None) -> None:
        self.text, self.value = text, number(text.rstrip(".,;"))
        at = math.nan if step is None else number(step)
        if math.isfinite(at) and math.isfinite(self.value):
            self.steps.append(at)
            self.values.append(self.value)


def compiled(metric: str, option: str) -> re.Pattern[str]:
    """A regular expression with a group for the number."""
    try:
        pattern = re.compile(metric)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{option} must be a regular expression; got {error}.") from None
    fix = "Put the number in brackets, as in 'val loss ([0-9.]+)'."
    require(pattern.groups >= 1, option, "have a group for the number", metric, fix)
    return pattern


def check(metric: str, option: str) -> None:
    """Refuse a metric that can't be read."""
    if metric.startswith(("json:", "file:")):
        require(len(metric) > 5, option, "name a key or a file after the colon", metric)
    else:
        compiled(metric, option)


def last_of_file(path: Path) -> dict[str, Any]:
    """The last loss of a log, and N, D and C where it has them."""
    from allometry.runs.importers import load

    columns = load(path).columns
    found = {"loss": float(columns["loss"][-1])}
    return found | {q: float(columns[q][-1]) for q in ("N", "C") if q in columns}
