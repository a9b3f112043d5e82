"""Checkpoints of BERT and MPNet, from constructions that attend in both directions.

Both normalise the sum after each part, which the layout of `neutral_norm` makes the identity.
BERT serves where no head has a mask. MPNet adds a learned bias by relative position to the scores
of each head; large negative biases are masks.
"""

from typing import Any

import torch
from torch import Tensor

from allometry.construct.stock.neutral_norm import Neutral, WideAttention, attention, feed_forward
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols, cast
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.experts import MixtureOfExperts
from allometry.models.transformer.model import Block, Transformer

EPS = 1e-12
BUCKETS = 32
"""Relative positions of MPNet: bucket 0 is the position itself, 16 and above are later ones."""
PAD = 1
"""Token id of padding in MPNet, which its position ids depend on."""


def constructed(
    model: Transformer,
    at: Neutral,
    symbols: Symbols,
    scale: float,
    masked: float,
    precision: str,
) -> Checkpoint:
    """A token classifier of the encoder's outputs.

    Args:
        model: The construction.
        at: The layout of the wide residual stream.
        symbols: Its tokens; no words for real-valued tokens.
        scale: Factor on the scores.
        masked: What the score of a masked key loses.
        precision: Of the weights.
    """
    blocks = [b for b in model.blocks if isinstance(b, Block)]
    heads = [b.attention for b in blocks if b.attention is not None]
    masks = [mask for part in heads for mask in part.head_masks or ("all",) * part.heads]
    mpnet = set(masks) - {"all"} != set()
    name = "mpnet" if mpnet else "bert"
    slots = _slots(heads) if mpnet else ["all"] * at.heads
    assert at.heads == len(slots) or not mpnet
    weights: dict[str, Tensor] = {}
    context = model.context or 512
    if mpnet:
        weights["mpnet.encoder.relative_attention_bias.weight"] = _biases(slots, masked)
    ids = _embeddings(weights, name, model, at, context)
    hidden = max(model.hidden, 1)
    for layer in range(model.depth):
        block = blocks[layer % len(blocks)]
        wide = attention(
            _arranged(block.attention, slots) if mpnet else block.attention, at, scale
        )
        prefix = f"{name}.encoder.layer.{layer}"
        assert not isinstance(block.feed_forward, MixtureOfExperts)
        inner, inner_bias, outer, outer_bias = feed_forward(block.feed_forward, at, hidden)
        weights |= _attention(prefix, wide, mpnet, at)
        weights |= {
            f"{prefix}.intermediate.dense.weight": inner,
            f"{prefix}.intermediate.dense.bias": inner_bias,
            f"{prefix}.output.dense.weight": outer,
            f"{prefix}.output.dense.bias": outer_bias,
            **_norm(f"{prefix}.output.LayerNorm", at),
        }
    readout = torch.eye(model.width) if model.readout is None else model.readout.detach()
    bias = model.readout_bias
    weights["classifier.weight"] = at.reads(readout)
    weights["classifier.bias"] = torch.zeros(len(readout)) if bias is None else bias.detach()
    config = _config(model, at, hidden, mpnet, context, len(readout), symbols)
    config["dtype"] = precision
    inputs = None if model.table is not None else at.rows(torch.eye(model.width).double())
    return Checkpoint(config, cast(weights, precision), ids, inputs, precision)


def _embeddings(
    weights: dict[str, Tensor], name: str, model: Transformer, at: Neutral, context: int
) -> list[int]:
    """Fill the tables; return the id of each of our tokens."""
    table = torch.zeros(1, model.width) if model.table is None else model.table.detach()
    places = model.position_table
    wide = torch.zeros(context, at.width) if places is None else at.rows(places.detach())
    prefix = f"{name}.embeddings"
    weights |= _norm(f"{prefix}.LayerNorm", at)
    if name == "bert":
        weights[f"{prefix}.word_embeddings.weight"] = at.rows(table)
        weights[f"{prefix}.position_embeddings.weight"] = wide
        weights[f"{prefix}.token_type_embeddings.weight"] = at.constants()[None]
        return list(range(len(table))) if model.table is not None else []
    # Token id 1 is padding, and positions start at 2.
    rows = at.rows(table) + at.constants()
    row = at.constants()[None]
    weights[f"{prefix}.word_embeddings.weight"] = torch.cat([rows[:1], row, rows[1:]])
    weights[f"{prefix}.position_embeddings.weight"] = torch.cat([0 * wide[:1].repeat(2, 1), wide])
    return [0, *range(2, len(table) + 1)]


