"""GGUF files run by llama.cpp itself, where `llama_cpp` is installed."""

import itertools
import random

import numpy as np
import pytest
import torch

from allometry.construct import export, turing
from allometry.construct.programs import arithmetic, generators
from allometry.construct.stock.export_formats import write
from allometry.models import Transformer

llama_cpp = pytest.importorskip("llama_cpp")

BOTH = pytest.mark.parametrize("architecture", ["gpt2", "llama"])


class Runner:
    """A GGUF file without a tokenizer, run on token ids with keys and values in float32."""

    def __init__(self, path, context):
        # type 0 is float32; the smallest context of llama.cpp is 256.
        options = {"n_threads": 1, "n_threads_batch": 1, "n_gpu_layers": 0, "verbose": False}
        self.llm = llama_cpp.Llama(str(path), n_ctx=context, type_k=0, type_v=0, **options)

    def logits(self, ids):
        """Logits after the last token."""
        self.llm.eval(ids)
        found = llama_cpp.llama_get_logits_ith(self.llm.ctx, -1)
        return np.ctypeslib.as_array(found, (self.llm.n_vocab(),)).copy()

    def greedy(self, ids, longest, end=None):
        """The likeliest tokens, until `end` or `longest` tokens in all."""
        self.llm.reset()
        new, logits = [], self.logits(ids)
        while len(ids) + len(new) <= longest:
            new.append(int(logits.argmax()))
            if new[-1] == end:
                break
            logits = self.logits(new[-1:])
        return new


def random_sums():
    rng = random.Random(5)
    pairs = [(rng.randrange(100), rng.randrange(100)) for _ in range(30)]
    return [f"{a}+{b}\n" for a, b in [(99, 99), (0, 0), *pairs]]


MADE = {
    "adder": (lambda: arithmetic.adder(2), random_sums(), lambda p: str(eval(p))),
    "increment": (
        lambda: generators.increment(4),
        ["".join(w) + "\n" for k in range(1, 5) for w in itertools.product("01", repeat=k)],
        lambda p: f"{int(p, 2) + 1:b}",
    ),
    "counter": (
        lambda: generators.counter(3),
        ["007 ", "098 ", "999 ", "129 "],
        lambda p: "".join(f"{(int(p) + k) % 1000:03d} " for k in range(1, 5)),
    ),
}


@BOTH
@pytest.mark.parametrize("name", MADE)
def test_generators_write_the_right_text(name, architecture, tmp_path):
    make, prompts, truth = MADE[name]
    made = make()
    runner = Runner(
        export(made, tmp_path / "made.gguf", architecture=architecture), context=made.n + 1
    )
    words = list(made.alphabet)
    end = words.index(generators.END) if generators.END in words else None
    for prompt in prompts:
        ids = made.program.ids([list(prompt)])[0].tolist()
        new = runner.greedy(ids, made.n, end)
        text = "".join(words[t] for t in new if t != end)
        assert text == truth(prompt)[: len(text)] if end is None else text == truth(prompt)
        assert new


@BOTH
def test_a_turing_machine_takes_the_right_steps(architecture, tmp_path):
    made = turing("1RB1LB_1LA1RZ", steps=10, mode="autoregressive", n=4)
    runner = Runner(export(made, tmp_path / "made.gguf", architecture=architecture), context=20)
    run = made.slots("")[0].flatten().tolist()
    prompt = made.prompt("")
    assert len(run) > len(prompt) + 4
    assert runner.greedy(prompt, len(run) - 1) == run[len(prompt) :]


@pytest.mark.parametrize("bias", [False, True])
def test_logits_of_a_trained_llama(bias, tmp_path):
    options = {"positions": "rotary", "norm_type": "rmsnorm", "bias": bias}
    model = Transformer(11, 16, 2, 4, 12, activation="swiglu", key_value_heads=2, **options)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(len(name)))
    write(model, tmp_path, "gguf")
    runner = Runner(tmp_path / "model.gguf", context=12)
    tokens = torch.randint(11, (9,), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        ours = model(tokens[None])[0, -1]
    theirs = torch.from_numpy(runner.logits(tokens.tolist()))
    assert float((theirs - ours).abs().max()) < 1e-3
