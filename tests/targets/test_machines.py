import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.targets import TuringMachine
from allometry.targets.machines import binary_increment, busy_beaver, copy, palindrome

words = st.text("ab", max_size=6)


# Steps and ones of the champions, as published (the 5-state one takes 47,176,870 steps).
@pytest.mark.parametrize(("states", "steps", "ones"), [(2, 6, 4), (3, 21, 5), (4, 107, 13)])
def test_busy_beavers_halt_when_they_are_known_to(states, steps, ones):
    end = busy_beaver(states).run(steps=1000)
    assert (end.halted, end.step, len(end.tape)) == (True, steps, ones)
    assert not busy_beaver(states).run(steps=steps - 1).halted


@given(st.integers(0, 500))
def test_increment_adds_one(n):
    end = binary_increment().run(f"{n:b}", steps=100)
    assert end.halted
    assert int(end.text().strip("_"), 2) == n + 1


@given(words)
def test_palindrome_and_copy_do_what_they_say(word):
    end = palindrome().run(word, steps=200)
    assert end.halted
    assert end.state == ("yes" if word == word[::-1] else "no")
    made = copy().run(word, steps=400)
    assert made.halted
    assert made.text().strip("_") == f"{word}|{word}"


def test_trace_is_every_configuration():
    trace = list(busy_beaver(2).trace(steps=100))
    assert [c.step for c in trace] == list(range(7))
    # The run of the 2-state champion: A0 -> 1RB, B0 -> 1LA, A1 -> 1LB, ...
    assert [c.state for c in trace] == ["A", "B", "A", "B", "A", "B", "Z"]
    assert [c.head for c in trace] == [0, 1, 0, -1, -2, -1, 0]


def test_notations_agree():
    short = busy_beaver(3)
    again = TuringMachine.parse(short.to_json())
    assert again.rules == short.rules
    by_lines = TuringMachine.parse(
        "\n".join(
            f"{q} {a} {b} {'L' if m < 0 else 'R'} {p}  ; a comment"
            for (q, a), (b, m, p) in short.rules.items()
        ),
        blank="0",
    )
    assert by_lines.rules == short.rules
    assert by_lines.run(steps=99) == short.run(steps=99)


def test_wildcards_and_missing_rules():
    # Runs right to the first blank, leaving what it reads.
    machine = TuringMachine.parse("go _ _ N end\ngo * * R go")
    assert "*" not in machine.symbols
    undefined = TuringMachine.parse("1RB---_1LA---")
    end = undefined.run("1", steps=5)
    assert (end.halted, end.step, end.state) == (True, 0, "A")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1RB1LC_1RC", "group B of the machine must have three characters for each symbol"),
        ("1RB1XB_1LA1RZ", "rule A1 of the machine must be a symbol below 2, L or R"),
        ("1RB2LB_1LA1RZ", "rule A1 of the machine must be a symbol below 2"),
        (
            "a 0 1 R b\na 0 1 L c",
            r"line 2 must not repeat the rule for \(a, 0\); got it on line 1",
        ),
        ("a 0 1 R", "line 1 must be 'state read write move next'"),
        ("a 0 1 up b", "line 1 must be 'state read write move next'"),
        ('{"rules": {"a": {"0": ["1", "X", "b"]}}}', r"rules\['a'\]\['0'\] must be \[write"),
        ('{"rules": ', "machine must be JSON; line 1"),
        ("", "machine must have at least one line"),
    ],
)
def test_malformed_machines_name_the_rule(text, message):
    with pytest.raises(InputError, match=message):
        TuringMachine.parse(text)


def test_foreign_symbols_are_refused():
    with pytest.raises(InputError, match=r"tape\[1\] must be one of _ 0 1; got 'x'"):
        binary_increment().run("1x", steps=3)


def test_every_two_state_machine_halts_within_six_steps_or_not_in_a_thousand():
    # Rado's theorem for two states: 6 is the most steps of those that halt. A spread sample.
    moves = [f"{s}{d}{q}" for s in "01" for d in "LR" for q in "ABZ"]
    tables = itertools.islice(itertools.product(moves, repeat=4), 0, None, 41)
    for a, b, c, d in tables:
        end = TuringMachine.from_string(f"{a}{b}_{c}{d}").run(steps=30)
        assert not end.halted or end.step <= 6
