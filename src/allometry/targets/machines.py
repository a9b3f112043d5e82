"""Turing machines: notations, a simulator with a step limit, and well-known machines."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry._core.user_files import parse_json, read_text, shorten

Move = tuple[str, int, str]
"""Symbol to write, move (-1, 0 or 1) and next state."""

_MOVES = {"L": -1, "R": 1, "N": 0, "S": 0, "l": -1, "r": 1, "*": 0, "-1": -1, "1": 1, "0": 0}
_SHORT = re.compile(r"[0-9A-Z-]+(_[0-9A-Z-]+)*")

MOST_RULES = 100_000
"""Largest number of rules of a machine."""

BUSY_BEAVERS = {
    2: "1RB1LB_1LA1RZ",
    3: "1RB1RZ_1LB0RC_1LC1LA",
    4: "1RB1LB_1LA0LC_1RZ1LD_1RD0RA",
    5: "1RB1LC_1RC1RB_1RD0LE_1LA1LD_1RZ0LA",
}
"""Halting machines with the longest runs on an empty tape: 6, 21, 107 and 47,176,870 steps."""


@final
@dataclass(frozen=True)
class Configuration:
    """The configuration of a machine after a step.

    Args:
        state: The state.
        head: Position of the head.
        tape: Cells that are not blank.
        halted: Whether no rule applies.
        step: Number of steps so far.
    """

    state: str
    head: int
    tape: dict[int, str]
    halted: bool
    step: int

    def text(self, blank: str = "_") -> str:
        """The tape from the first to the last cell that is not blank or under the head."""
        cells = [*self.tape, self.head]
        return "".join(self.tape.get(i, blank) for i in range(min(cells), max(cells) + 1))


@final
class TuringMachine:
    """A machine with one tape, infinite on both sides.

    It halts if no rule applies to the state and symbol.

    Args:
        rules: Maps (state, symbol read) to (symbol written, move, next state); a move is -1
            (left), 0 (stay) or 1 (right).
        start: Start state. Default: the state of the first rule.
        blank: Symbol of empty cells.

    Attributes:
        states: All states, the start first.
        symbols: All symbols, the blank first.

    Example:
        >>> from allometry.targets import TuringMachine
        >>> beaver = TuringMachine.parse("1RB1LB_1LA1RZ")
        >>> end = beaver.run(steps=100)
        >>> end.halted, end.step, end.text()
        (True, 6, '1111')
    """

    def __init__(
        self,
        rules: Mapping[tuple[str, str], Move],
        start: str | None = None,
        blank: str = "_",
    ) -> None:
        require(len(rules) > 0, "TuringMachine.rules", "have at least one rule", dict(rules))
        self.rules = dict(rules)
        for (state, symbol), (_, move, _) in self.rules.items():
            require(move in (-1, 0, 1), f"rule ({state}, {symbol})", "move by -1, 0 or 1", move)
        first = next(iter(self.rules))[0] if start is None else start
        states = dict.fromkeys([first])
        states |= dict.fromkeys(q for q, _ in self.rules)
        states |= dict.fromkeys(q for _, _, q in self.rules.values())
        has_rules = any(q == first for q, _ in self.rules)
        require(has_rules, "TuringMachine.start", "be a state with rules", first)
        symbols = dict.fromkeys([blank])
        for (_, read), (write, _, _) in self.rules.items():
            symbols |= dict.fromkeys([read, write])
        self.start, self.blank = first, blank
        self.states, self.symbols = tuple(states), tuple(symbols)

    @staticmethod
    def parse(text: str, **options: str) -> "TuringMachine":
        """Parse a machine; the notation is detected.

        - Standard text format: `1RB1LC_1RC1RB_...`, one group per state A, B, ..., one rule per
          symbol 0, 1, ...; `---` is no rule, and a state without a group halts.
        - JSON: see `from_json`.
        - Lines `state read write move next`: see `from_lines`.

        Args:
            text: The machine.
            **options: `start` and `blank`, for `from_lines`.

        Raises:
            InputError: The text can't be parsed; the message names the rule or line.
        """
        stripped = text.strip()
        if stripped.startswith("{"):
            return TuringMachine.from_json(stripped)
        if _SHORT.fullmatch(stripped) and len(stripped.split("_")[0]) >= 3:
            return TuringMachine.from_string(stripped)
        return TuringMachine.from_lines(text, **options)

    @staticmethod
    def from_file(path: str | Path, **options: str) -> "TuringMachine":
        """A machine from a text or JSON file; see `parse`."""
        return TuringMachine.parse(read_text(path), **options)

    @staticmethod
    def from_string(text: str) -> "TuringMachine":
        """Parse a machine in standard text format, with blank 0 and start A."""
        rules: dict[tuple[str, str], Move] = {}
        groups = text.strip().split("_")
        width = len(groups[0])
        for q, group in enumerate(groups):
            state = chr(ord("A") + q)
            if len(group) != width or width % 3 or width == 0:
                raise InputError(
                    f"group {state} of the machine must have three characters for each symbol, "
                    f"as many as the first; got {group!r}."
                )
            for a in range(width // 3):
                rule = group[3 * a : 3 * a + 3]
                if rule == "---":
                    continue
                fits = rule[0] in "0123456789" and int(rule[0]) < width // 3 and rule[1] in "LR"
                if not (fits and rule[2].isalpha()):
                    raise InputError(
                        f"rule {state}{a} of the machine must be a symbol below {width // 3}, L "
                        f"or R, and a state, or ---; got {rule!r}."
                    )
                rules[state, str(a)] = (rule[0], _MOVES[rule[1]], rule[2])
        return TuringMachine(rules, "A", "0")

    @staticmethod
    def from_lines(text: str, start: str | None = None, blank: str = "_") -> "TuringMachine":
        """Parse a machine from lines `state read write move next`, as in online simulators.

        `*` matches any symbol when read (other rules of the state take precedence) and is the
        symbol read when written; moves are l, r or *; `;`, `#` and `//` start comments.

        Args:
            text: The lines.
            start: Start state. Default: the state of the first line.
            blank: Symbol of empty cells.

        Raises:
            InputError: A line is invalid or repeats a rule; the message names the line.
        """
        lines: list[tuple[int, list[str]]] = []
        for number, line in enumerate(text.splitlines(), 1):
            parts = re.split(r";|#|//", line)[0].split()
            if not parts:
                continue
            if len(parts) != 5 or parts[3] not in _MOVES:
                raise InputError(
                    f"line {number} must be 'state read write move next' with a move of L, R or N "
                    f"(or *); got {line.strip()!r}."
                )
            lines.append((number, parts))
        require(len(lines) > 0, "machine", "have at least one line", text[:40])
        require(
            len(lines) <= MOST_RULES, "machine", f"have {MOST_RULES:,} lines at most", len(lines)
        )
        symbols = dict.fromkeys([blank])
        for _, (_, read, write, _, _) in lines:
            symbols |= dict.fromkeys(s for s in (read, write) if s != "*")
        rules: dict[tuple[str, str], Move] = {}
        origin: dict[tuple[str, str], int] = {}
        for number, (state, read, write, move, to) in sorted(lines, key=lambda x: x[1][1] == "*"):
            few = len(rules) <= MOST_RULES
            require(
                few, "machine", f"have {MOST_RULES:,} rules at most, each * counted", len(rules)
            )
            for symbol in symbols if read == "*" else (read,):
                if (state, symbol) in rules:
                    if read == "*":
                        continue
                    raise InputError(
                        f"line {number} must not repeat the rule for ({state}, {symbol}); got it "
                        f"on line {origin[state, symbol]} already."
                    )
                origin[state, symbol] = number
                written = symbol if write == "*" else write
                rules[state, symbol] = (written, _MOVES[move], to)
        return TuringMachine(rules, lines[0][1][0] if start is None else start, blank)

    @staticmethod
    def from_json(text: str) -> "TuringMachine":
        """A machine from JSON, `{"start", "blank", "rules": {state: {symbol: rule}}}`.

        A rule is `[write, move, next]` with a move of "L", "R" or "N".

        Raises:
            InputError: A rule is invalid; the message names it.
        """
        data = parse_json(text, "machine", unique=True)
        table = data.get("rules") if isinstance(data, dict) else None
        require(isinstance(table, dict), "machine", 'be an object with "rules"', data)
        rules: dict[tuple[str, str], Move] = {}
        assert isinstance(table, dict)
        for state, row in table.items():
            require(isinstance(row, dict), f"rules[{state!r}]", "be an object", row)
            for symbol, rule in row.items():
                rules[state, symbol] = _json_rule(rule, f"rules[{state!r}][{symbol!r}]")
        start, blank = data.get("start"), data.get("blank", "_")
        require(start is None or isinstance(start, str), "machine.start", "be a name", start)
        require(isinstance(blank, str), "machine.blank", "be a symbol", blank)
        return TuringMachine(rules, start, blank)

    def cells(self, tape: str | Sequence[str] | Mapping[int, str]) -> dict[int, str]:
        """The nonblank cells of an input: text from cell 0 on, or cells by number.

        Raises:
            InputError: A symbol does not belong to the machine.
        """
        pairs = tape.items() if isinstance(tape, Mapping) else enumerate(tape)
        cells = {int(i): str(s) for i, s in pairs}
        for i, symbol in cells.items():
            known = symbol in self.symbols
            names = shorten(" ".join(self.symbols))
            require(known, f"tape[{i}]", f"be one of {names}", symbol)
        return {i: s for i, s in cells.items() if s != self.blank}

    def run(
        self, tape: str | Sequence[str] | Mapping[int, str] = "", *, steps: int
    ) -> Configuration:
        """The configuration after `steps` steps, or when the machine halts earlier."""
        last = None
        for last in self.trace(tape, steps=steps):  # noqa: B007 - keeps the last one
            pass
        assert last is not None
        return last

    def trace(
        self, tape: str | Sequence[str] | Mapping[int, str] = "", *, steps: int
    ) -> Iterator[Configuration]:
        """Yield every configuration until the machine halts, at most `steps` steps.

        Args:
            tape: Content of the tape; the head starts at cell 0.
            steps: Largest number of steps.
        """
        require(steps >= 0, "steps", "be at least 0", steps)
        cells, state, head = self.cells(tape), self.start, 0
        for step in range(steps + 1):
            rule = self.rules.get((state, cells.get(head, self.blank)))
            yield Configuration(state, head, dict(cells), rule is None, step)
            if rule is None:
                return
            write, move, state = rule
            if write == self.blank:
                cells.pop(head, None)
            else:
                cells[head] = write
            head += move

    def to_json(self) -> str:
        """The machine as JSON, which `from_json` reads."""
        table: dict[str, dict[str, list[Any]]] = {}
        letter = {-1: "L", 0: "N", 1: "R"}
        for (state, symbol), (write, move, to) in self.rules.items():
            table.setdefault(state, {})[symbol] = [write, letter[move], to]
        return json.dumps({"start": self.start, "blank": self.blank, "rules": table}, indent=1)

    def __repr__(self) -> str:
        return f"TuringMachine({len(self.states)} states, {len(self.symbols)} symbols)"


def _json_rule(rule: Any, name: str) -> Move:
    listed = list(rule.values()) if isinstance(rule, dict) else rule
    valid = isinstance(listed, list) and len(listed) == 3 and str(listed[1]) in _MOVES
    require(valid, name, "be [write, L or R or N, next state]", rule)
    return str(listed[0]), _MOVES[str(listed[1])], str(listed[2])


def busy_beaver(states: int) -> TuringMachine:
    """The busy beaver of 2 to 5 states and two symbols: the longest run on an empty tape.

    References:
        `rado1962`; `brady1983` for four states; `marxen1990` for five.
    """
    require(states in BUSY_BEAVERS, "states", f"be one of {list(BUSY_BEAVERS)}", states)
    return TuringMachine.from_string(BUSY_BEAVERS[states])


def binary_increment() -> TuringMachine:
    """Adds one to a binary number: moves to its end, then carries to the left."""
    return TuringMachine.from_lines("""
        right 0 0 R right
        right 1 1 R right
        right _ _ L carry
        carry 1 0 L carry
        carry 0 1 N done
        carry _ 1 N done
    """)


def palindrome() -> TuringMachine:
    """Erases a word over {a, b} from both ends; halts in `yes` if it is a palindrome."""
    lines = ["start _ _ N yes"]
    for x, other in (("a", "b"), ("b", "a")):
        lines += [
            f"start {x} _ R to_{x}",
            f"to_{x} a a R to_{x}",
            f"to_{x} b b R to_{x}",
            f"to_{x} _ _ L last_{x}",
            f"last_{x} {x} _ L back",
            f"last_{x} {other} {other} N no",
            f"last_{x} _ _ N yes",
        ]
    lines += ["back a a L back", "back b b L back", "back _ _ R start"]
    return TuringMachine.from_lines("\n".join(lines), start="start")


def copy() -> TuringMachine:
    """Appends `|` and a copy to a word over {a, b}: marks a letter, then copies it."""
    lines = ["find | | L clean", "find _ | N done", "home | | L home", "clean _ _ R done"]
    for x, marked in (("a", "A"), ("b", "B")):
        lines += [
            f"find {x} {marked} R carry_{x}",
            f"carry_{x} a a R carry_{x}",
            f"carry_{x} b b R carry_{x}",
            f"carry_{x} _ | R over_{x}",
            f"carry_{x} | | R over_{x}",
            f"over_{x} a a R over_{x}",
            f"over_{x} b b R over_{x}",
            f"over_{x} _ {x} L home",
            f"home {x} {x} L home",
            f"home {marked} {marked} R find",
            f"clean {marked} {x} L clean",
        ]
    return TuringMachine.from_lines("\n".join(lines), start="find")
