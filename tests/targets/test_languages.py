import heapq
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError
from allometry.targets import Automaton, Dyck, Grammar, ShuffleDyck

CATALAN = [1, 1, 2, 5, 14, 42, 132, 429]
# Paths of height at most 3 (OEIS A001519) and Motzkin numbers (A001006).
HEIGHT_3 = [1, 1, 2, 5, 13, 34, 89]
MOTZKIN = [1, 1, 2, 4, 9, 21, 51]
GRAMMARS = [
    "S -> '(' S ')' S [0.4] | [0.6]",
    "S -> S S [0.3] | 'a' [0.5] | 'b' S [0.2]",
    "S -> A B\nA -> 'a' A [0.3] | [0.7]\nB -> A 'b' [0.5] | A A [0.5]",
    "S -> T | S 'x' [0.5]\nT -> U\nU -> T [0.2] | 'y' | ",
    "E -> E '+' T | T [3]\nT -> T '*' F | F [3]\nF -> '(' E ')' | 'v' [9]",
    "S -> 'a' S 'a' | 'b' S 'b' | 'a' | 'b' | ",
]
EVEN_ONES = "start: e\naccept: e\ne 0 e\ne 1 o\no 0 o\no 1 e"


def reduce_word(word):
    """Membership of Dyck_k by cancelling neighbours: another way than a stack."""
    while True:
        for i in range(len(word) - 1):
            if word[i] % 2 == 0 and word[i + 1] == word[i] + 1:
                word = word[:i] + word[i + 2 :]
                break
        else:
            return not word


def test_dyck_agrees_with_cancelling_on_every_string_to_length_5():
    language = Dyck(2)
    for n in range(6):
        strings = [list(s) for s in itertools.product(range(4), repeat=n)]
        assert [language.accepts(s) for s in strings] == [reduce_word(s) for s in strings]


def test_dyck_counts_are_catalan_and_bounded_ones_those_of_oeis():
    assert [Dyck(1).count(2 * m) for m in range(8)] == CATALAN
    assert [Dyck(3).count(2 * m) for m in range(8)] == [c * 3**m for m, c in enumerate(CATALAN)]
    assert [Dyck(1, 3).count(2 * m) for m in range(7)] == HEIGHT_3
    assert Dyck(2, 3).count(5) == 0
    assert len(list(Dyck(2, 3).words(6))) == Dyck(2, 3).count(6)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 10), st.integers(0, 2**20))
def test_dyck_verdicts_all_at_once_are_those_one_by_one(k, depth, n, seed):
    language = Dyck(k, depth)
    rng = np.random.default_rng(seed)
    words = rng.integers(2 * k, size=(20, n))
    if n % 2 == 0:
        words = np.concatenate([words, language.near_misses(20, n, rng)])
    is_word, begins = language.verdicts(words)
    for word, row, viable in zip(words.tolist(), is_word, begins, strict=True):
        assert row.tolist() == [language.accepts(word[: t + 1]) for t in range(n)]
        wrong = language.error(word)
        assert viable.tolist() == [wrong is None or t < wrong for t in range(n)]


def test_dyck_uniform_words_are_words_and_alike():
    language = Dyck(1, 2)
    words = language.uniform(8000, 8, np.random.default_rng(0))
    assert language.verdicts(words)[0][:, -1].all()
    seen = Counter(map(tuple, words.tolist()))
    assert len(seen) == language.count(8) == 8
    expected, se = 1000, math.sqrt(8000 * 1 / 8 * 7 / 8)
    assert all(abs(c - expected) < 5 * se for c in seen.values())
    long = Dyck(128, 10).uniform(4, 512, np.random.default_rng(0))
    assert Dyck(128, 10).verdicts(long)[0][:, -1].all()


def test_near_misses_are_mostly_wrong_but_close():
    language = Dyck(8, 10)
    made = language.near_misses(2000, 64, np.random.default_rng(0))
    is_word, _ = language.verdicts(made)
    share = is_word[:, -1].mean()
    assert 0.02 < share < 0.5


@pytest.mark.parametrize(
    "language", [Dyck(2, 3), Dyck(1, 1, 0.7), Dyck(3, None, 0.3)], ids=["2,3", "1,1", "3"]
)
def test_entropy_and_length_are_those_of_samples(language):
    rng = np.random.default_rng(1)
    words = [language.sample(rng) for _ in range(600)]
    for exact, x in (
        (language.mean_length, [len(w) for w in words]),
        (language.entropy, [-language.log_prob(w) for w in words]),
    ):
        assert abs(np.mean(x) - exact.value) < 5 * np.std(x) / math.sqrt(len(x))


