"""Loops by depth: the same blocks applied several times, against plain Python."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry import InputError
from allometry.construct import export, generator, program
from allometry.construct.programs import (
    aggregate,
    combine,
    elementwise,
    indices,
    library,
    loop,
    numerical,
    select,
    selector_width,
    subleq_machine,
    tokens,
)
from allometry.construct.stock.hugging_face import write_folder
from allometry.models import Transformer
from allometry.models.transformer.attention_weights import attention_weights
from tests.support.random_programs import random_loop


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_parity_of_every_prefix():
    made = program(library.parity_by_steps(), alphabet="01", n=9)
    assert (len(made.model.blocks), made.model.depth) == (1, 9)
    for n in range(1, 10):
        words = ["".join(w) for w in itertools.product("01", repeat=n)]
        answers = made.many(words)
        assert answers == [[w[: i + 1].count("1") % 2 for i in range(n)] for w in words]


def halted(memory, steps, cells, largest):
    """SUBLEQ from its definition; the memory after at most `steps` instructions."""
    memory, at = list(memory), 0
    read = lambda i: memory[i] if 0 <= i < len(memory) else -1  # noqa: E731
    for _ in range(steps):
        a, b, c = read(at), read(at + 1), read(at + 2)
        if not (0 <= at < cells and 0 <= a < cells and 0 <= b < cells):
            break
        result = read(b) - read(a)
        if abs(result) > largest:
            break
        if b < len(memory):
            memory[b] = result
        at = c if result <= 0 else at + 3
    return memory


def test_subleq_runs_in_shared_blocks():
    made = subleq_machine.subleq_by_depth()
    assert made.model.depth == 16 * len(made.model.blocks)
    assert made([9, 11, 3, 11, 10, 6, 11, 11, -1, 5, 10, 0])[10] == 15  # 5 + 10
    rng = np.random.default_rng(1)
    memories = rng.integers(-3, 16, size=(400, 16)).tolist()
    memories += rng.integers(-16, 17, size=(100, 16)).tolist()
    answers = made.many(memories)
    assert answers == [halted(m, 16, 16, 16) for m in memories]
    assert sum(a != m for a, m in zip(answers, memories, strict=True)) > 100


def test_more_repetitions_take_no_more_parameters():
    def counter(times):
        step = lambda s: {"c": elementwise(lambda v: min(v + 1, 40), s["c"])}  # noqa: E731
        start = {"c": elementwise(lambda _: 0, indices)}
        return program(loop(start, step, times=times), alphabet="a", n=2)

    assert [counter(k)("aa") for k in (1, 7, 30)] == [[k, k] for k in (1, 7, 30)]
    sizes = {parameters(counter(k).model) for k in (1, 7, 30)}
    assert len(sizes) == 1


def test_the_first_position_is_the_same_before_every_repetition():
    made = program(library.parity_by_steps(), alphabet="01", n=6)
    states = made.model.states(made.ids(["110101"]))[:, 0, 0]
    assert torch.equal(states, states[:1].expand_as(states))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_any_loop_agrees_with_the_interpreter(seed):
    rng = random.Random(seed)
    expr, causal = random_loop(rng, rng.randint(1, 2), rng.randint(1, 5)), rng.random() < 0.4
    try:
        made = program(expr, alphabet=[0, 1], n=4, causal=causal)
    except InputError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "aggregate" in refused or "own position" in refused
        return
    for n in range(1, 5):
        words = [list(w) for w in itertools.product([0, 1], repeat=n)]
        assert made.compare(words)[1] == 0


def test_means_and_widths_within_a_loop():
    # The share of ones among the positions that are still marked, rounded each time.
    def step(s):
        marked = select(s["mark"], True)
        share = aggregate(marked, numerical(elementwise(lambda t: t == "1", tokens)))
        count = selector_width(marked)
        return {
            "mark": combine(lambda m, i: m and i > 0, s["mark"], indices - s["age"]),
            "age": elementwise(lambda a: min(a + 1, 4), s["age"], numeric=True),
            "seen": combine(lambda x, c: (round(float(x) * 60), c), share, count),
        }

    start = {
        "mark": elementwise(lambda t: t in "01", tokens),
        "age": elementwise(lambda _: 0, indices, numeric=True),
        "seen": elementwise(lambda _: (0, 0), indices),
    }
    made = program(loop(start, step, times=3, result="seen"), alphabet="01", n=5)
    assert made.verify(1.0).wrong == 0
    assert made("10110")[0] == (40, 3)  # after two repetitions positions 2, 3 and 4 are marked


def test_a_generator_with_a_loop_by_depth():
    # Each step of generation takes three steps of depth: x -> 3 x + 1 mod 10, thrice.
    step = lambda s: {"x": elementwise(lambda v: (3 * v + 1) % 10, s["x"])}  # noqa: E731
    digit = elementwise(int, tokens)
    expr = loop({"x": digit}, step, times=3, result=lambda s: elementwise(str, s["x"]))
    made = generator(expr, alphabet="0123456789", n=6)
    x, text = 4, ""
    for _ in range(5):
        for _ in range(3):
            x = (3 * x + 1) % 10
        text += str(x)
    assert "".join(made("4")) == text
    assert made.interpret("4") == made("4")


def test_exports_are_unrolled(tmp_path):
    made = program(library.parity_by_steps(), alphabet="01", n=5)
    certificate = write_folder(made, tmp_path / "hf")
    assert (certificate.layers, certificate.wrong) == (5, 0)
    export(made, tmp_path / "loop.onnx")
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "loop.onnx"))
    ids = made.ids(["01101", "11111"])
    (out,) = session.run(None, {"tokens": ids.numpy()})
    torch.testing.assert_close(torch.from_numpy(out), made.model(ids))
    causal = program(library.parity_by_steps(), alphabet="01", n=5, causal=True)
    for architecture in ("gpt2", "llama"):
        certificate = write_folder(causal, tmp_path / architecture, architecture=architecture)
        assert certificate.wrong == 0
        assert certificate.layers == 5 + (architecture == "llama")


def test_groups_of_shared_blocks_are_their_unrolled_twin():
    rng = torch.Generator().manual_seed(2)
    looped = Transformer(7, 16, 6, 2, 10, shared=2, rng=rng)
    assert (len(looped.blocks), looped.depth) == (2, 6)
    plain = Transformer(7, 16, 6, 2, 10)
    state = looped.state_dict()
    for name in plain.state_dict():
        if name.startswith("blocks."):
            layer, rest = name.removeprefix("blocks.").split(".", 1)
            state[name] = state[f"blocks.{int(layer) % 2}.{rest}"]
    plain.load_state_dict(state)
    tokens = torch.randint(7, (3, 8), generator=rng)
    with torch.no_grad():
        assert torch.equal(looped(tokens), plain(tokens))
        maps = attention_weights(looped, tokens)
        for ours, theirs in zip(maps.itself, attention_weights(plain, tokens).itself, strict=True):
            assert torch.equal(ours, theirs)
        cache = looped.new_cache()
        parts = [looped(tokens[:, i : i + 1], cache=cache) for i in range(8)]
        torch.testing.assert_close(torch.cat(parts, 1), plain(tokens))
    with pytest.raises(InputError, match=r"divide depth \(6\)"):
        Transformer(7, 16, 6, 2, 10, shared=4)


def counting(bound):
    return lambda s: {"c": elementwise(lambda v: v + 1 if v < bound else v, s["c"])}


ZERO = elementwise(lambda _: 0, indices)
LEAKED = []
loop({"x": tokens}, lambda s: LEAKED.append(s["x"]) or {})
REFUSED = {
    "endless": (lambda: loop({"c": ZERO}, counting(10**9)), "keep to at most 1,024 values"),
    "inside": (lambda: loop({"c": ZERO}, counting(3)) + 1, "a loop must be the whole program"),
    "state outside": (lambda: LEAKED[0], "must be used inside its loop only"),
    "start": (lambda: loop({"c": indices + tokens}, counting(9)), "start as a function of"),
    "several": (
        lambda: loop({"a": tokens, "b": indices}, lambda s: {}, result=lambda s: s["a"] > s["b"]),
        "must be a function of one state",
    ),
    "unproven": (
        lambda: loop(
            {"a": elementwise(str, tokens)},
            lambda s: {"a": aggregate(select(s["a"], s["a"]), s["a"], default="0")},
        ),
        "select at most one position in a loop",
    ),
    "unknown state": (lambda: loop({"a": tokens}, lambda s: {"b": s["a"]}), "return states of a"),
    "times": (lambda: loop({"a": tokens}, lambda s: {}, times=0), "lie between 1 and 10,000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_loop_cannot_do_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        program(make(), alphabet=[0, 1], n=4)
