"""Programs that generate: each against plain Python that knows nothing of the language."""

import itertools
import json
import random

import pytest
import transformers

from allometry import InputError
from allometry.construct import export, generator, program
from allometry.construct.programs import (
    aggregate,
    arithmetic,
    choose,
    combine,
    digits,
    earliest,
    elementwise,
    floor_divide,
    generators,
    indices,
    interpret,
    latest,
    library,
    named_generators,
    number,
    product,
    remainder,
    select,
    selector_width,
    subleq_machine,
    thresholds,
    tokens,
)
from allometry.construct.stock.hugging_face import write_folder


def counted(prompt):
    start = int(prompt)
    return "".join(f"{(start + k) % 1000:03d} " for k in range(1, 5))


def raised(prompt):
    return f"{int(prompt, 2) + 1:b}"


def calculated(prompt):
    return str(eval(prompt))


def lowest_first(prompt):
    a, b = prompt.rstrip("=").split("+")
    total = int(a) + int(b)
    return str(total).rjust(max(len(a), len(b)) + 1, "0")[::-1] + ">" + str(total)


def running_sums(prompt, places=2):
    a, b = (int(x) for x in prompt.rstrip("=").split("*"))
    text, total = "", 0
    for row in range(places):
        added, carry, line = a * (b // 10**row % 10) * 10**row, 0, 0
        for column in range(2 * places):
            # The digit of the first number times one digit: one term, not a digit of a product.
            term = a // 10 ** (column - row) % 10 * (b // 10**row % 10) if column >= row else 0
            value = total // 10**column % 10 + term + carry
            carry = value // 10
            text += f"{value % 10}{carry}"
            line += value % 10 * 10**column
        total += added
        assert line == total
    return text + ">" + str(a * b)


def completed(prompt):
    stack, quoted = [], False
    for c in prompt:
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "{[":
            stack.append({"{": "}", "[": "]"}[c])
        elif not quoted and c in "}]":
            assert stack.pop() == c
    return '"' * quoted + "".join(reversed(stack))


def stacked(prompt):
    stack, text = [], ""
    for c in prompt.rstrip("="):
        if c in "+-*":
            top, below = stack.pop(), stack.pop()
            stack.append({"+": below + top, "-": below - top, "*": below * top}[c] % 10)
        else:
            stack.append(int(c))
        text += str(stack[-1])
    return text


CASES = {
    "counter": (generators.counter, counted),
    "increment": (lambda: generators.increment(6), raised),
    "closing": (generators.closing, completed),
    "stack machine": (generators.stack_machine, stacked),
    "adder": (arithmetic.adder, calculated),
    "calculator": (lambda: arithmetic.calculator(2), calculated),
    "long addition": (lambda: arithmetic.long_addition(5), lowest_first),
    "long multiplication": (lambda: arithmetic.long_multiplication(2), running_sums),
}


@pytest.mark.parametrize("name", CASES)
def test_generated_text_is_right(name):
    make, oracle = CASES[name]
    made = make()
    prompts = made.prompts
    chosen = prompts if len(prompts) <= 60 else random.Random(0).sample(prompts, 60)
    chosen = [p if isinstance(p, str) else "".join(p) for p in chosen]
    for prompt, new in zip(chosen, made.many(chosen), strict=True):
        assert "".join(new) == oracle(prompt), prompt
    assert made.compare(chosen[:4])[1] == 0
    assert "".join(made.interpret(chosen[0])) == oracle(chosen[0])


def test_subleq_runs_programs_of_others():
    made = subleq_machine.subleq(12, 16, 6)
    # The program that adds two numbers, as in the description of SUBLEQ: 5 + 10 in cell 10.
    memory = [9, 11, 3, 11, 10, 6, 11, 11, -1, 5, 10, 0]
    assert made(subleq_machine.memory_prompt(memory)) == ["11=-5", "@3", "10=15", "@6", "11=0"]
    for prompt, new in zip(made.prompts[:60], made.many(made.prompts[:60]), strict=True):
        cells = [int(word.split("=")[1]) for word in prompt[:-1]]
        assert new == subleq_machine.simulate(cells, 12, 16, 6)
    assert made.compare(made.prompts[:5])[1] == 0


PEERS = {
    "shifted": (library.shifted(2), lambda w: [None, None, *w][: len(w)]),
    "detects": (
        library.detects("ab"),
        lambda w: [None, *("".join(w[i - 1 : i + 1]) == "ab" for i in range(1, len(w)))],
    ),
    "count": (library.count_of("a"), lambda w: [w.count("a")] * len(w)),
    "rare": (
        library.count_rare(2),
        lambda w: [sum(w.count(t) <= 2 for t in w)] * len(w),
    ),
    "parity": (library.parity("a"), lambda w: [w.count("a") % 2] * len(w)),
    "majority": (library.majority("a"), lambda w: [w.count("a") * 2 > len(w)] * len(w)),
}


@pytest.mark.parametrize("name", PEERS)
def test_programs_of_peers_on_every_input(name):
    expr, oracle = PEERS[name]
    made = program(expr, alphabet="ab", n=6)
    for length in range(1, 7):
        words = ["".join(w) for w in itertools.product("ab", repeat=length)]
        for word, answer in zip(words, made.many(words), strict=True):
            assert answer == oracle(list(word)), word


def test_pipeline_generates_the_same_text_in_batches(tmp_path):
    certificate = write_folder(arithmetic.adder(2), tmp_path)
    assert certificate.holds
    assert certificate.architecture == "GPT2LMHeadModel"
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())
    generate = transformers.pipeline("text-generation", model=str(tmp_path))
    prompts = ["99+99\n", "1+2\n", "50+7\n", "0+0\n"]
    for options in ({"batch_size": 4}, {"use_cache": False}, {"do_sample": True}):
        answers = generate(prompts, return_full_text=False, max_new_tokens=5, **options)
        assert [a[0]["generated_text"] for a in answers] == ["198", "3", "57", "0"]


