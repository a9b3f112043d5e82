"""The peers' own programs, compiled by them and by us in one process.

    python bench/peers_programs.py [--tracr CHECKOUT] [--alta CHECKOUT] [--torchwright FOLDER]
        [--level 1] [--repeats 3] [--json FILE]

Run it with an interpreter that has this package and the peers' dependencies (jax and haiku for
Tracr, torchwright from PyPI). CHECKOUT is a copy of the peer's repository, FOLDER one with
torchwright's `examples`. A suite without its peer shows our columns only for torchwright's tasks;
Tracr's and ALTA's are skipped. Our programs are written from the descriptions of theirs.

Compile times are medians of CPU seconds, interleaved. Truth is plain Python for ALTA and
torchwright, and Tracr's evaluator of the source program for Tracr. `level` is torchwright's
`optimize`: 1 to 3 use its exact scheduler.
"""

import argparse
import dataclasses
import importlib
import itertools
import json
import operator
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import needs
import numpy as np
import torch

from allometry.construct import program
from allometry.construct.programs import (
    arithmetic,
    combine,
    elementwise,
    generators,
    indices,
    library,
    numerical,
    select,
    selector_width,
    shallow,
    subleq_machine,
    tokens,
)
from allometry.construct.stock.hugging_face import write_folder

TRACR = {
    "frac_prevs_1": library.fraction_previous(lambda t: t == "l"),
    "frac_prevs_2": library.fraction_previous(lambda t: t == "("),
    "frac_prevs_3": library.fraction_previous(lambda t: t == ")"),
    "shift_by_one": library.shifted(1),
    "shift_by_two": library.shifted(2),
    "detect_pattern_a": library.detects("a"),
    "detect_pattern_ab": library.detects("ab"),
    "detect_pattern_abc": library.detects("abc"),
    "reverse": library.reverse(),
    "length_categorical": elementwise(int, library.length()),
    "length_numerical": library.length(),
    "pair_balance": library.pair_balance("(", ")"),
    "shuffle_dyck2": library.shuffle_dyck(["()", "{}"]),
    "shuffle_dyck3": library.shuffle_dyck(["()", "{}", "[]"]),
    "hist": library.histogram(),
    "sort_unique_1": shallow.sort([1, 2, 3, 4]),
    "sort_unique_2": shallow.reverse("abcd", 5),
    "sort_1": shallow.sort([1, 2, 3, 4]),
    "sort_2": shallow.reverse("abcd", 5),
    "sort_3": shallow.sort([1, 2, 3, 4]),
    "sort_freq": shallow.sort_by_frequency([1, 2, 3, 4], 5),
    "make_count_less_freq_categorical": elementwise(int, shallow.count_rare(2, "abcd")),
    "make_count_less_freq_numerical": shallow.count_rare(2, "abcd"),
    "make_count": library.count_of("a"),
    "make_nary_sequencemap_1": combine(lambda x, i: x + x - i, tokens, indices),
    "make_nary_sequencemap_2": combine(lambda i, x: i * i / x, indices, tokens),
    "selector_width": selector_width(select(indices, indices, "<=")),
}
"""Ours by the longest prefix of the name of Tracr's test case."""

UNSUPPORTED = {
    "numerical_selector": selector_width(select(tokens, tokens, "<")),
    "numerical_SequenceMap": combine(operator.add, indices, tokens),
    "categorical_LinearSequenceMap": elementwise(int, indices + numerical(tokens)),
    "numerical_tokens": numerical(tokens),
    "numerical_indices": numerical(indices),
    "numerical_numerical_aggregate": library.aggregate(library.everything(), numerical(tokens)),
}
"""Programs that Tracr refuses and ours compiles."""


def ours_for(name):
    return TRACR[max((key for key in TRACR if name.startswith(key)), key=len)]


def seconds(make, repeats=1):
    times, made = [], None
    for _ in range(repeats):
        start = time.process_time()
        made = make()
        times.append(time.process_time() - start)
    return made, times


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def layers(model):
    """The number of layers, and how often they are applied if they are shared."""
    own = len(model.blocks)
    return own if own == model.depth else f"{own}, {model.depth // own} times"


