"""Constructions as Llama checkpoints: rotary positions only, RMSNorm, gates."""

import json

import gguf
import numpy as np
import pytest
import torch
import transformers

from allometry import InputError
from allometry.construct import dyck, export, program, turing
from allometry.construct.programs import arithmetic, generators, library
from allometry.construct.stock import llama_construction
from allometry.construct.stock.export_formats import write
from allometry.construct.stock.hugging_face import write_folder
from allometry.construct.stock.rotary_positions import SHARP, rotation
from allometry.models import Transformer

EXACT = {
    "adder": lambda: arithmetic.adder(2),
    "calculator": lambda: arithmetic.calculator(3),
    "counter": lambda: generators.counter(3),
    "stack machine": generators.stack_machine,
    "turing": lambda: turing("1RB1LB_1LA1RZ", steps=10, mode="autoregressive", n=4),
}


@pytest.mark.parametrize("name", EXACT)
def test_float32_checkpoints_are_equal_to_the_last_bit(name, tmp_path):
    certificate = write_folder(EXACT[name](), tmp_path, architecture="llama")
    assert certificate.architecture == "LlamaForCausalLM"
    assert (certificate.precision, certificate.wrong, certificate.difference) == ("float32", 0, 0)
    assert certificate.inner < 1e-3
    config = json.loads((tmp_path / "config.json").read_text())
    assert "auto_map" not in config
    assert not config["attention_bias"]


@pytest.mark.parametrize("form", ["generate", "compact", "program"])
def test_other_causal_constructions(form, tmp_path):
    made = {
        "generate": lambda: dyck(2, 3, 12, mode="generate"),
        "compact": lambda: dyck(2, 3, 12, form="compact"),
        "program": lambda: program(library.majority(), alphabet="01", n=6, causal=True),
    }[form]()
    certificate = write_folder(made, tmp_path, architecture="llama")
    task = "ForCausalLM" if form == "generate" else "ForTokenClassification"
    assert (certificate.architecture, certificate.wrong) == (f"Llama{task}", 0)


def test_pipeline_generates_in_batches_with_and_without_cache(tmp_path):
    write_folder(arithmetic.adder(2), tmp_path, architecture="llama")
    pipe = transformers.pipeline("text-generation", model=str(tmp_path))
    prompts = [f"{a}+{b}\n" for a in (0, 7, 10, 58, 99) for b in (0, 5, 42, 99)]
    for cached in (True, False):
        answers = pipe(prompts, batch_size=7, return_full_text=False, use_cache=cached)
        texts = [a[0]["generated_text"] for a in answers]
        assert texts == [str(eval(p)) for p in prompts]


def test_a_product_that_gpt2_needs_float64_for(tmp_path):
    write_folder(arithmetic.calculator(3), tmp_path, architecture="llama")
    pipe = transformers.pipeline("text-generation", model=str(tmp_path))
    assert pipe.model.dtype == torch.float32
    rng = np.random.default_rng(4)
    prompts = [f"{a}*{b}\n" for a, b in rng.integers(1000, size=(30, 2))] + ["488*453\n"]
    answers = pipe(prompts, batch_size=31, return_full_text=False, max_new_tokens=9)
    assert [a[0]["generated_text"] for a in answers] == [str(eval(p)) for p in prompts]


def test_plain_generate_runs_a_turing_machine_for_200_steps(tmp_path):
    made = turing("1RB1LC_1RC1RB_1RD0LE_1LA1LD_1RZ0LA", steps=200, mode="autoregressive", n=4)
    write_folder(made, tmp_path, architecture="llama")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = model.generate(**tokenizer("", return_tensors="pt"), max_new_tokens=201, do_sample=False)
    machine = made.machine
    truth = [
        f"{c.state}:{c.tape.get(c.head, machine.blank)}" for c in machine.trace("", steps=200)
    ]
    assert tokenizer.decode(ids[0, 2:]).split() == truth
    assert len(truth) == 201


@pytest.mark.parametrize("n", [2, 3, 9, 50, 211, 1000, 2500])
@pytest.mark.parametrize("content", [2, 11, 40])
def test_codes_of_positions_differ_in_float32(n, content):
    found = rotation(n, content, coded=True)
    assert len(np.unique(found.codes, axis=0)) == n - 1
    # As `transformers` computes them.
    size = 2 * found.pairs
    frequency = 1.0 / (found.base ** (torch.arange(0, size, 2, dtype=torch.float) / size))
    angles = torch.arange(1, n).float()[:, None] * frequency
    assert 2 * (found.pairs - found.still) >= content
    assert float(angles[-1, found.still]) <= 2.0**-25
    for bit, column in zip(found.bits, found.codes.T, strict=True):
        angle = angles[:, bit.pair]
        score = bit.cosine * angle.cos() - bit.sine * angle.sin()
        assert float(score.abs().min()) > SHARP / 2
        assert ((score > 0).numpy() == column).all()


