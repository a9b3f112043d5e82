"""A sample of the malformed command lines that `bench/malformed.py` tries by thousands."""

import random

import pytest

from tests.fuzz import commands


@pytest.fixture(scope="module")
def valid():
    with commands.folder() as place:
        yield place


@pytest.mark.parametrize("command", commands.COMMANDS, ids=" ".join)
def test_what_mutations_start_from_is_valid(valid, command):
    assert commands.run(commands.Case(command), valid) == (0, "")


def test_malformed_command_lines_end_in_one_sentence(valid):
    rng = random.Random(0)
    wrong = []
    for case in (commands.draw(rng) for _ in range(100)):
        _, why = commands.run(case, valid)
        wrong += [f"{case}: {why}"] if why else []
    assert not wrong, "\n".join(wrong)
