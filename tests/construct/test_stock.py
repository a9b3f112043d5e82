import json

import gguf
import numpy as np
import pytest
import torch
import transformers

import allometry as al
from allometry import InputError
from allometry.construct import dyck, program, turing
from allometry.construct.programs import arithmetic, library
from allometry.construct.stock.export_formats import write
from allometry.construct.stock.hugging_face import write_folder
from allometry.models import Transformer
from allometry.targets.vocabulary import BPE, Bytes, Characters

CASES = {
    "generator": (lambda: dyck(2, 3, 12, mode="generate"), "GPT2LMHeadModel"),
    "compact": (lambda: dyck(2, 3, 12, form="compact"), "GPT2ForTokenClassification"),
    "layered": (lambda: dyck(2, 3, 12), "MPNetForTokenClassification"),
    "sort": (
        lambda: program(library.sort(), alphabet="abc", n=8),
        "MPNetForTokenClassification",
    ),
    "length": (
        lambda: program(library.length(), alphabet="ab", n=5),
        "BertForTokenClassification",
    ),
    "cellular": (
        lambda: turing("1RB1LB_1LA1RZ", steps=6, mode="looped"),
        "BertForTokenClassification",
    ),
    "universal": (
        lambda: al.construct.universal(al.targets.functions.attention, d=1, n=2, delta=1 / 4),
        "BertForTokenClassification",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_constructions_load_as_stock_checkpoints(name, tmp_path):
    make, architecture = CASES[name]
    certificate = write_folder(make(), tmp_path)
    assert certificate.holds
    assert certificate.architecture == architecture
    assert certificate.answers > 0
    assert not list(tmp_path.glob("*.py"))
    config = json.loads((tmp_path / "config.json").read_text())
    assert "auto_map" not in config
    assert json.loads((tmp_path / "allometry.json").read_text())["certificate"]["wrong"] == 0


def test_a_checkpoint_with_one_changed_weight_is_caught(tmp_path, monkeypatch):
    from allometry.construct.stock import gpt2

    honest = gpt2.constructed

    def damaged(*arguments):
        made = honest(*arguments)
        made.weights["lm_head.weight"][0] += 100.0
        return made

    monkeypatch.setattr(gpt2, "constructed", damaged)
    with pytest.raises(InputError, match="equal answers in float64"):
        write_folder(dyck(2, 3, 12, mode="generate"), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_verdicts_of_the_stock_checkpoint_are_the_languages(tmp_path):
    made = dyck(2, 3, 12)
    write_folder(made, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path)
    rng = np.random.default_rng(5)
    for length in range(2, 13, 2):
        words = rng.integers(0, 4, size=(40, length))
        words[::2] = made.language.uniform(20, length, rng)
        texts = ["".join(made.language.alphabet[i] for i in w) for w in words]
        with torch.no_grad():
            out = model(**tokenizer(texts, return_tensors="pt")).logits
        truth = [made.language.accepts(text) for text in texts]
        assert (out[:, 0, 0] < 0.5).tolist() == truth


def test_plain_generate_runs_a_turing_machine_for_200_steps(tmp_path):
    # The five-state champion runs for 47 million steps; its first 200 suffice.
    made = turing("1RB1LC_1RC1RB_1RD0LE_1LA1LD_1RZ0LA", steps=200, mode="autoregressive", n=4)
    write_folder(made, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = model.generate(**tokenizer("", return_tensors="pt"), max_new_tokens=201, do_sample=False)
    marks = tokenizer.decode(ids[0, 2:]).split()
    machine = made.machine
    truth = [
        f"{c.state}:{c.tape.get(c.head, machine.blank)}" for c in machine.trace("", steps=200)
    ]
    assert len(truth) == 201
    assert marks == truth


def test_batches_with_padding_and_pipelines_generate_the_same(tmp_path):
    made = turing("1RB1LB_1LA1RZ", steps=10, mode="autoregressive", n=4)
    write_folder(made, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tapes = ["", "1", "1 0 1"]
    batch = tokenizer(tapes, return_tensors="pt", padding=True)
    for cached in (True, False):
        ids = model.generate(**batch, max_new_tokens=11, do_sample=False, use_cache=cached)
        for row, tape in zip(ids[:, batch["input_ids"].shape[1] :], tapes, strict=True):
            want = [f"{q}:{a}" for q, a in made.tokens(tape.replace(" ", ""))]
            assert tokenizer.decode(row).split()[: len(want)] == want
    pipe = transformers.pipeline("text-generation", model=str(tmp_path))
    text = pipe("1", max_new_tokens=11, do_sample=False, return_full_text=False)
    want = [f"{q}:{a}" for q, a in made.tokens("1")]
    assert text[0]["generated_text"].split() == want


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", None])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_logits_of_trained_models_are_equal(positions, activation, tmp_path):
    rng = torch.Generator().manual_seed(3)
    model = Transformer(
        13, 24, 2, 3, 16, positions=positions, activation=activation, readout_scale=0.7, rng=rng
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=rng)
    certificate = write_folder(model, tmp_path)
    assert certificate.difference < 1e-5
    tokens = torch.randint(13, (2, 9), generator=rng)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens), rtol=0, atol=1e-4)


TEXT = "To be, or not to be:\n\nthat is the question. Äpfel\t!"


@pytest.mark.parametrize(
    "vocabulary",
    [Characters("To be,rnthaisqu.\n!"), Bytes(), BPE.trained(TEXT * 20, 280)],
    ids=["characters", "bytes", "bpe"],
)
def test_tokenizers_agree_with_the_vocabulary(vocabulary, tmp_path):
    model = Transformer(vocabulary.size, 8, 1, 2, 64, positions="rotary")
    write_folder(model, tmp_path, vocabulary)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = vocabulary.encode(TEXT).tolist()
    assert tokenizer(TEXT)["input_ids"] == ids
    assert tokenizer.decode(ids) == vocabulary.decode(ids)


def test_models_without_a_stock_counterpart_are_refused(tmp_path):
    for options in ({"norm": "post"}, {"kind": "encoder"}, {"bias": ["readout"]}):
        model = Transformer(5, 8, 1, 2, 8, **options)
        with pytest.raises(InputError, match=r"export\.model must .* for a stock checkpoint"):
            write_folder(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_gguf_files_hold_the_weights(positions, tmp_path):
    model = Transformer(13, 24, 2, 3, 16, positions=positions, activation="gelu_tanh").float()
    write(model, tmp_path, "gguf")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    tensors = {t.name: torch.from_numpy(np.array(t.data)) for t in reader.tensors}
    block = model.blocks[1]
    torch.testing.assert_close(
        tensors["blk.1.ffn_up.weight"], block.feed_forward.inner.detach(), rtol=0, atol=0
    )
    # llama.cpp splits the joint projection into all queries, all keys, all values.
    joint = torch.cat([block.attention.query, block.attention.key, block.attention.value])
    torch.testing.assert_close(tensors["blk.1.attn_qkv.weight"], joint.detach())
    assert torch.equal(tensors["output.weight"], model.readout.detach())
    architecture = "gptneox" if positions == "rotary" else "gpt2"
    assert reader.get_field(f"{architecture}.block_count").contents() == 2
    with pytest.raises(InputError, match="be a decoder that generates tokens"):
        write(dyck(2, 3, 12), tmp_path, "gguf")


def test_the_check_of_an_export_shows_no_progress_bar(tmp_path, capsys):
    al.construct.export(dyck(2, 2, 4, mode="generate"), tmp_path / "hf", to="hf")
    assert "Loading weights" not in capsys.readouterr().err


def test_float32_is_refused_where_neurons_are_near_their_thresholds(tmp_path):
    # Six-digit products: on 24 samples all tokens are right in float32, but 488*453 is not.
    made = arithmetic.calculator(3)
    certificate = write_folder(made, tmp_path)
    assert (certificate.precision, certificate.needs) == ("float64", "float64")
    generate = transformers.pipeline("text-generation", model=str(tmp_path))
    answer = generate("488*453\n", return_full_text=False, max_new_tokens=9)
    assert answer[0]["generated_text"] == str(488 * 453)
    with pytest.raises(InputError, match="exact in float32"):
        write(made, tmp_path / "gguf", "gguf")
    assert not (tmp_path / "gguf").exists()