def same(ours, truth, lenient=False):
    """Whether answers are right; a lenient comparison skips positions without an answer."""

    def equal(a, b):
        if lenient and b is None:
            return True
        if a is None or b is None:
            return a is b
        if isinstance(a, str) or isinstance(b, str):
            return a == b
        return abs(float(a) - float(b)) < 1e-4

    return len(ours) == len(truth) and all(map(equal, ours, truth))


def words_for(case, name):
    """Every input up to length 4 (at most 400), and 20 of full length."""
    letters = sorted(case["vocab"], key=str)
    rng = np.random.default_rng(0)
    if name.startswith("sort_unique"):
        return [list(w) for k in range(1, 5) for w in itertools.permutations(letters, k)]
    short = [list(w) for k in range(1, 5) for w in itertools.product(letters, repeat=k)]
    random.Random(0).shuffle(short)
    long = rng.integers(len(letters), size=(20, case["max_seq_len"])).tolist()
    fits = [w for w in short if len(w) <= case["max_seq_len"]][:400]
    return fits + [[letters[i] for i in row] for row in long]


def tracr_suite(checkout, repeats):
    sys.path.insert(0, checkout)
    import jax
    from tracr.compiler import compiling, test_cases

    rows = []
    cases = [(c, False) for c in test_cases.TEST_CASES]
    cases += [(c, True) for c in test_cases.CAUSAL_TEST_CASES if c not in test_cases.TEST_CASES]
    for case, causal in cases:
        name, n = case["testcase_name"], case["max_seq_len"]
        expr, letters = ours_for(name), sorted(case["vocab"], key=str)
        mine, theirs, made, peer = [], [], None, None
        for _ in range(repeats):
            made, took = seconds(lambda e=expr, a=letters, m=n: program(e, alphabet=a, n=m))
            mine += took
            peer, took = seconds(
                lambda c=case, k=causal: compiling.compile_rasp_to_model(
                    c["program"],
                    vocab=c["vocab"],
                    max_seq_len=c["max_seq_len"],
                    causal=k,
                    compiler_bos="BOS",
                )
            )
            theirs += took
        words = words_for(case, name)
        wrong = bad = tried = 0
        for word in words:
            truth = list(case["program"](word)) if not causal else made.interpret(word)
            wrong += not same(made(word), truth)
        for word in words[-20:]:
            truth = list(case["program"](word)) if not causal else made.interpret(word)
            tried += 1
            try:
                bad += not same(peer.apply(["BOS", *word]).decoded[1:], truth, lenient=True)
            except Exception:
                bad += 1
        wrong += not same(made(case["test_input"]), case["expected_output"])
        rows.append(
            {
                "program": name,
                "layers": [made.model.depth, peer.model_config.num_layers],
                "width": [
                    made.model.width,
                    int(jax.tree_util.tree_leaves(peer.params)[0].shape[-1]),
                ],
                "parameters": [
                    parameters(made.model),
                    sum(x.size for x in jax.tree_util.tree_leaves(peer.params)),
                ],
                "seconds": [statistics.median(mine), statistics.median(theirs)],
                "wrong": [f"{wrong} of {len(words) + 1}", f"{bad} of {tried}"],
            }
        )
        show(rows[-1])
    for name, expr in UNSUPPORTED.items():
        made = program(expr, alphabet=[1, 2, 3], n=5)
        certificate = made.verify(1.0)
        rows.append(
            {
                "program": f"{name} (Tracr refuses)",
                "layers": [made.model.depth, None],
                "width": [made.model.width, None],
                "parameters": [parameters(made.model), None],
                "seconds": [None, None],
                "wrong": [f"{certificate.wrong} of {certificate.tried}", None],
            }
        )
        show(rows[-1])
    return rows


LENGTHS = (8, 16, 32, 64)