def test_dyck_gives_the_position_of_an_error_and_the_partners():
    language = Dyck(2, 3)
    assert language.error("([)]") == 2
    assert language.error("((((") == 3
    assert language.partners("([])") == [3, 2, 1, 0]
    with pytest.raises(InputError, match=r"got '\)' at position 0, which no word allows there"):
        language.next_symbol(")")
    with pytest.raises(InputError, match="got 'x' at position 1"):
        language.accepts("(x")
    with pytest.raises(InputError, match="below 1/2 without a bound"):
        Dyck(2, None, 0.5)


def test_shuffle_dyck_counts_by_brute_force():
    language = ShuffleDyck(2)
    for n in (0, 2, 4, 6):
        strings = itertools.product(range(4), repeat=n)
        assert sum(language.accepts(s) for s in strings) == language.count(n)
        assert len(list(language.words(n))) == language.count(n)
    # The number of such words is C_m C_{m+1} (OEIS A005568).
    assert [language.count(2 * m) for m in range(7)] == [
        CATALAN[m] * CATALAN[m + 1] for m in range(7)
    ]


# --- automata ---------------------------------------------------------------------------------


def test_automaton_counts_and_entropy():
    even = Automaton.from_text(EVEN_ONES)
    assert [even.count(n) for n in range(5)] == [1, 1, 2, 4, 8]
    rng = np.random.default_rng(0)
    words = [even.sample(rng) for _ in range(800)]
    x = [-even.log_prob(w) for w in words]
    assert abs(np.mean(x) - even.entropy.value) < 5 * np.std(x) / math.sqrt(len(x))
    lengths = [len(w) for w in words]
    se = np.std(lengths) / math.sqrt(len(x))
    assert abs(np.mean(lengths) - even.mean_length.value) < 5 * se


def test_nondeterministic_automaton_is_made_deterministic():
    # The third symbol from the end is 1: eight states are needed, and known to suffice.
    text = "start: a\naccept: d\na 0 a\na 1 a\na 1 b\nb 0 c\nb 1 c\nc 0 d\nc 1 d"
    third = Automaton.from_text(text)
    assert len(third.states) == 8
    for n in range(7):
        for word in itertools.product("01", repeat=n):
            word = "".join(word)
            assert third.accepts(word) == (len(word) >= 3 and word[-3] == "1")


def test_automaton_weights_and_errors():
    coin = Automaton.from_text("start: q\naccept: q\nq a q [1]\nq [3]")
    assert coin.next_symbol("aa").tolist() == [0.25, 0.75]
    assert coin.mean_length.value == pytest.approx(1 / 3, rel=1e-12)
    with pytest.raises(InputError, match="line 3 must be 'state symbol state'"):
        Automaton.from_text("start: a\naccept: a\na b")
    with pytest.raises(InputError, match="no accepting state can be reached from a"):
        Automaton.from_text("start: a\naccept: b\na x a")


# --- grammars ---------------------------------------------------------------------------------


def derive(grammar, expansions=4000):
    """Words with their probability, by expanding leftmost the likeliest; and the mass missing."""
    words = Counter()
    queue = [(-1.0, 0, (0,))]
    tick, left = itertools.count(1), 1.0
    for _ in range(expansions):
        if not queue:
            break
        weight, _, form = heapq.heappop(queue)
        place = next((i for i, s in enumerate(form) if s >= 0), None)
        if place is None:
            words[tuple(~s for s in form)] -= weight
            left += weight
            continue
        for head, right, share in grammar._proper:
            if head == form[place]:
                new = form[:place] + right + form[place + 1 :]
                heapq.heappush(queue, (weight * share, next(tick), new))
    return words, left


@pytest.mark.parametrize("text", GRAMMARS)
def test_next_symbol_is_what_expanding_every_derivation_gives(text):
    grammar = Grammar(text)
    words, missing = derive(grammar)
    assert missing < 0.2
    for word, seen in words.most_common(12):
        assert math.exp(grammar.log_prob(list(word))) == pytest.approx(seen, abs=missing + 1e-12)
        assert math.exp(grammar.log_prob(list(word))) >= seen - 1e-12
        for t in range(len(word) + 1):
            begins = sum(p for w, p in words.items() if w[:t] == word[:t])
            exact = math.exp(grammar.prefix_log_prob(list(word[:t])))
            assert begins - 1e-12 <= exact <= begins + missing + 1e-12
            assert grammar.next_symbol(list(word[:t])).sum() == pytest.approx(1, rel=1e-12)


