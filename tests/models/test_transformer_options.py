"""RMSNorm, SwiGLU, grouped-query attention and QK-norm against Llama and Qwen3."""

import json

import pytest
import torch
from torch.nn import functional as F

import allometry as al
from allometry.construct.export import export
from allometry.construct.stock.export_formats import write
from allometry.models import Transformer
from allometry.models.transformer.attention_weights import attention_weights
from allometry.train.budget import count_next_token, count_parameters
from allometry.train.packed.stack import StackedModels

MODERN = {"norm_type": "rmsnorm", "activation": "swiglu", "positions": "rotary"}
STYLES = [
    MODERN,
    MODERN | {"key_value_heads": 2},
    MODERN | {"key_value_heads": 1, "qk_norm": True},
    {"qk_norm": True},
    {"activation": "geglu", "key_value_heads": 2, "positions": "sinusoidal"},
    {"norm_type": "rmsnorm", "norm": "post", "bias": False},
]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def decoder(dtype=torch.float32, **changes):
    """A small decoder whose every weight, gains and biases too, is random."""
    shape = {"vocabulary": 13, "width": 32, "depth": 2, "heads": 4, "context": 16}
    model = Transformer(**(shape | changes)).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=rng(p.numel())).to(dtype))
    return model


def llama(qk_norm):
    """A random Llama, or a Qwen3, which also normalises queries and keys."""
    import transformers

    sizes = {"vocab_size": 13, "hidden_size": 32, "intermediate_size": 40, "head_dim": 8}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"max_position_embeddings": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    name = "Qwen3" if qk_norm else "Llama"
    config = getattr(transformers, f"{name}Config")(**sizes)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=rng(p.numel())).float())
    return model


NAMES = {
    "attention.query": "self_attn.q_proj.weight",
    "attention.key": "self_attn.k_proj.weight",
    "attention.value": "self_attn.v_proj.weight",
    "attention.output": "self_attn.o_proj.weight",
    "attention.query_norm.weight": "self_attn.q_norm.weight",
    "attention.key_norm.weight": "self_attn.k_norm.weight",
    "feed_forward.gate": "mlp.gate_proj.weight",
    "feed_forward.inner": "mlp.up_proj.weight",
    "feed_forward.outer": "mlp.down_proj.weight",
    "attention_norm.weight": "input_layernorm.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
}