def longest(make, tries=6):
    """The largest of LENGTHS at which `tries` random inputs are right; 0 if none is."""
    best = 0
    for n in LENGTHS:
        try:
            if not make(n, tries):
                break
        except Exception:
            break
        best = n
    return best


def tracr_lengths(checkout):
    from tracr.compiler import compiling, lib
    from tracr.rasp import rasp

    rows = []
    tasks = {
        "length": (
            library.length(),
            lambda n: lib.make_length(),
            "abc",
            lambda w: [len(w)] * len(w),
        ),
        "sort": (
            library.sort(),
            lambda n: lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=n, min_key=1),
            [1, 2, 3, 4, 5],
            sorted,
        ),
    }
    for name, (expr, theirs, letters, oracle) in tasks.items():

        def draws(n, tries, letters=letters):
            rng = np.random.default_rng(n)
            return [[letters[i] for i in rng.integers(len(letters), size=n)] for _ in range(tries)]

        def mine(n, tries, expr=expr, letters=letters, oracle=oracle, draws=draws):
            made = program(expr, alphabet=letters, n=n)
            return all(made(w) == oracle(w) for w in draws(n, tries))

        def peer(n, tries, theirs=theirs, letters=letters, oracle=oracle, draws=draws):
            made = compiling.compile_rasp_to_model(
                theirs(n), vocab=set(letters), max_seq_len=n, compiler_bos="BOS"
            )
            return all(
                same(made.apply(["BOS", *w]).decoded[1:], oracle(w)) for w in draws(n, tries)
            )

        rows.append({"program": name, "longest": [longest(mine), longest(peer)]})
        print(f"longest length right of {LENGTHS}: {name} {rows[-1]['longest']}", flush=True)
    return rows


