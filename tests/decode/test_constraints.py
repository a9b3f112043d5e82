import itertools
import json
import re
import time

import pytest
import torch
from scipy import stats

from allometry import InputError, decode
from allometry.models import KneserNey
from allometry.targets.vocabulary import Bytes

# Even number of ones, at most four tokens more, over {0, 1, 2}.
EVEN = decode.Automaton({0: {0: 0, 1: 1}, 1: {0: 1, 1: 0}}, 0, [0], 3)
TEXT = torch.tensor([0, 1, 1, 0, 2, 0, 1, 0, 0, 1, 2, 1, 1, 1, 0] * 4)


@pytest.fixture(scope="module")
def model():
    return KneserNey(3, 3).fit(TEXT)


def truth(model, n):
    """log p of every allowed sequence by enumeration, given the prompt (0, 1)."""
    out = {}
    for x in itertools.product(range(3), repeat=n):
        if 2 in x or x.count(1) % 2:
            continue
        out[x] = model.log_prob(torch.tensor([0, 1, *x]))[2:].sum().exp().item()
    return out


def test_exact_posterior_samples_are_those_of_enumeration(model):
    table = truth(model, 4)
    samples, log_mass = decode.exact_posterior(
        model.logits, [0, 1], EVEN, n=4, memory=2, samples=20_000, rng=0
    )
    assert log_mass.exp().item() == pytest.approx(sum(table.values()), rel=1e-10)
    seen = dict.fromkeys(table, 0)
    for row in samples.tolist():
        seen[tuple(row)] += 1
    want = torch.tensor(list(table.values()))
    statistic = stats.chisquare(list(seen.values()), 20_000 * want / want.sum()).statistic
    assert statistic < stats.chi2.isf(1e-6, len(table) - 1)


def test_particles_come_near_the_posterior_and_the_local_mask_does_not():
    # A fair first token; then 0 is likely after 0, and 2 is unlikely after 1.
    first = torch.tensor([0.5, 0.5, 0.0])
    then = torch.tensor([[0.9, 0.0, 0.1], [0.05, 0.9, 0.05], [1.0, 0.0, 0.0]])

    def logits(tokens):
        if tokens.shape[1] == 1:
            return first.log().expand(len(tokens), -1)
        return then[tokens[:, -1]].log()

    path = decode.Automaton({"": {0: "0", 1: "1"}, "0": {0: "e"}, "1": {2: "e"}}, "", ["e"], 3)
    exact = {(0, 0): 0.45, (1, 2): 0.025}
    local = decode.sample(logits, [[0]] * 4000, decode.constrained(path), n=2, rng=0)
    share = (local[:, 0] == 0).double().mean().item()
    assert share == pytest.approx(0.5, abs=5 * 0.5 / 4000**0.5)
    weighed, log_mass = decode.posterior(
        logits, [0], path, n=2, samples=4000, particles=4000, rng=0
    )
    want = exact[0, 0] / sum(exact.values())
    share = (weighed[:, 0] == 0).double().mean().item()
    assert share == pytest.approx(want, abs=0.02)
    assert log_mass.exp().item() == pytest.approx(sum(exact.values()), rel=0.05)


def test_the_posterior_of_particles_is_that_of_the_exact_method(model):
    # Sequences of exactly four tokens: the automaton counts them.
    moves = {
        (i, odd): {0: (i + 1, odd), 1: (i + 1, not odd)} for i in range(4) for odd in (False, True)
    }
    four = decode.Automaton(moves, (0, False), [(4, False)], 3)
    table = truth(model, 4)
    total = sum(table.values())
    samples, log_mass = decode.posterior(
        model.logits, [0, 1], four, n=4, samples=3000, particles=3000, rng=1
    )
    assert log_mass.exp().item() == pytest.approx(total, rel=0.05)
    for x, weight in table.items():
        share = (samples == torch.tensor(x)).all(1).double().mean().item()
        # 3,000 particles, and 3,000 draws from them: the variance of both.
        assert abs(share - weight / total) < 5 * (2 * 0.25 / 3000) ** 0.5