def test_grammar_of_dyck_has_the_distribution_of_dyck():
    grammar, language = Grammar(GRAMMARS[0]), Dyck(1, None, 0.4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        word = language.sample(rng)[:60]
        np.testing.assert_allclose(
            grammar.next_symbol(word), language.next_symbol(word), atol=1e-12
        )
    assert grammar.derivation_entropy.value == pytest.approx(language.entropy.value, rel=1e-12)
    assert grammar.mean_length.value == pytest.approx(language.mean_length.value, rel=1e-12)


def test_termination_by_closed_form():
    # z = 0.6 z^2 + 0.4 has the roots 2/3 and 1; the least is the probability of ending.
    assert Grammar("S -> S S [3] | 'a' [2]").termination.value == pytest.approx(2 / 3, rel=1e-12)
    arithmetic = "E -> E '+' T | T\nT -> T '*' F | F\nF -> '(' E ')' | 'x'"
    assert Grammar(arithmetic).termination.value == pytest.approx(1 / 3, rel=1e-12)
    critical = Grammar("S -> S S | 'a'")
    assert critical.termination.value == 1
    assert math.isinf(critical.mean_length.value)
    assert critical.next_symbol("a")[-1] == pytest.approx(0.5, rel=1e-9)


def test_entropy_of_an_unambiguous_grammar_is_that_of_samples():
    grammar = Grammar(GRAMMARS[4])
    sampled = grammar.entropy(300, np.random.default_rng(0))
    assert abs(sampled.value - grammar.derivation_entropy.value) < 5 * sampled.se


def test_counts_of_words_and_parses():
    assert [Grammar("S -> S S | 'a'").derivations(n) for n in range(1, 8)] == CATALAN[:7]
    motzkin = Grammar("M -> | 'x' M | 'u' M 'd' M")
    assert [motzkin.derivations(n) for n in range(7)] == MOTZKIN
    assert [motzkin.count(n) for n in range(6)] == MOTZKIN[:6]
    ambiguous = Grammar("S -> S S | 'a' | 'b'")
    assert ambiguous.count(3) == 8
    assert ambiguous.derivations(3) == 16
    with pytest.raises(InputError, match="T derives itself"):
        Grammar(GRAMMARS[3]).derivations(3)


def test_parse_is_the_most_probable_tree():
    grammar = Grammar("S -> S S [0.2] | 'a' [0.5] | 'a' 'a' [0.3]")
    assert str(grammar.parse("aa")) == "(S a a)"  # 0.3 against 0.2 * 0.25
    assert grammar.parse("b" if "b" in grammar.alphabet else "") is None
    tree = Grammar(GRAMMARS[4]).parse("v+v*v")
    assert tree is not None
    assert tree.leaves() == list("v+v*v")
    assert str(tree) == "(E (E (T (F v))) + (T (T (F v)) * (F v)))"


def test_long_words_do_not_underflow():
    grammar = Grammar("S -> S 'a' [0.001] | S 'b' [0.899] | [0.1]")
    expected = 300 * math.log(0.001) + math.log(0.1)
    assert expected < math.log(5e-324)
    assert grammar.log_prob([0] * 300) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S -> A", r"grammar line 1 \(S -> A\) must use nonterminals that have rules; got A"),
        ("S -> 'a'\nfoo", "grammar line 2 must begin with 'NAME ->'"),
        ("S -> 'a\nS -> 'b'", "grammar line 1 must be readable at column 5"),
        ("S -> 'a' [x]", r"grammar line 1 must have a number in brackets, not \[x\]"),
        ("S -> 'a' [-1]", "grammar line 1 must have a weight above 0"),
        ("S -> S 'a'", "grammar line 1: S must derive some word"),
        ("# nothing", "grammar must have at least one rule"),
        ("S -> T\nT -> ", "have some terminal"),
    ],
)
def test_malformed_grammars_name_the_line(text, message):
    with pytest.raises(InputError, match=message):
        Grammar(text)
