"""The transformer against GPT-2, Llama, torch's own layers and the equations of the papers."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import allometry as al
from allometry.models import Transformer, hardmax
from allometry.models.transformer.positions import rotate, rotations, sinusoidal

SHAPE = {"vocabulary": 11, "width": 8, "depth": 2, "heads": 2, "context": 12}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def lm(**changes):
    """A small language model whose every weight (biases and gains too) is random."""
    model = Transformer(**(SHAPE | changes))
    shake(model)
    return model


def shake(model, seed=1, std=0.4):
    g = rng(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(std * torch.randn(p.shape, generator=g))


def copy(to, value):
    assert to.shape == value.shape
    with torch.no_grad():
        to.copy_(value)


# Against independent references


def test_logits_equal_those_of_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=17, n_positions=9, n_embd=12, n_layer=3, n_head=3, tie_word_embeddings=False
    )
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(config).double().eval()
    shake(theirs, std=0.1)
    ours = Transformer(17, 12, 3, 3, 9, activation="gelu_tanh")
    copy(ours.table, theirs.transformer.wte.weight)
    copy(ours.position_table, theirs.transformer.wpe.weight)
    copy(ours.readout, theirs.lm_head.weight)
    ours.final_norm.load_state_dict(theirs.transformer.ln_f.state_dict())
    for mine, block in zip(ours.blocks, theirs.transformer.h, strict=True):
        q, k, v = block.attn.c_attn.weight.T.chunk(3)
        bq, bk, bv = block.attn.c_attn.bias.chunk(3)
        a, f = mine.attention, mine.feed_forward
        for to, value in (
            *((a.query, q), (a.key, k), (a.value, v)),
            *((a.query_bias, bq), (a.key_bias, bk), (a.value_bias, bv)),
            *((a.output, block.attn.c_proj.weight.T), (a.output_bias, block.attn.c_proj.bias)),
            *((f.inner, block.mlp.c_fc.weight.T), (f.inner_bias, block.mlp.c_fc.bias)),
            *((f.outer, block.mlp.c_proj.weight.T), (f.outer_bias, block.mlp.c_proj.bias)),
        ):
            copy(to, value)
        mine.attention_norm.load_state_dict(block.ln_1.state_dict())
        mine.feed_forward_norm.load_state_dict(block.ln_2.state_dict())
    tokens = torch.randint(17, (4, 9), generator=rng())
    expected = theirs(tokens).logits
    torch.testing.assert_close(ours(tokens), expected)
    assert expected.std() > 0.1
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_rotation_is_multiplication_by_a_complex_phase():
    m, n = 6, 5
    x = torch.randn(2, 3, n, m, generator=rng())
    turned = rotate(x, rotations(n, m)[:, None, None])
    z = torch.complex(x[..., : m // 2], x[..., m // 2 :])
    t = torch.arange(n)[:, None]
    z = z * torch.exp(1j * t * 10_000.0 ** (-2 * torch.arange(m // 2) / m))
    torch.testing.assert_close(turned, torch.cat([z.real, z.imag], -1))


def test_rotation_is_that_of_llama():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k = torch.randn(2, 2, 3, 5, 6, generator=rng())
    cos, sin = rotations(5, 6)
    turn = rotations(5, 6)[:, None, None]
    theirs = apply_rotary_pos_emb(q, k, cos.repeat(1, 2)[None], sin.repeat(1, 2)[None])
    torch.testing.assert_close((rotate(q, turn), rotate(k, turn)), theirs)


def test_rotary_scores_depend_on_distance_alone():
    model = lm(positions="rotary", norm=None)
    tokens = torch.randint(11, (2, 6), generator=rng())
    alone = model(tokens)
    model.position_buffer = rotations(16, 4)[:, 4:]
    torch.testing.assert_close(model(tokens), alone)


def test_sinusoidal_table():
    table = sinusoidal(7, 5)
    assert table.shape == (7, 5)
    assert table[3, 2].item() == pytest.approx(torch.sin(3 / torch.tensor(1e4) ** (2 / 5)).item())
    assert table[3, 3].item() == pytest.approx(torch.cos(3 / torch.tensor(1e4) ** (2 / 5)).item())


def fill_attention(ours, theirs):
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for name, w, b in zip(("query", "key", "value"), weights, biases, strict=True):
        copy(getattr(ours, name), w)
        copy(getattr(ours, f"{name}_bias"), b)
    copy(ours.output, theirs.out_proj.weight)
    copy(ours.output_bias, theirs.out_proj.bias)


def fill_block(ours, theirs):
    fill_attention(ours.attention, theirs.self_attn)
    norms = [ours.attention_norm]
    if ours.cross is not None:
        fill_attention(ours.cross, theirs.multihead_attn)
        norms.append(ours.cross_norm)
    norms.append(ours.feed_forward_norm)
    for i, norm in enumerate(norms, 1):
        norm.load_state_dict(getattr(theirs, f"norm{i}").state_dict())
    f = ours.feed_forward
    for to, value in (
        *((f.inner, theirs.linear1.weight), (f.inner_bias, theirs.linear1.bias)),
        *((f.outer, theirs.linear2.weight), (f.outer_bias, theirs.linear2.bias)),
    ):
        copy(to, value)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_equals_torch(norm):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre")
    last = nn.LayerNorm(8) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, 2, last)
    shake(theirs)
    ours = Transformer(
        *(None, 8, 2, 2), kind="encoder", hidden=12, norm=norm, positions=None, activation="relu"
    )
    for mine, block in zip(ours.blocks, theirs.layers, strict=True):
        fill_block(mine, block)
    if last is not None:
        ours.final_norm.load_state_dict(theirs.norm.state_dict())
    x = torch.randn(3, 5, 8, generator=rng())
    padding = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [1, 0, 1, 0, 0]], dtype=torch.bool)
    real = ~padding
    torch.testing.assert_close(
        ours(x, padding=padding)[real], theirs(x, src_key_padding_mask=padding)[real]
    )
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_decoder_equals_torch(norm):
    torch.manual_seed(0)
    first = norm == "pre"
    theirs = nn.Transformer(8, 2, 2, 2, 12, 0.0, batch_first=True, norm_first=first)
    if not first:
        theirs.encoder.norm = theirs.decoder.norm = None
    shake(theirs)
    ours = Transformer(
        *(None, 8, 2, 2),
        kind="encoder-decoder",
        hidden=12,
        norm=norm,
        positions=None,
        activation="relu",
    )
    for mine, block in zip(ours.blocks, theirs.decoder.layers, strict=True):
        fill_block(mine, block)
    for mine, block in zip(ours.encoder, theirs.encoder.layers, strict=True):
        fill_block(mine, block)
    if first:
        ours.final_norm.load_state_dict(theirs.decoder.norm.state_dict())
        ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
    source, target = torch.randn(3, 6, 8, generator=rng()), torch.randn(3, 4, 8, generator=rng(1))
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 4:] = True
    expected = theirs(
        *(source, target),
        tgt_mask=torch.ones(4, 4).triu(1).bool(),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    torch.testing.assert_close(ours(target, source, source_padding=padding), expected)


@pytest.mark.parametrize("hard", [False, True])
def test_yun_block_is_the_papers_equations(hard):
    d, n, h, m, r = 3, 4, 2, 2, 5
    model = Transformer.yun(d, h, m, r, depth=2, n=n, hard=hard)
    shake(model)
    X = torch.randn(6, d, n, generator=rng())
    out, Z = model(X), X + model.position_table.T
    choose = hardmax if hard else lambda s: s.softmax(-1)
    for block in model.blocks:
        a, f = block.attention, block.feed_forward
        WQ, WK, WV = (w.reshape(h, m, d) for w in (a.query, a.key, a.value))
        WO = a.output.reshape(d, h, m).permute(1, 0, 2)
        Q = torch.einsum("hmd,bdn->bhmn", WQ, Z) + a.query_bias.reshape(h, m, 1)
        K = torch.einsum("hmd,bdn->bhmn", WK, Z)
        # Column-wise softmax of the (keys, queries) matrix, as printed.
        P = choose(torch.einsum("bhmk,bhmq->bhkq", K, Q).mT).mT
        A = Z + torch.einsum("hdm,hme,bek,bhkq->bdq", WO, WV, Z, P)
        inner = torch.relu(torch.einsum("rd,bdn->brn", f.inner, A) + f.inner_bias[:, None])
        Z = A + torch.einsum("dr,brn->bdn", f.outer, inner) + f.outer_bias[:, None]
    torch.testing.assert_close(out, Z)
    blocks = 2 * (h * (4 * m * d + m) + 2 * r * d + r + d)
    assert sum(p.numel() for p in model.parameters()) == blocks + d * n


def test_fused_softmax_path_equals_the_formula():
    """The fused kernel against softmax(q k^T / sqrt m) v written out, through a whole model."""
    model = lm(norm=None, positions=None, depth=1)
    a, f = model.blocks[0].attention, model.blocks[0].feed_forward
    tokens = torch.randint(11, (2, 5), generator=rng())
    x = model.table[tokens]
    q, k, v = (
        F.linear(x, getattr(a, w), getattr(a, f"{w}_bias")).reshape(2, 5, 2, 4).transpose(1, 2)
        for w in ("query", "key", "value")
    )
    scores = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 8)
    x = x + F.linear(mixed, a.output, a.output_bias)
    x = x + F.linear(F.gelu(F.linear(x, f.inner, f.inner_bias)), f.outer, f.outer_bias)
    torch.testing.assert_close(model(tokens), x @ model.readout.T)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("hard", [False, True])
def test_narrow_heads_take_another_path_to_the_same_numbers(kind, hard):
    """Few tokens and tiny heads are worked with the batch last; more tokens are not."""
    model = lm(kind=kind, hard=hard, width=4, norm=None, positions=None)
    tokens = torch.randint(11, (5, 4), generator=rng())
    padding = torch.tensor([[False] * 4 + [True] * 6] * 5)
    longer = torch.cat([tokens, torch.zeros(5, 6, dtype=torch.long)], 1)
    torch.testing.assert_close(model(tokens), model(longer, padding=padding)[:, :4])


# Invariants


@given(
    n=st.integers(1, 6),
    seed=st.integers(0, 2**16),
    norm=st.sampled_from(["pre", "post", None]),
    hard=st.booleans(),
)
def test_blocks_are_permutation_equivariant(n, seed, norm, hard):
    """Claim 1 of Yun et al.: f(XP) = f(X)P, whatever the norm."""
    model = Transformer(
        *(None, 4, 2, 2), kind="encoder", norm=norm, positions=None, hard=hard, rng=rng(seed)
    )
    x = torch.randn(2, n, 4, generator=rng(seed))
    order = torch.randperm(n, generator=rng(seed))
    torch.testing.assert_close(model(x[:, order]), model(x)[:, order])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "one_hot", "rotary"])
def test_positions_break_equivariance(positions):
    x = torch.randn(2, 4, 8, generator=rng())
    model = Transformer(
        *(None, 8, 1, 2, 4), kind="encoder", norm=None, positions=positions, rng=rng(3)
    )
    assert (model(x.flip(1)) - model(x).flip(1)).abs().max() > 1e-3


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", None])
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post", None])
def test_the_future_is_unseen(positions, hard, norm):
    model = lm(positions=positions, hard=hard, norm=norm)
    tokens = torch.randint(11, (3, 10), generator=rng())
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 11
    a, b = model(tokens), model(changed)
    torch.testing.assert_close(a[:, :6], b[:, :6])
    assert (a[:, 6:] - b[:, 6:]).abs().amax(-1).min() > 1e-6


def pad(rows, side):
    n = max(map(len, rows))
    batch = torch.full((len(rows), n), 9)
    padding = torch.ones(len(rows), n, dtype=torch.bool)
    for i, row in enumerate(rows):
        place = slice(n - len(row), n) if side == "left" else slice(len(row))
        batch[i, place], padding[i, place] = row, False
    return batch, padding


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("hard", [False, True])
def test_padding_changes_nothing(kind, positions, side, hard):
    model = lm(kind=kind, positions=positions, hard=hard)
    rows = [torch.randint(11, (k,), generator=rng(k)) for k in (3, 7, 5)]
    batch, padding = pad(rows, side)
    out = model(batch, padding=padding)
    assert out.isfinite().all()
    for i, row in enumerate(rows):
        torch.testing.assert_close(out[i][~padding[i]], model(row[None])[0])


# The cache

STYLES = [
    {},
    {"positions": "rotary"},
    {"positions": "sinusoidal", "norm": "post"},
    {"positions": None, "norm": None},
    {"positions": "one_hot", "width": 16},
    {"hard": True},
    {"shared": True, "depth": 3},
    {"tied": True, "readout_scale": 0.5},
]


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_decoding_with_a_cache_equals_the_full_pass(style):
    model = lm(**style)
    tokens = torch.randint(11, (3, 12), generator=rng())
    cache = model.new_cache()
    steps = [model(part, cache=cache) for part in tokens.split([5, 1, 1, 3, 1, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))
    assert cache.length == 12


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_unequal_prompts_share_a_cache_and_slide(positions, side):
    """Row by row the logits of a naive decoder that crops to the last `context` tokens."""
    model = lm(positions=positions, context=6)
    rows = [torch.randint(11, (k,), generator=rng(k)) for k in (1, 4, 2)]
    batch, padding = pad(rows, side)
    cache = model.new_cache()
    model(batch, padding=padding, cache=cache)
    for step in range(9):
        new = torch.randint(11, (3, 1), generator=rng(50 + step))
        out = model(new, cache=cache)
        rows = [torch.cat([row, token]) for row, token in zip(rows, new, strict=True)]
        for i, row in enumerate(rows):
            torch.testing.assert_close(out[i, -1], model(row[None, -6:])[0, -1])


def test_sliding_by_a_stride_forgets_that_many():
    model = lm(context=6)
    tokens = torch.randint(11, (2, 20), generator=rng())
    cache = model.new_cache(stride=3)
    lengths = []
    for t in range(20):
        out = model(tokens[:, t : t + 1], cache=cache)[:, -1]
        torch.testing.assert_close(out, model(tokens[:, t + 1 - cache.length : t + 1])[:, -1])
        lengths.append(cache.length)
    assert lengths == [1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5]


def test_encoder_decoder_cache_and_rows():
    model = lm(kind="encoder-decoder")
    source = torch.randint(11, (3, 5), generator=rng(1))
    source_padding = torch.zeros(3, 5, dtype=torch.bool)
    source_padding[2, 3:] = True
    tokens = torch.randint(11, (3, 8), generator=rng())
    full = model(tokens, source, source_padding=source_padding)
    cache = model.new_cache()
    model(tokens[:, :3], source, source_padding=source_padding, cache=cache)
    rows = torch.tensor([2, 0, 0, 1])
    cache.select(rows)
    rest = [model(tokens[rows, t : t + 1], cache=cache) for t in range(3, 8)]
    torch.testing.assert_close(torch.cat(rest, 1), full[rows, 3:])


# Options


def test_hardmax_is_the_limit_of_softmax():
    scores = torch.tensor([[1.0, 2.0, 2.0, -3.0], [0.0, 0.0, 0.0, 0.0], [5.0, 4.999, 0.0, 1.0]])
    expected = torch.tensor([[0, 0.5, 0.5, 0], [0.25] * 4, [1, 0, 0, 0]])
    assert torch.equal(hardmax(scores), expected)
    torch.testing.assert_close((1e5 * scores).softmax(-1), expected)
    soft, hard = lm(attention_scale=1e9, norm=None), lm(hard=True, norm=None)
    hard.load_state_dict(soft.state_dict())
    tokens = torch.randint(11, (4, 9), generator=rng())
    torch.testing.assert_close(soft(tokens), hard(tokens))
    warm = lm(attention_scale=1.0, norm=None)
    assert (warm(tokens) - hard(tokens)).abs().max() > 1e-2


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("bias", [True, False, ("query", "inner", "readout")])
@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_count_of_parameters(heads, bias, kind):
    v, d, depth, c, m, r = 13, 6, 3, 7, 5, 9
    model = Transformer(v, d, depth, heads, c, kind=kind, head_size=m, hidden=r, bias=bias)
    every = {"query", "key", "value", "output", "inner", "outer", "norm"}
    names = every if bias is True else set(bias or ())
    attention = 4 * heads * m * d
    attention += heads * m * len(names & {"query", "key", "value"}) + d * ("output" in names)
    feed = 2 * r * d + r * ("inner" in names) + d * ("outer" in names)
    norm = d * (2 if "norm" in names else 1)
    blocks = depth * (attention + feed + 2 * norm) + norm
    if kind == "encoder-decoder":
        blocks = 2 * blocks + depth * (attention + norm)
    ends = (2 * v + c) * d + v * ("readout" in names)
    assert sum(p.numel() for p in model.embedding_parameters()) == ends
    assert sum(p.numel() for p in model.parameters()) == blocks + ends


def test_absent_parts_shared_blocks_and_no_skips():
    x = torch.randn(2, 5, 4, generator=rng())
    shape = {"kind": "encoder", "norm": None, "positions": None}
    some = Transformer(None, 4, 3, 2, parts=["feed_forward", "attention", "both"], **shape)
    assert some.blocks[0].attention is None
    assert some.blocks[1].feed_forward is None
    full = Transformer(None, 4, 3, 2, **shape)
    full.load_state_dict(some.state_dict(), strict=False)
    with torch.no_grad():
        full.blocks[0].attention.output.zero_()
        full.blocks[1].feed_forward.outer.zero_()
    torch.testing.assert_close(some(x), full(x))
    one = Transformer(None, 4, 4, 2, shared=True, **shape)
    y = x
    for _ in range(4):
        y = one.blocks[0](y)
    assert torch.equal(one(x), y)
    assert one.states(x).shape == (5, 2, 5, 4)
    assert torch.equal(one.states(x)[-1], y)
    bare = Transformer(None, 4, 1, 2, skip=False, **shape)
    inside = bare.blocks[0]
    assert torch.equal(bare(x), inside.feed_forward(inside.attention(x)))


def test_real_inputs_readout_and_scale():
    x = torch.randn(3, 6, 2, generator=rng())
    shape = {"vocabulary": None, "width": 8, "depth": 1, "heads": 2, "context": 6}
    shape |= {"inputs": 2, "outputs": 5}
    model = Transformer(**shape)
    y = model(x)
    assert y.shape == (3, 6, 5)
    model.readout_scale = 0.25
    assert torch.equal(model(x), 0.25 * y)
    assert torch.equal(Transformer(**shape, columns=True)(x.mT), y.mT)
    swish = Transformer(**shape, activation=lambda z: z * z.sigmoid())(x)
    torch.testing.assert_close(swish, Transformer(**shape, activation="silu")(x))
    assert (swish - y).abs().max() > 1e-4


def test_tied_readout_is_the_token_table():
    model = lm(tied=True)
    assert model.readout is None
    tokens = torch.randint(11, (2, 4), generator=rng())
    stream = model.final_norm(model.states(tokens)[-1])
    torch.testing.assert_close(model(tokens), stream @ model.table.T)


def test_initial_weights_come_from_the_generator_alone():
    shape = {"vocabulary": 64, "width": 128, "depth": 8, "heads": 4, "context": 32}
    before = torch.random.get_rng_state()
    a, b = Transformer(**shape, rng=rng(7)), Transformer(**shape, rng=rng(7))
    assert torch.equal(torch.random.get_rng_state(), before)
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(x, y)
    assert not torch.equal(a.table, Transformer(**shape, rng=rng(8)).table)
    # The standard error of a standard deviation from k values is sd / sqrt(2 k); 5 of them.
    for weight, sd in (
        (a.blocks[0].attention.query, 128**-0.5),
        (a.blocks[0].attention.output, (128 * 16) ** -0.5),
        (a.blocks[0].feed_forward.outer, (512 * 16) ** -0.5),
        *((a.readout, 1 / 128), (a.table, 0.3)),
    ):
        assert abs(weight.std().item() - sd) < 5 * sd / (2 * weight.numel()) ** 0.5


def test_the_stream_keeps_its_size_at_any_depth():
    """With 1/sqrt(2 depth) on what writes to it, a stream of 64 blocks stays of order one."""
    for depth in (2, 64):
        model = Transformer(None, 64, depth, 4, positions=None, bias=False)
        x = torch.randn(4, 16, 64, generator=rng())
        assert 0.8 < model.states(x)[-1].std() < 2


TRANSFORMS = """
import torch
from torch.func import functional_call, stack_module_state, vmap, grad
from allometry.models import Transformer
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
tokens = torch.arange(24).reshape(3, 8) % 11
padding = torch.zeros(3, 8, dtype=torch.bool)
padding[1, :2] = True
for style in ({}, {"positions": "rotary"}, {"norm": "post", "positions": "sinusoidal"},
              {"hard": True, "positions": None}, {"shared": True, "depth": 3, "skip": False},
              {"kind": "encoder", "positions": "one_hot", "activation": "relu"}):
    shape = {"vocabulary": 11, "width": 8, "depth": 2, "heads": 2, "context": 8} | style
    models = [Transformer(**shape, rng=torch.Generator().manual_seed(s)) for s in range(3)]
    model = models[0]
    if style in ({"positions": "rotary"}, {"hard": True, "positions": None}):
        run = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(run(tokens), model(tokens))
        torch.testing.assert_close(run(tokens, padding=padding), model(tokens, padding=padding))
    params, buffers = stack_module_state(models)
    def loss(p, b):
        logits = functional_call(model, (p, b), (tokens,))[:, :-1].flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    packed = vmap(grad(loss))(params, buffers)
    for i, one in enumerate(models):
        alone = grad(loss)(dict(one.named_parameters()), dict(one.named_buffers()))
        for name, g in alone.items():
            torch.testing.assert_close(packed[name][i], g)
            # Under hardmax scores do not learn; a key's bias shifts all scores of a query alike.
            still = shape.get("hard") and name.split(".")[-1][:3] in ("que", "key")
            assert still or name.endswith("key_bias") or g.abs().max() > 0, name