def test_digits_with_carries_are_those_of_the_number():
    values = elementwise(int, tokens, numeric=True)
    columns = [values * 3, values * 40, values * 7]
    places = digits(columns, 5)
    made = program({str(k): x for k, x in enumerate(places)}, alphabet="0123456789", n=1)
    for digit in "0123456789":
        total = int(digit) * (3 + 400 + 700)
        assert [made(digit)[str(k)][0] for k in range(5)] == [
            total // 10**k % 10 for k in range(5)
        ]


def test_quotients_of_sums_too_large_to_list():
    values = elementwise(int, tokens, numeric=True)
    large = number([aggregate(select(indices, k), values, 0) for k in range(6)])
    outputs = {
        "quotient": floor_divide(large, 100_000),
        "passed": thresholds(large, [10, 1000, 500_000]),
        "product": product(values, values),
        "rest": remainder(values * 7, 4),
        "chosen": choose(indices, [values, values * 2], otherwise=5),
    }
    made = program(outputs, alphabet="0123456789", n=6)
    text = "109996"
    found = made(text)
    assert found["quotient"] == [6] * 6
    assert found["passed"] == [3] * 6
    assert found["product"] == [int(c) ** 2 for c in text]
    assert found["rest"] == [int(c) * 7 % 4 for c in text]
    assert found["chosen"] == [1, 0, 5, 5, 5, 5]
    assert found == made.interpret(text)
    with pytest.raises(InputError, match="must take at most 20,000 values"):
        program(elementwise(lambda x: x, large), alphabet="0123456789", n=6)


def test_latest_and_earliest_selected_positions():
    outputs = {
        "latest": aggregate(latest(select(tokens, "a")), indices, -1),
        "earliest": aggregate(earliest(select(tokens, "a")), indices, -1),
    }
    for causal in (False, True):
        made = program(outputs, alphabet="ab", n=6, causal=causal)
        found = made("babab")
        seen = [[j for j in (1, 3) if not causal or j <= i] or [-1] for i in range(5)]
        assert found == {"latest": [s[-1] for s in seen], "earliest": [s[0] for s in seen]}
        assert made.verify(0.3).holds


def test_causal_programs_select_earlier_positions_only():
    count = selector_width(select(tokens, tokens))
    made = program(count, alphabet="ab", n=6, causal=True)
    assert made("aabab") == [1, 2, 1, 3, 2]
    assert made.model.kind == "decoder"
    assert interpret(count, "aabab", causal=True) == [1, 2, 1, 3, 2]


def test_schedule_is_the_narrowest_of_all():
    made = program(combine(lambda a, b: (a, b), tokens, indices), alphabet="ab", n=3)
    assert made.schedule.exact
    assert made.schedule.layers == made.model.depth
    assert made.schedule.width == made.model.width
    assert "narrowest of all" in str(made.schedule)


