import json

import numpy as np
import onnxruntime
import pytest
import safetensors
import torch

import allometry as al
from allometry import InputError
from allometry.construct import dyck, export, program, turing
from allometry.construct.programs import library


def brackets(rng):
    return torch.from_numpy(rng.integers(0, 4, size=(64, 9)))


def framed(made, tokens):
    """Start symbol, word and, for the layered recogniser, end symbol."""
    start = torch.full((len(tokens), 1), 4)
    parts = [start, tokens] + ([start + 1] if made.form == "layered" else [])
    return torch.cat(parts, 1)


RNG = np.random.default_rng(0)
LAYERED, COMPACT = dyck(2, 3, 12), dyck(2, 3, 12, form="compact")
LAW = dyck(2, 3, 12, mode="generate")
SORT = program(library.sort(), alphabet="abc", n=8)
BEAVER = turing("1RB1LB_1LA1RZ", steps=6, mode="looped")
UNIVERSAL = al.construct.universal(al.targets.functions.attention, d=1, n=2, delta=1 / 4)
CASES = {
    "layered": (LAYERED.model, framed(LAYERED, brackets(RNG))),
    "compact": (COMPACT.model, framed(COMPACT, brackets(RNG))),
    "generator": (LAW.model, framed(COMPACT, brackets(RNG))),
    "sort": (SORT.model, torch.tensor([[3, 0, 2, 1, 1, 0], [3, 2, 2, 1, 0, 1]])),
    "beaver": (BEAVER.model, torch.tensor([[4, *[0] * 6, 2, *[0] * 6]])),
    "universal": (UNIVERSAL.model, torch.from_numpy(RNG.random((64, 1, 2)))),
}


@pytest.mark.parametrize("name", CASES)
def test_onnx_gives_the_same_outputs(name, tmp_path):
    model, tokens = CASES[name]
    path = export(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (out,) = session.run(["outputs"], {"tokens": tokens.numpy()})
    # The same arithmetic in another order: rounding of numbers up to some hundreds.
    with torch.no_grad():
        np.testing.assert_allclose(out, model(tokens).numpy(), rtol=1e-9, atol=1e-9)


def test_onnx_verdicts_are_the_languages(tmp_path):
    path = export(LAYERED, tmp_path / "dyck.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for length in (1, 2, 5, 6, 8):
        words = np.random.default_rng(length).integers(0, 4, size=(200, length))
        words[::2] = LAYERED.language.uniform(100, length, RNG) if length % 2 == 0 else words[::2]
        tokens = framed(LAYERED, torch.from_numpy(words)).numpy()
        (out,) = session.run(["outputs"], {"tokens": tokens})
        truth = [LAYERED.language.accepts(w.tolist()) for w in words]
        assert (out[:, 0, 0] < 0.5).tolist() == truth


def test_safetensors_say_what_they_are(tmp_path):
    path = export(LAYERED, tmp_path / "dyck.safetensors")
    with safetensors.safe_open(path, framework="pt") as file:
        config = json.loads(file.metadata()["config"])
        weights = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    assert config["depth"] == 4
    assert config["hard"]
    assert config["sights"][0] == ["before", "after"]
    again = dyck(2, 3, 12).model
    again.load_state_dict(weights)
    tokens = CASES["layered"][1]
    assert torch.equal(again(tokens), LAYERED.model(tokens))


def test_what_can_not_be_exported_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"export\.to must be one of safetensors, onnx, hf"):
        export(LAYERED, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"export\.made must be a decoder that generates tokens"):
        export(LAYERED, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []
    both = al.models.Transformer(4, 8, 1, 2, 4, kind="encoder-decoder")
    with pytest.raises(InputError, match=r"export\.made must be a decoder or an encoder for ONNX"):
        export(both, tmp_path / "model.onnx")