print("fine")
"""


def test_compile_vmap_and_gradients():
    # In a process without the shape checks, which are no part of the package as users run it.
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRANSFORMS],
        capture_output=True,
        text=True,
        env=os.environ | {"JAXTYPING_DISABLE": "1"},
    )
    assert run.stdout.strip() == "fine", run.stderr


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, r"Transformer\.heads must divide width \(8\); got 3"),
        ({"width": 0}, r"Transformer\.width must be at least 1; got 0"),
        ({"kind": "both"}, r"Transformer\.kind must be one of"),
        ({"norm": "rms"}, r"Transformer\.norm must be one of"),
        ({"positions": "alibi"}, r"Transformer\.positions must be one of"),
        ({"context": None}, r"Transformer\.context must be given for learned positions"),
        ({"positions": "rotary", "head_size": 3}, r"head_size must be even for rotary"),
        ({"positions": "one_hot"}, r"width must be at least context \(12\) for one-hot"),
        ({"activation": "cube"}, r"activation must be one of"),
        ({"bias": ("quary",)}, r"bias must be True, False or some of"),
        ({"vocabulary": None, "tied": True}, r"tied must read out its vocabulary"),
        ({"inputs": 3}, r"inputs must not be given with a vocabulary"),
        ({"columns": True}, r"columns must not be given with a vocabulary"),
        ({"parts": ["both"]}, r"parts must name one of .* for each of 2 blocks"),
    ],
)
def test_refusals_of_arguments(changes, message):
    with pytest.raises(al.InputError, match=message):
        Transformer(**(SHAPE | changes))


def test_refusals_of_inputs():
    model = lm()
    long = torch.zeros(1, 13, dtype=torch.long)
    with pytest.raises(al.InputError, match=r"tokens must be at most context \(12\) long; got 13"):
        model(long)
    with pytest.raises(al.InputError, match="at most context"):
        model(long, cache=model.new_cache())
    with pytest.raises(al.InputError, match="source must be None for a decoder"):
        model(long[:, :3], long[:, :3])
    with pytest.raises(al.InputError, match="source must be given to an encoder-decoder"):
        lm(kind="encoder-decoder")(long[:, :3])
    with pytest.raises(al.InputError, match="must be causal to have a cache"):
        lm(kind="encoder").new_cache()
    with pytest.raises(al.InputError, match="be at least 1; got 0"):
        model.new_cache(stride=0)
    cache = model.new_cache()
    model(long[:, :3], cache=cache)
    with pytest.raises(al.InputError, match=r"batch size of the cache \(1\); got 2"):
        model(torch.zeros(2, 1, dtype=torch.long), cache=cache)
    with pytest.raises(al.InputError, match="real-valued of size 3 along axis 1 of 3"):
        Transformer.yun(3)(torch.zeros(2, 4, 3))