def _slots(heads: list[Attention]) -> list[str]:
    """Masks of the heads of every layer, the same in all layers: the most that any needs."""
    counts: dict[str, int] = {}
    for part in heads:
        masks = part.head_masks or ("all",) * part.heads
        for mask in set(masks):
            counts[mask] = max(counts.get(mask, 0), masks.count(mask))
    return [mask for mask, count in counts.items() for _ in range(count)]


def head_count(model: Transformer) -> int:
    """Number of heads that the checkpoint needs."""
    blocks = [b.attention for b in model.blocks if isinstance(b, Block)]
    return max(model.heads, len(_slots([a for a in blocks if a is not None])))


def _arranged(part: Attention | None, slots: list[str]) -> Attention | None:
    """The layer with its heads moved to slots of their masks."""
    if part is None:
        return None
    masks = list(part.head_masks or ("all",) * part.heads)
    free = list(range(len(slots)))
    order = []
    for mask in masks:
        slot = next(i for i in free if slots[i] == mask)
        free.remove(slot)
        order.append(slot)
    biases = {"query": part.query_bias, "key": part.key_bias, "value": part.value_bias}
    biases["output"] = part.output_bias
    present = [name for name, bias in biases.items() if bias is not None]
    moved = Attention(
        part.query.shape[1], len(slots), part.size, part.scale, part.hard, present
    ).double()
    with torch.no_grad():
        for weight in moved.parameters():
            weight.zero_()
        for old, new in enumerate(order):
            a, b = (slice(i * part.size, (i + 1) * part.size) for i in (old, new))
            moved.query[b], moved.key[b] = part.query[a], part.key[a]
            moved.value[b], moved.output[:, b] = part.value[a], part.output[:, a]
            for theirs, ours in (
                (moved.query_bias, part.query_bias),
                (moved.key_bias, part.key_bias),
                (moved.value_bias, part.value_bias),
            ):
                if theirs is not None and ours is not None:
                    theirs[b] = ours[a]
        if moved.output_bias is not None and part.output_bias is not None:
            moved.output_bias.copy_(part.output_bias)
    return moved


def _biases(slots: list[str], masked: float) -> Tensor:
    """Biases by bucket and head; a key that is masked only for itself remains as a last resort."""
    table = torch.zeros(BUCKETS, len(slots), dtype=torch.float64)
    half = BUCKETS // 2
    for i, mask in enumerate(slots):
        if mask in ("past", "before"):
            table[half:, i] = -2 * masked
        if mask == "after":
            table[1:half, i] = -2 * masked
        if mask in ("before", "after"):
            table[0, i] = -masked
    return table


def _attention(prefix: str, a: WideAttention, mpnet: bool, at: Neutral) -> dict[str, Tensor]:
    if mpnet:
        names = [f"attention.attn.{part}" for part in "qkvo"]
        norm = f"{prefix}.attention.LayerNorm"
    else:
        names = [f"attention.self.{part}" for part in ("query", "key", "value")]
        names.append("attention.output.dense")
        norm = f"{prefix}.attention.output.LayerNorm"
    matrices = (a.query, a.key, a.value, a.output)
    vectors = (a.query_bias, a.key_bias, a.value_bias, a.output_bias)
    weights = _norm(norm, at)
    for name, matrix, vector in zip(names, matrices, vectors, strict=True):
        weights |= {f"{prefix}.{name}.weight": matrix, f"{prefix}.{name}.bias": vector}
    return weights


def _norm(name: str, at: Neutral) -> dict[str, Tensor]:
    gains = at.gains(True)
    return {f"{name}.weight": gains, f"{name}.bias": torch.zeros_like(gains)}


def _config(
    model: Transformer,
    at: Neutral,
    hidden: int,
    mpnet: bool,
    context: int,
    outputs: int,
    symbols: Symbols,
) -> dict[str, Any]:
    labels = list(symbols.labels or [f"output {i}" for i in range(outputs)])
    return {
        "model_type": "mpnet" if mpnet else "bert",
        "architectures": [
            "MPNetForTokenClassification" if mpnet else "BertForTokenClassification"
        ],
        "vocab_size": max(1, len(symbols.words)) + mpnet,
        "hidden_size": at.width,
        "num_hidden_layers": model.depth,
        "num_attention_heads": at.heads,
        "intermediate_size": hidden,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.0,
        "max_position_embeddings": context + 2 * mpnet,
        "type_vocab_size": 1,
        "layer_norm_eps": EPS,
        "relative_attention_num_buckets": BUCKETS,
        "pad_token_id": PAD if mpnet else None,
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