def test_rows_of_the_table_of_positions_are_fetched_exactly(tmp_path):
    made = generators.counter(3)
    write_folder(made, tmp_path, architecture="llama")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = made.program.ids(["007 008 00"])
    with torch.no_grad():
        stream = theirs(tokens, output_hidden_states=True).hidden_states[1]
    constants = int((stream[0, 0] > 2.0**10).sum())
    model = made.model
    inner = stream[..., constants : constants + model.width]
    ours = model.table[tokens] + model.position_table[: tokens.shape[1]]
    assert torch.equal(inner.double(), ours)


def test_a_wrong_code_is_caught(tmp_path, monkeypatch):
    honest = llama_construction.rotation

    def damaged(*arguments):
        found = honest(*arguments)
        found.codes[3] = found.codes[4]
        return found

    monkeypatch.setattr(llama_construction, "rotation", damaged)
    with pytest.raises(InputError, match="equal answers in float64"):
        write_folder(arithmetic.adder(2), tmp_path / "folder", architecture="llama")


def test_what_llama_lacks_is_refused(tmp_path):
    sort = program(library.sort(), alphabet="abc", n=5)
    for architecture, name in (("llama", "Llama"), ("gpt2", "GPT-2")):
        with pytest.raises(InputError, match=f"be causal for {name}; got 'encoder'"):
            write_folder(sort, tmp_path / "folder", architecture=architecture)
    with pytest.raises(InputError, match="be one of gpt2, llama; got 'phi'"):
        write_folder(arithmetic.adder(1), tmp_path / "folder", architecture="phi")
    with pytest.raises(InputError, match="be that of a trained model"):
        write_folder(Transformer(5, 8, 1, 2, 8), tmp_path / "folder", architecture="llama")
    with pytest.raises(InputError, match="be given for hf or gguf only"):
        export(arithmetic.adder(1), tmp_path / "folder", "onnx", architecture="llama")
    assert not (tmp_path / "folder").exists()


def test_gguf_files_have_pairs_side_by_side(tmp_path):
    made = arithmetic.adder(1)
    export(made, tmp_path, "gguf", architecture="llama")
    write_folder(made, tmp_path / "hf", architecture="llama")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict()
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    tensors = {t.name: torch.from_numpy(np.array(t.data)) for t in reader.tensors}
    size = int(reader.get_field("llama.attention.key_length").contents())
    query = theirs["model.layers.1.self_attn.q_proj.weight"]
    adjacent = tensors["blk.1.attn_q.weight"]
    # Pair i of a head is (i, i + m/2) in `transformers` and (2i, 2i + 1) in llama.cpp.
    for i in range(size // 2):
        assert torch.equal(adjacent[2 * i], query[i])
        assert torch.equal(adjacent[size + 2 * i + 1], query[size + i + size // 2])
    assert torch.equal(
        tensors["blk.1.attn_v.weight"], theirs["model.layers.1.self_attn.v_proj.weight"]
    )
    base = json.loads((tmp_path / "hf" / "config.json").read_text())["rope_theta"]
    assert reader.get_field("llama.rope.freq_base").contents() == base
    assert not any(name.endswith(".bias") for name in tensors)


def test_gguf_of_trained_llamas(tmp_path):
    options = {"positions": "rotary", "norm_type": "rmsnorm", "bias": False}
    model = Transformer(11, 16, 2, 4, 12, activation="swiglu", key_value_heads=2, **options)
    write(model, tmp_path, "gguf")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    assert reader.get_field("llama.attention.head_count_kv").contents() == 2
    tensors = {t.name: torch.from_numpy(np.array(t.data)) for t in reader.tensors}
    gate = model.blocks[1].feed_forward.gate.detach().float()
    assert torch.equal(tensors["blk.1.ffn_gate.weight"], gate)
    assert tensors["blk.0.attn_k.weight"].shape == (8, 16)
    geglu = Transformer(11, 16, 2, 4, 12, activation="geglu", **options)
    with pytest.raises(InputError, match="have silu for GGUF"):
        write(geglu, tmp_path / "other", "gguf")