def test_dead_ends_are_cut_before_they_trap(model):
    trap = decode.Automaton({0: {0: 1, 1: 9}, 1: {1: 2}, 9: {0: 9}}, 0, [2], 3)
    assert trap.allowed(0).tolist() == [True, False, False]
    assert decode.sample(model, [0], decode.constrained(trap), n=9).tolist() == [0, 1]
    with pytest.raises(InputError, match="lead to an accepting state"):
        decode.Automaton({0: {0: 0}}, 0, [5], 3)


def test_running_out_of_tokens_cuts_where_it_was_complete(model):
    pairs = decode.Automaton({0: {0: 1}, 1: {1: 0}}, 0, [0], 3)
    assert decode.sample(model, [0], decode.constrained(pairs), n=5).tolist() == [0, 1, 0, 1]


def test_an_end_token_ends_only_what_is_complete(model):
    found = decode.sample(model, [[0]] * 200, decode.constrained(EVEN, end=2), n=60, rng=0)
    for row in found.tolist():
        body = [t for t in row if t >= 0]
        if 2 in body:
            assert body.index(2) == len(body) - 1
        assert body.count(1) % 2 == 0


# Grammars through llguidance.

BYTES = Bytes().token_bytes()
ASCII = [bytes([i]) for i in range(32, 127)] + [b"\n", b"", b"true", b"foo", b"12"]


def near_flat(V, seed=0):
    logits = torch.randn(V, generator=torch.Generator().manual_seed(seed))
    return lambda tokens: logits.expand(len(tokens), -1)


def spell(row, tokens):
    return b"".join(tokens[t] for t in row if t >= 0).decode()


def test_every_sample_matches_the_expression():
    pattern = r"[a-c]{2,5}(12|foo)?-[0-9]{1,3}"
    strategy = decode.constrained(decode.regex(pattern, ASCII))
    found = decode.sample(near_flat(len(ASCII)), [[0]] * 50, strategy, n=30, rng=0)
    for row in found.tolist():
        assert re.fullmatch(pattern, spell(row, ASCII))


def test_every_sample_is_json_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 12, 3]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    strategy = decode.constrained(decode.json_schema(schema, ASCII))
    # Likely ends of white space, or sampling may dawdle between the braces.
    logits = near_flat(len(ASCII))(torch.zeros(1, 1))[0].clone()
    logits[[0, 95]] = -20.0
    found = decode.sample(lambda t: logits.expand(len(t), -1), [[0]] * 20, strategy, n=80, rng=0)
    for row in found.tolist():
        read = json.loads(spell(row, ASCII))
        assert set(read) == {"ok", "n"}
        assert isinstance(read["ok"], bool)


def test_every_sample_parses_in_a_context_free_grammar():
    source = 'start: "(" start? ")" | "[" start "]" | "x"'
    strategy = decode.constrained(decode.lark(source, BYTES))
    logits = torch.full((256,), -1.0)
    logits[ord("x")] = 1.0
    found = decode.sample(lambda t: logits.expand(len(t), -1), [[0]] * 40, strategy, n=60, rng=0)
    done = 0
    for row in found.tolist():
        text = spell(row, BYTES)
        while (shorter := re.sub(r"\(\)|\[x\]|\(x\)", "x", text)) != text:
            text = shorter
        assert text in ("x", "")
        done += text == "x"
    assert done > 30


def test_a_mask_takes_less_than_a_hundred_microseconds():
    tokens = [bytes([i]) for i in range(28, 128)]
    grammar = decode.regex(r"[a-z]+( [a-z]+)*\.", tokens)
    state = grammar.start()
    spent = []
    for letter in b"the quick brown fox jumps over the lazy dog" * 3:
        before = time.perf_counter()
        grammar._bits(state)
        spent.append(time.perf_counter() - before)
        state = grammar.advance(state, letter - 28)
    assert sorted(spent)[len(spent) // 2] < 100e-6


def test_bad_grammars_are_refused():
    with pytest.raises(InputError, match="grammar must be valid"):
        decode.regex("(((", ASCII)
    grammar = decode.regex("a", ASCII)
    with pytest.raises(InputError, match="must be allowed"):
        grammar.advance(grammar.start(), ASCII.index(b"b"))
