"""Trained transformers in the formats of other programs: logits equal ours to 1e-4."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from allometry import InputError
from allometry.construct import dyck, export, program
from allometry.construct.programs import arithmetic, library
from allometry.construct.stock.export_formats import write
from allometry.models import Transformer

MODELS = {
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "sinusoidal tied": {"positions": "sinusoidal", "tied": True, "activation": "gelu_tanh"},
    "shared silu": {"shared": True, "activation": "silu"},
    "post": {"norm": "post", "bias": False},
    "encoder": {"kind": "encoder", "activation": "relu"},
    "llama": {
        "positions": "rotary",
        "norm_type": "rmsnorm",
        "activation": "swiglu",
        "key_value_heads": 2,
    },
    "qwen": {
        "positions": "rotary",
        "norm_type": "rmsnorm",
        "activation": "swiglu",
        "qk_norm": True,
    },
}


def random_model(options):
    rng = torch.Generator().manual_seed(1)
    model = Transformer(11, 16, 2, 4, 12, rng=rng, **options).float()
    for weight in model.parameters():  # biases and gains that are not 0 and 1
        weight.data += 0.1 * torch.randn(weight.shape, generator=rng, dtype=weight.dtype)
    return model.eval()


TOKENS = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", MODELS)
def test_onnx_of_trained_models(name, tmp_path):
    model = random_model(MODELS[name])
    path = export(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (out,) = session.run(["outputs"], {"tokens": TOKENS.numpy()})
    assert out.dtype == np.float32
    with torch.no_grad():
        np.testing.assert_allclose(out, model(TOKENS).numpy(), rtol=0, atol=1e-4)


def lens_logits(weights, config, tokens):
    """The forward pass that TransformerLens documents for these names."""
    act = {
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }[config["act_fn"]]

    def norm(x, name):
        if config["normalization_type"] is None:
            return x
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + config["eps"]).sqrt()
        return x * weights[f"{name}.w"] + weights[f"{name}.b"]

    def rotated(x):
        if config["positional_embedding_type"] != "rotary":
            return x
        half = config["rotary_dim"] // 2
        angle = torch.arange(x.shape[1])[:, None] * config["rotary_base"] ** (
            -torch.arange(half) / half
        )
        cos, sin = (torch.cat([f, f], -1)[:, None] for f in (angle.cos(), angle.sin()))
        flipped = torch.cat([-x[..., half:], x[..., :half]], -1)
        return (x * cos + flipped * sin).to(x.dtype)

    x = weights["embed.W_E"][tokens]
    if config["positional_embedding_type"] == "standard":
        x = x + weights["pos_embed.W_pos"][: tokens.shape[1]]
    for i in range(config["n_layers"]):
        at, w = f"blocks.{i}", weights
        y = norm(x, f"{at}.ln1")
        q, k, v = (
            torch.einsum("bnd,hdm->bnhm", y, w[f"{at}.attn.W_{c}"]) + w[f"{at}.attn.b_{c}"]
            for c in "QKV"
        )
        scores = torch.einsum("bqhm,bkhm->bhqk", rotated(q), rotated(k)) / config["attn_scale"]
        if config["attention_dir"] == "causal":
            n = tokens.shape[1]
            scores = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf)
        z = torch.einsum("bhqk,bkhm->bqhm", scores.softmax(-1), v)
        x = x + torch.einsum("bqhm,hmd->bqd", z, w[f"{at}.attn.W_O"]) + w[f"{at}.attn.b_O"]
        y = norm(x, f"{at}.ln2")
        hidden = act(y @ w[f"{at}.mlp.W_in"] + w[f"{at}.mlp.b_in"])
        x = x + hidden @ w[f"{at}.mlp.W_out"] + w[f"{at}.mlp.b_out"]
    return norm(x, "ln_final") @ weights["unembed.W_U"] + weights["unembed.b_U"]


def read_lens(folder):
    config = json.loads((folder / "config.json").read_text())
    return load_file(folder / "model.safetensors"), config


@pytest.mark.parametrize(
    "name", ["learned", "rotary", "sinusoidal tied", "shared silu", "encoder"]
)
def test_transformer_lens_of_trained_models(name, tmp_path):
    model = random_model(MODELS[name])
    write(model, tmp_path, "transformer-lens")
    with torch.no_grad():
        torch.testing.assert_close(
            lens_logits(*read_lens(tmp_path), TOKENS), model(TOKENS), rtol=0, atol=1e-4
        )


def test_transformer_lens_of_constructions(tmp_path):
    made = arithmetic.adder(2)
    write(made, tmp_path, "transformer-lens")
    ids = made.slots("95+27\n122")[0]
    logits = lens_logits(*read_lens(tmp_path), ids)[0]
    text = [made.alphabet[i] for i in logits[6:].argmax(-1).tolist()]
    assert "".join(text) == "122$"
    assert read_lens(tmp_path)[1]["normalization_type"] is None
    hard = dyck(2, 3, 12, form="compact")
    write(hard, tmp_path / "dyck", "transformer-lens")
    tokens = torch.tensor([[4, 0, 2, 3, 1]])
    out = lens_logits(*read_lens(tmp_path / "dyck"), tokens)
    assert torch.equal(out > 0.5, hard.model(tokens) > 0.5)


def test_what_transformer_lens_lacks_is_refused(tmp_path):
    for name, message in (
        ("llama", "have LayerNorm, no gate"),
        ("post", "norms before its parts"),
    ):
        with pytest.raises(InputError, match=message):
            write(random_model(MODELS[name]), tmp_path, "transformer-lens")
    sort = program(library.sort(), alphabet="abc", n=5)
    with pytest.raises(InputError, match="one mask for all its heads"):
        write(sort, tmp_path, "transformer-lens")