def test_listing_has_every_head_and_neuron():
    made = generators.counter()
    blocks = made.listing.split("block ")[1:]
    assert len(blocks) == made.model.depth
    for text, block in zip(blocks, made.model.blocks, strict=True):
        heads = text.count("  head ")
        used = 0 if block.attention is None else int(block.attention.output.abs().sum() > 0)
        assert (heads > 0) == bool(used)
        last = [
            line.split(" to ")[1].split(":")[0] for line in text.splitlines() if "neurons" in line
        ]
        if last and block.feed_forward is not None:
            assert int(last[-1]) + 1 == block.feed_forward.inner.shape[0]
    assert "digit above" in made.listing


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: generator(elementwise(lambda t: t * 2, tokens), alphabet="ab", n=4),
            "must output tokens of its alphabet; it may output 'aa', 'bb'",
        ),
        (lambda: generator(tokens, alphabet="ab", n=4, end="c"), "generator.end must be in"),
        (lambda: generators.counter()(""), "prompt must have at least one token"),
        (lambda: generators.counter()("0" * 30), "prompt must be shorter than n"),
        (
            lambda: generator(tokens, alphabet="ab$", n=4, end="$")("a"),
            r"must output '\$' within n = 4 tokens",
        ),
        (
            lambda: program(
                selector_width(latest(select(tokens, "a")) & select(tokens, "b")),
                alphabet="ab",
                n=3,
            ),
            "must be the whole selector of an aggregate",
        ),
        (
            lambda: program(
                selector_width(select(indices, indices, "<")), alphabet="ab", n=3, causal=True
            ),
            "must not exclude only its own position",
        ),
        (lambda: selector_width(latest(select(tokens, "a"))), "must count all positions"),
    ],
)
def test_what_cannot_be_exact_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_generators_are_made_by_name():
    adder = named_generators.named("adder", 1)
    assert adder.n == 7
    for text in ("7+8", "7+8\\n", "7+8\n"):
        prompt = named_generators.prompt_of(adder, text)
        assert "".join(prompt) == "7+8\n"
        assert named_generators.text_of(adder, adder(prompt)) == "15"
    words = named_generators.named("subleq")
    assert named_generators.prompt_of(words, "0=1 1=2 @0") == ["0=1", "1=2", "@0"]
    for name in ("foo", "missing.py:made"):
        with pytest.raises(InputError, match="must be"):
            named_generators.named(name)


@pytest.mark.parametrize("name", named_generators.PROMPTS)
def test_a_prompt_of_another_form_or_size_is_refused(name):
    size = 2
    for prompt in named_generators.named(name, size).prompts or []:
        named_generators.check_prompt(name, size, prompt)
    sign = "*" if name == "long_multiplication" else "+"
    longer = {"counter": "123 ", "increment": "101\n"}.get(name, f"123{sign}1\n")
    with pytest.raises(InputError, match=r"prompt must be .* 2 digits.*; got '1"):
        named_generators.check_prompt(
            name, size, longer.replace("+", "*" if "mul" in name else "+")
        )


def test_the_default_size_limits_prompts():
    named_generators.check_prompt("adder", None, "999+1\n")
    with pytest.raises(InputError, match="at most 3 digits; got '9999"):
        named_generators.check_prompt("adder", None, "9999+1\n")
    named_generators.check_prompt("closing", None, "anything")


def test_a_file_names_a_generator(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "from allometry.construct import generator\n"
        "from allometry.construct.programs import tokens\n"
        "def echo(): return generator(tokens, alphabet='ab', n=4)\n"
        "def other(): return tokens\n"
    )
    made = named_generators.named(f"{file}:echo")
    assert made(named_generators.prompt_of(made, "b")) == ["b", "b", "b"]
    with pytest.raises(InputError, match="must return a generator; got Tokens"):
        named_generators.named(f"{file}:other")


@pytest.mark.parametrize(
    ("to", "name", "files"),
    [
        (None, "made.gguf", ["made.gguf"]),
        ("gguf", "folder", ["folder/model.gguf"]),
        ("transformer-lens", "lens", ["lens/config.json", "lens/model.safetensors"]),
    ],
)
def test_export_writes_every_format(to, name, files, tmp_path):
    made = generators.increment(2)
    export(made, tmp_path / name, to)
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == files
