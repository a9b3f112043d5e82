import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry import InputError
from allometry.construct import turing
from allometry.construct.turing import verify
from allometry.targets import TuringMachine
from allometry.targets.machines import binary_increment, busy_beaver, copy, palindrome

MODES = ("depth", "looped", "autoregressive")
MOVES = [f"{s}{d}{q}" for s in "01" for d in "LR" for q in "ABZ"]


def same(made, tape=""):
    """Every configuration of the network equal to the simulator's."""
    return list(made.trace(tape)) == list(made.machine.trace(tape, steps=made.steps))


def two_state_machines():
    return (f"{a}{b}_{c}{d}" for a, b, c, d in itertools.product(MOVES, repeat=4))


def halts(text, steps):
    """Steps and ones of a two-state machine on an empty tape; None if it does not halt."""
    table = {"A": text[:6], "B": text[7:]}
    state, head, ones = "A", 0, set()
    for step in range(steps + 1):
        if state == "Z":
            return step, len(ones)
        at = 3 * (head in ones)
        write, move, to = table[state][at : at + 3]
        (ones.add if write == "1" else ones.discard)(head)
        state, head = to, head + (1 if move == "R" else -1)
    return None


def test_all_two_state_busy_beavers():
    # Champions: those that halt after the most steps (6), or with the most ones (4).
    ends = {text: halts(text, 30) for text in two_state_machines()}
    assert max(end for end in ends.values() if end) == (6, 4)
    champions = [text for text, end in ends.items() if end and (end[0] == 6 or end[1] == 4)]
    assert len(champions) >= 10
    for i, text in enumerate(champions):
        made = turing(text, steps=7, mode=("autoregressive", "looped")[i % 4 == 0])
        assert same(made), text
        assert (made("").step, len(made("").tape)) == ends[text]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("states", "steps"), [(3, 21), (4, 107)])
def test_champions_of_three_and_four_states(states, steps, mode):
    made = turing(busy_beaver(states), steps=steps, mode=mode)
    assert same(made)
    end = made("")
    assert (end.halted, end.step) == (True, steps)
    if mode != "autoregressive":
        assert made.model.depth == steps  # one block a step
    else:
        assert made.model.depth == 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (binary_increment(), ["", "0", "1", "1011", "111"]),
        (palindrome(), ["", "a", "ab", "abba", "abab"]),
        (copy(), ["", "b", "ab"]),
    ],
    ids=["increment", "palindrome", "copy"],
)
def test_machines_with_input(machine, words, mode):
    made = turing(machine, steps=40, mode=mode)
    for word in words:
        assert same(made, word)


def test_first_steps_of_the_five_state_champion():
    made = turing(busy_beaver(5), steps=600, mode="autoregressive", n=0)
    assert same(made)


@pytest.mark.slow
def test_ten_thousand_steps_of_the_five_state_champion():
    made = turing(busy_beaver(5), steps=10_000, mode="autoregressive", n=0)
    truth = busy_beaver(5).trace(steps=10_000)
    steps = 0
    for mine, theirs in zip(made.trace(), truth, strict=True):
        assert mine == theirs
        steps += 1
    assert steps == 10_001


@pytest.mark.slow
def test_every_two_state_machine():
    for text in two_state_machines():
        assert same(turing(text, steps=8, mode="looped"))
        assert same(turing(text, steps=8, mode="autoregressive"))


@settings(max_examples=25)
@given(st.data())
def test_random_machines_with_more_symbols_and_staying(data):
    # Blanks, names and moves of every kind: nothing is special about 0 and 1.
    states, symbols = ["p", "q", "halt"], ["_", "x", "y"]
    rules = {
        (q, a): (
            data.draw(st.sampled_from(symbols)),
            data.draw(st.sampled_from([-1, 0, 1])),
            data.draw(st.sampled_from(states)),
        )
        for q in states[:2]
        for a in symbols
        if data.draw(st.integers(0, 5)) > 0 or (q, a) == ("p", "_")
    }
    machine = TuringMachine(rules, "p")
    word = data.draw(st.text("_xy", max_size=4))
    word = "".join(a for a in word if a in machine.symbols)
    for mode in ("looped", "autoregressive"):
        assert same(turing(machine, steps=12, mode=mode, n=4 if mode[0] == "a" else None), word)


def test_width_grows_with_the_logarithm_of_time():
    narrow = turing(busy_beaver(3), steps=16, mode="looped").model.width
    wide = turing(busy_beaver(3), steps=256, mode="looped").model.width
    assert wide - narrow == 3 * 4  # four more bits in three numbers of cells
    short = turing(busy_beaver(3), steps=16, mode="autoregressive").model.width
    assert turing(busy_beaver(3), steps=256, mode="autoregressive").model.width == short


def test_a_head_that_leaves_the_window_is_an_error():
    made = turing(busy_beaver(4), steps=107, mode="looped", cells=(-3, 3))
    with pytest.raises(InputError, match=r"it left -3 to 3 at step \d+. Give a wider range"):
        made("")
    with pytest.raises(InputError, match=r"tape must lie within cells 0 to 1; got \[2\]"):
        turing(binary_increment(), steps=5, cells=(0, 1))("111")
    # What lies beyond the reach of the head can't matter, and stays.
    assert same(turing(binary_increment(), steps=2), "10101")


def test_certificates_count_configurations():
    proof = verify(turing(binary_increment(), steps=8, mode="looped"), 2)
    assert proof.holds
    assert proof.tried > 13
    broken = turing(binary_increment(), steps=8, mode="looped")
    broken.model.blocks[0].feed_forward.outer[:, -1] *= 0
    assert not verify(broken, 2).holds


def test_mistakes_are_refused():
    with pytest.raises(InputError, match=r"turing\.mode must be one of depth, looped"):
        turing(busy_beaver(2), steps=5, mode="wide")
    with pytest.raises(InputError, match=r"turing\.steps must be at least 1; got 0"):
        turing(busy_beaver(2), steps=0)
    with pytest.raises(InputError, match="need at most 100,000 slots"):
        turing(busy_beaver(2), steps=10**6, mode="autoregressive")
    with pytest.raises(InputError, match="have at most n = 2 cells; got 3"):
        turing(binary_increment(), steps=5, mode="autoregressive", n=2)("111")
    with pytest.raises(InputError, match="rule A1 of the machine"):
        turing("1RB1XB_1LA1RZ", steps=5)


@pytest.mark.parametrize("mode", ["depth", "looped", "autoregressive"])
def test_a_run_that_no_machine_could_hold_is_refused_at_once(mode):
    with pytest.raises(InputError, match=r"turing\.steps must"):
        turing(busy_beaver(2), steps=10**7, mode=mode)
