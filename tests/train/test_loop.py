import math

import pytest
import torch
from torch import nn

from allometry import models
from allometry._core.errors import DivergedError, StorageError
from allometry.targets import Text
from allometry.train import adamw, checkpoint, count_parameters, evaluate, train
from allometry.train.loop import Stopped

TEXT = Text.from_string("the quick brown fox jumps over the lazy dog. " * 60)
V = TEXT.vocabulary.size


def small(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return models.Transformer(vocabulary=V, width=16, depth=1, heads=2, context=16, rng=rng)


def run(model, steps=30, **kwargs):
    optimiser = adamw(model, lr=0.01, width=16, base_width=16)
    settings = {"steps": steps, "batch": 8, "context": 16, "seed": 3} | kwargs
    return train(model, optimiser, TEXT, **settings)


def test_a_sentence_repeated_is_learnt_to_almost_nothing():
    trained = run(small(), steps=150)
    assert trained.curve.loss[0] > 2.5
    assert trained.loss.value < 0.5
    assert trained.curve.loss[-1] == trained.loss.value


def test_the_same_seed_gives_the_same_digits():
    assert run(small()).curve == run(small()).curve


def test_another_order_of_the_data_gives_other_digits():
    assert run(small()).curve.loss != run(small(), seed=4).curve.loss


@pytest.mark.parametrize("stop_at", [1, 7, 29])
def test_stopped_anywhere_and_resumed_it_ends_in_the_same_digits(tmp_path, stop_at):
    undisturbed = run(small())
    path, seen = tmp_path / "c.safetensors", []
    with pytest.raises(Stopped):
        run(small(), save_to=path, watch=seen.append, stop=lambda: len(seen) == stop_at)
    resumed = run(small(seed=9), save_to=path)  # other initial weights: the file's must win
    assert resumed.curve == undisturbed.curve
    assert resumed.loss == undisturbed.loss


def test_a_checkpoint_by_the_clock_is_taken(tmp_path):
    path = tmp_path / "c.safetensors"
    run(small(), save_to=path, save_every=0.0)
    tensors, metadata = checkpoint.read(path)
    assert '"step": 29' in metadata["progress"]
    assert any(name.startswith("optimiser.0.exp_avg") for name in tensors)


def test_a_torn_checkpoint_is_refused_in_words(tmp_path):
    path = tmp_path / "c.safetensors"
    run(small(), save_to=path, save_every=0.0)
    for each in (path, checkpoint.previous(path)):
        each.write_bytes(each.read_bytes()[:-7])
    with pytest.raises(StorageError, match="not a whole safetensors file"):
        run(small(), save_to=path)


@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_the_checkpoint_before_serves_where_the_last_is_damaged(tmp_path, damage):
    path = tmp_path / "c.safetensors"
    undisturbed = run(small(), save_to=path, save_every=0.0)
    data = bytearray(path.read_bytes())
    if damage == "torn":
        path.write_bytes(data[:-7])
    elif damage == "flipped":
        data[-100] ^= 1  # one bit of a weight: only the checksum detects it
        path.write_bytes(data)
    else:
        path.unlink()
    resumed = run(small(seed=9), save_to=path)
    assert resumed.curve == undisturbed.curve
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert set(kept) <= {"c.safetensors", "c.safetensors.previous"}


def test_divergence_is_reported_with_its_step():
    model = small()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.inf)
    with pytest.raises(DivergedError, match="at step 1 of 30"):
        run(model)


def test_evaluation_covers_the_whole_split_once():
    """A model that knows only frequencies has a loss that counting gives too."""
    counts = torch.bincount(TEXT.train.long(), minlength=V) + 1
    logs = (counts / counts.sum()).log()

    class Unigram(nn.Module):
        def forward(self, tokens):
            return logs.expand(*tokens.shape, V)

    expected = -logs[TEXT.validation.long()[1:]].mean().item()
    assert evaluate(Unigram(), TEXT, "validation", context=16).value == pytest.approx(expected)


def test_parameters_are_counted_once_with_embeddings_apart():
    model = small()
    N, N_embedding = count_parameters(model)
    assert N_embedding == 2 * V * 16 + 16 * 16  # token table, readout, learned positions
    assert N + N_embedding == sum(p.numel() for p in model.parameters())
