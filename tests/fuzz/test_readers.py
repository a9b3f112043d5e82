"""Every reader takes every input or refuses it in a sentence, soon, and touches nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz import guard
from tests.fuzz.mutations import TEXTS, mutate
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
SLOW = {"fit": 3, "formula": 3, "program": 5, "expression": 10}
"""Readers whose inputs take long get fewer of them."""

BUDGET = float(os.environ.get("FUZZ", "1"))
"""How many times the usual number of inputs to try."""


def pieces(target):
    """Text put together from the pieces of a valid input and of its language."""
    words = [*target.words, *TEXTS, *(w for made in target.seeds for w in made().split()[:20])]
    return st.lists(st.sampled_from(words), max_size=12).map(b" ".join)


def strategy(target):
    """Spoiled valid inputs mostly; pieces in any order; any bytes."""
    seeds = st.sampled_from([made() for made in target.seeds])
    spoiled = st.builds(
        lambda data, rng: mutate(data, rng, target.words),
        seeds,
        st.randoms(use_true_random=False),
    )
    return st.one_of(spoiled, spoiled, spoiled, pieces(target), st.binary(max_size=200))


@pytest.mark.parametrize("name", TARGETS)
def test_valid_inputs_are_taken(name):
    target = TARGETS[name]
    for made in target.seeds:
        assert guard.check(target.read, target.write, made()), name


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_taken_or_refused_in_a_sentence(name):
    target = TARGETS[name]

    @settings(
        max_examples=max(1, int(BUDGET * SLOW.get(name, 25))),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @example(b"")
    @given(strategy(target))
    def run(data):
        guard.check(target.read, target.write, data)

    run()


FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_that_once_failed_do_so_no_more(path):
    target = TARGETS[path.parent.name]
    guard.check(target.read, target.write, path.read_bytes())


def test_the_guard_sees_what_it_is_for(tmp_path):
    """A reader that writes elsewhere, runs a command, fails or hangs is found."""

    def outside(path):
        (tmp_path / "x").write_text("x")

    write = TARGETS["csv"].write
    with pytest.raises(guard.Touched, match="open"):
        guard.check(outside, write, b"")
    with pytest.raises(guard.Touched, match="system"):
        guard.check(lambda _: os.system("true"), write, b"")
    with pytest.raises(KeyError):
        guard.check(lambda _: {}["x"], write, b"")
    old, guard.SECONDS = guard.SECONDS, 1
    try:
        with pytest.raises(guard.Hang):
            guard.check(lambda _: [None for _ in iter(int, 1)], write, b"")
    finally:
        guard.SECONDS = old