def sizes_of(value):
    if isinstance(value, np.ndarray):
        return value.size
    if dataclasses.is_dataclass(value):
        return sum(sizes_of(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, dict):
        return sum(sizes_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(sizes_of(v) for v in value)
    return int(getattr(value, "size", 0)) if hasattr(value, "shape") else 0


def alta_suite(checkout, repeats):
    sys.path.insert(0, checkout)
    from framework.compiler import compiler_config, compiler_utils
    from framework.transformer import transformer_utils

    (
        parity,
        addition,
        subleq,
    ) = (importlib.import_module(f"examples.{name}") for name in ("parity", "addition", "subleq"))
    rng = random.Random(0)
    bits = [[rng.randint(0, 1) for _ in range(rng.randint(1, 10))] for _ in range(40)]
    pairs = [(rng.randint(0, 999), rng.randint(0, 999)) for _ in range(40)]
    memory = [9, 11, 3, 11, 10, 6, 11, 11, -1, 5, 10, 0]

    def run(weights, ids, layers):
        return transformer_utils.run_transformer(
            weights, learned_ffn_params=None, input_ids=ids, max_layers=layers, verbose=False
        )

    def parity_wrong(weights):
        answers = [run(weights, [*w, parity.EOS_VALUE], 2)[-1] for w in bits[:20]]
        return sum(a != sum(w) % 2 for a, w in zip(answers, bits, strict=False)), 20

    def addition_wrong(weights):
        done = [
            addition.process_output(run(weights, addition.preprocess_input(a, b), 10))
            for a, b in pairs[:20]
        ]
        return sum(d != a + b for d, (a, b) in zip(done, pairs, strict=False)), 20

    def subleq_wrong(weights):
        out = subleq.decode_outputs(run(weights, subleq.encode_inputs(memory), 16))
        return int(out[10] != 15), 1

    def our_parity(made):
        return sum(made("".join(map(str, w)))[-1] != sum(w) % 2 for w in bits), len(bits)

    def our_addition(made):
        answers = made.many([f"{a}+{b}=" for a, b in pairs])
        done = ["".join(a).split(">")[1] for a in answers]
        return sum(d != str(a + b) for d, (a, b) in zip(done, pairs, strict=True)), len(pairs)

    def prefix_wrong(made):
        words = ["".join(map(str, w)) for w in bits]
        truth = [[sum(w[: i + 1]) % 2 for i in range(len(w))] for w in bits]
        return sum(made(w) != t for w, t in zip(words, truth, strict=True)), len(words)

    def steps_wrong(weights):
        truth = [[sum(w[: i + 1]) % 2 for i in range(len(w))] for w in bits[:20]]
        answers = [run(weights, w, 10) for w in bits[:20]]
        return sum(list(a) != t for a, t in zip(answers, truth, strict=True)), 20

    def depth_wrong(made):
        return int(made(memory)[10] != 15), 1

    def our_subleq(made):
        wrong = 0
        for prompt, new in zip(made.prompts, made.many(made.prompts), strict=True):
            cells = [int(word.split("=")[1]) for word in prompt[:-1]]
            wrong += new != subleq_machine.simulate(cells, 16, 16, 12)
        wrong += made(subleq_machine.memory_prompt(memory))[2] != "10=15"
        return wrong, len(made.prompts) + 1

    tasks = {
        "parity (sum mod 2), 10 bits": (
            lambda: program(library.parity(), alphabet="01", n=10),
            lambda: parity.build_sum_mod_2_program_spec(max_input_length=10),
            our_parity,
            parity_wrong,
        ),
        "parity of every prefix, by steps, 10 bits": (
            lambda: program(library.parity_by_steps(), alphabet="01", n=10),
            lambda: parity.build_sequential_program_absolute(max_input_length=10),
            prefix_wrong,
            steps_wrong,
        ),
        "addition, 3 digits": (
            lambda: arithmetic.long_addition(3),
            addition.build_sparse_program_spec,
            our_addition,
            addition_wrong,
        ),
        "SUBLEQ, 16 cells": (
            subleq_machine.subleq,
            subleq.build_program_spec_sparse,
            our_subleq,
            subleq_wrong,
        ),
        "SUBLEQ, 16 cells, by depth": (
            subleq_machine.subleq_by_depth,
            subleq.build_program_spec_sparse,
            depth_wrong,
            subleq_wrong,
        ),
    }
    rows = []
    for name, (make, spec, check, peer_check) in tasks.items():
        mine, theirs, made, weights = [], [], None, None
        for _ in range(repeats):
            made, took = seconds(make)
            mine += took
            weights, took = seconds(
                lambda s=spec: compiler_utils.compile_transformer(s(), compiler_config.Config())
            )
            theirs += took
        rows.append(
            {
                "program": name,
                "layers": [layers(made.model), "1, looped"],
                "width": [made.model.width, None],
                "parameters": [parameters(made.model), sizes_of(weights)],
                "seconds": [statistics.median(mine), statistics.median(theirs)],
                "wrong": [
                    "{} of {}".format(*check(made)),
                    "{} of {}".format(*peer_check(weights)),
                ],
            }
        )
        show(rows[-1])
    return rows


def draw(n, f, count, seed=0):
    rng = random.Random(seed)
    return [f(*(rng.randrange(n) for _ in range(2)), rng) for _ in range(count)]


WRIGHT = {
    "binary_increment": (
        lambda: generators.increment(4),
        ["".join(w) + "\n" for k in range(1, 5) for w in itertools.product("01", repeat=k)],
        lambda p: f"{int(p, 2) + 1:b}",
    ),
    "adder": (
        lambda: arithmetic.adder(3),
        draw(1000, lambda a, b, _: f"{a}+{b}\n", 400),
        lambda p: str(eval(p)),
    ),
    "calculator_simple": (
        lambda: arithmetic.calculator(3),
        draw(1000, lambda a, b, r: f"{a}{r.choice('+-*')}{b}\n", 400),
        lambda p: str(eval(p)),
    ),
}
"""Ours, prompts and the truth, by the name of torchwright's example."""

THEIRS = {"adder": lambda p: str(eval(p) % 1000)}
"""The truth for torchwright's example where it is another: it drops the highest carry."""


def pipeline(folder):
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.pipeline("text-generation", model=str(folder))


def generated(pipe, prompts, truth):
    """Wrong answers, and generated tokens a second."""
    start, wrong, count = time.process_time(), 0, 0
    for prompt in prompts:
        text = pipe(prompt, return_full_text=False, max_new_tokens=9, do_sample=False)[0][
            "generated_text"
        ]
        wrong += text.strip() != truth(prompt)
        count += len(truth(prompt)) + 1
    return wrong, count / (time.process_time() - start)


def wright_suite(folder, repeats, level):
    compile_bundle = None
    if folder:
        sys.path.insert(0, folder)
        from torchwright import compile_hf_bundle as compile_bundle
    rows = []
    for name, (make, prompts, truth) in WRIGHT.items():
        mine, exported, theirs, made = [], [], [], None
        with tempfile.TemporaryDirectory() as scratch:
            ours, peer = Path(scratch) / "ours", Path(scratch) / "peer"
            for _ in range(repeats if name != "calculator_simple" else 1):
                made, took = seconds(make)
                mine += took
                _, took = seconds(lambda m=made, o=ours: write_folder(m, o))
                exported += [took[0] + mine[-1]]
                if compile_bundle:
                    example = importlib.import_module(f"examples.{name}")
                    node, embedding = example.create_network_parts()
                    _, took = seconds(
                        lambda e=example, n=node, b=embedding, p=peer: compile_bundle(
                            n, b, p, d=e.D_MODEL, d_head=e.D_HEAD, optimize=level
                        )
                    )
                    theirs += took
            answers = made.many(prompts)
            wrong = sum("".join(a) != truth(p) for a, p in zip(answers, prompts, strict=True))
            few = prompts[:20]
            stock_wrong, speed = generated(pipeline(ours), few, truth)
            config = json.loads((ours / "config.json").read_text())
            own = json.loads((ours / "allometry.json").read_text())["certificate"]
            row = {
                "program": name,
                "layers": [made.model.depth],
                "width": [config["n_embd"]],
                "parameters": [own["parameters"]],
                "seconds": [statistics.median(mine)],
                "with checkpoint": [statistics.median(exported)],
                "wrong": [f"{wrong} of {len(prompts)}, stock {stock_wrong} of {len(few)}"],
                "tokens/s": [round(speed)],
            }
            if compile_bundle:
                config = json.loads((peer / "config.json").read_text())
                from safetensors.torch import load_file

                size = sum(
                    x.numel() for f in peer.glob("*.safetensors") for x in load_file(f).values()
                )
                bad, speed = generated(pipeline(peer), few, THEIRS.get(name, truth))
                for key, value in (
                    ("layers", config["num_hidden_layers"]),
                    ("width", config["hidden_size"]),
                    ("parameters", size),
                    ("seconds", statistics.median(theirs)),
                    ("with checkpoint", statistics.median(theirs)),
                    ("wrong", f"{bad} of {len(few)}"),
                    ("tokens/s", round(speed)),
                ):
                    row[key].append(value)
            rows.append(row)
            show(row)
    return rows


def show(row):
    cells = [f"{row['program']:<36}"]
    for key, values in row.items():
        if key != "program":
            shown = " | ".join(
                "-" if v is None else f"{v:,.4g}" if isinstance(v, float) else f"{v}"
                for v in values
            )
            cells.append(f"{key} {shown}")
    print("  ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracr", help="CHECKOUT")
    parser.add_argument("--alta", help="CHECKOUT")
    parser.add_argument("--torchwright", help="FOLDER with examples")
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("each cell: ours | the peer's")
    found = {}
    if given.tracr:
        found["tracr"] = tracr_suite(given.tracr, given.repeats)
        found["lengths"] = tracr_lengths(given.tracr)
    if given.torchwright or not (given.tracr or given.alta):
        found["torchwright"] = wright_suite(given.torchwright, given.repeats, given.level)
    if given.alta:
        sys.modules.pop("examples", None)
        found["alta"] = alta_suite(given.alta, given.repeats)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    needs.run(main)