@pytest.mark.parametrize("qk_norm", [False, True])
@torch.no_grad()
def test_logits_equal_those_of_llama_and_qwen3(qk_norm):
    theirs = llama(qk_norm)
    shape = MODERN | {"hidden": 40, "key_value_heads": 2, "bias": False, "qk_norm": qk_norm}
    ours = Transformer(13, 32, 2, 4, 16, **shape).float()
    ends = {"table": "model.embed_tokens.weight", "readout": "lm_head.weight"}
    ends |= {"final_norm.weight": "model.norm.weight"}
    weights = theirs.state_dict()
    state = {
        name: weights[ends.get(name) or f"model.layers.{name[7]}.{NAMES[name.split('.', 2)[2]]}"]
        for name in ours.state_dict()
    }
    ours.load_state_dict(state)
    assert sum(p.numel() for p in ours.parameters()) == sum(map(torch.numel, weights.values()))
    tokens = torch.randint(13, (12, 16), generator=rng())
    expected = theirs(tokens).logits
    assert expected.std() > 0.5
    for some in (tokens, tokens[:2]):  # the fused kernel, and torch's attention for few tokens
        torch.testing.assert_close(ours(some), expected[: len(some)], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("style", STYLES, ids=str)
@torch.no_grad()
def test_a_cache_changes_nothing(style):
    model = decoder(torch.float64, **style)
    tokens = torch.randint(13, (3, 12), generator=rng())
    cache = model.new_cache()
    steps = [model(part, cache=cache) for part in tokens.split([3, 1, 1, 5, 1, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))
    padding = torch.zeros(3, 12, dtype=torch.bool)
    padding[1, :4] = True
    alone = model(tokens[1:2, 4:])
    torch.testing.assert_close(model(tokens, padding=padding)[1:2, 4:], alone)


@pytest.mark.parametrize("style", STYLES[:3], ids=str)
def test_stacked_models_equal_single_ones(style):
    models = [decoder(torch.float64, **style, rng=rng(seed)) for seed in range(3)]
    tokens = torch.randint(13, (3, 9, 16), generator=rng())
    stacked = StackedModels(models)
    losses = stacked.map(lambda m, t: F.cross_entropy(m(t).flatten(0, 1), t.flatten()), tokens)
    (gradient,) = torch.autograd.grad(losses.sum(), stacked.flat)
    for i, model in enumerate(models):
        loss = F.cross_entropy(model(tokens[i]).flatten(0, 1), tokens[i].flatten())
        alone = torch.autograd.grad(loss, list(model.parameters()))
        torch.testing.assert_close(gradient[i], torch.cat([g.flatten() for g in alone]))


@torch.no_grad()
def test_attention_weights_of_shared_keys():
    model = decoder(torch.float64, **MODERN, key_value_heads=2, qk_norm=True)
    tokens = torch.randint(13, (2, 7), generator=rng())
    first = attention_weights(model, tokens).itself[0]
    part = model.blocks[0].attention
    x = model.blocks[0].attention_norm(F.embedding(tokens, model.table))
    values = part.repeated(part.keys_values(x)[1])
    mixed = (first @ values).transpose(1, 2).flatten(2) @ part.output.T + part.output_bias
    rotation = model.position_buffer[:, :7][:, None, None]
    torch.testing.assert_close(part(x, causal=True, rotation=rotation), mixed)


def test_counts_of_parameters_and_flops():
    plain, gated = decoder(bias=False), decoder(bias=False, activation="swiglu", hidden=128)
    assert count_parameters(gated)[0] - count_parameters(plain)[0] == 2 * 32 * 128
    grouped = decoder(bias=False, key_value_heads=1)
    assert count_parameters(plain)[0] - count_parameters(grouped)[0] == 2 * 2 * 24 * 32

    def flops(**style):
        make = lambda: Transformer(13, 32, 2, 4, 16, bias=False, **style)  # noqa: E731
        return count_next_token(make, vocabulary=13, context=16)[2]

    # Each weight of a matrix multiplies and adds once forward and twice backward.
    assert flops(activation="swiglu", hidden=128) - flops() == 6 * 2 * 32 * 128
    assert flops() - flops(key_value_heads=1) == 6 * 2 * 2 * 24 * 32
    default = Transformer(13, 96, 1, 4, 16, activation="swiglu")
    assert default.hidden == 256  # 8/3 of the width: as many weights as 4 times without a gate


def test_llama_and_qwen3_checkpoints(tmp_path):
    model = decoder(**MODERN, key_value_heads=2, readout_scale=0.5, attention_scale=0.3)
    certificate = write(model, tmp_path / "llama", "hf")
    assert (certificate.architecture, certificate.wrong) == ("LlamaForCausalLM", 0)
    bias = ("query", "key", "value", "output")
    model = decoder(**MODERN, qk_norm=True, bias=bias, attention_scale=0.3)
    certificate = write(model, tmp_path / "qwen3", "hf")
    assert (certificate.architecture, certificate.wrong) == ("Qwen3ForCausalLM", 0)
    path = export(model, tmp_path / "model.safetensors")
    from allometry.train.checkpoint import read

    config = json.loads(read(path)[1]["config"])
    assert (config["norm_type"], config["gated"], config["qk_norm"]) == ("rmsnorm", True, True)


@pytest.mark.parametrize(
    ("style", "to", "message"),
    [
        ({"activation": "swiglu"}, "hf", "have RMSNorm for a stock checkpoint"),
        ({"norm_type": "rmsnorm"}, "hf", "have a gated activation such as swiglu"),
        (MODERN | {"positions": "learned"}, "hf", "have rotary positions"),
        (MODERN | {"qk_norm": True}, "hf", "have no bias in feed-forward layers with qk_norm"),
        (MODERN | {"qk_norm": True, "bias": False}, "gguf", "have no qk_norm for GGUF"),
        ({"experts": 2}, "onnx", "have no mixture of experts for ONNX"),
        ({"experts": 2}, "hf", "have no mixture of experts for a stock checkpoint"),
    ],
)
def test_exports_that_cannot_carry_an_option_say_so(style, to, message, tmp_path):
    with pytest.raises(al.InputError, match=message):
        write(decoder(**style), tmp_path / "out", to)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_value_heads": 3}, r"key_value_heads must divide heads \(4\); got 3"),
        ({"key_value_heads": 0}, r"key_value_heads must divide heads \(4\); got 0"),
        ({"norm_type": "batchnorm"}, r"norm_type must be one of"),
        ({"activation": "swish"}, r"activation must be one of .*swiglu"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(al.InputError, match=message):
        decoder(**changes)
