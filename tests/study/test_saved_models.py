"""Weights with a checksum, and files of weights that say or hold something else."""

import json

import pytest
import safetensors.torch
import torch

from allometry._core.errors import AllometryError, InputError, StorageError
from allometry._core.spec import Spec
from allometry.study import load
from allometry.study.recipes.transformer_runs import decoder
from allometry.targets import Text
from allometry.train import checkpoint

TEXT = Text.from_string("to be or not to be, that is the question " * 5)
SIZES = {"vocabulary": TEXT.vocabulary.size, "width": 8, "depth": 1, "heads": 2, "context": 8}


@pytest.fixture
def weights(tmp_path):
    """A file as a study writes it."""
    spec = Spec(decoder, **SIZES, rng=None)
    about = {"model": json.dumps(spec.to_dict())}
    about |= {"vocabulary": json.dumps(TEXT.vocabulary.to_dict()), "family": "transformer"}
    checkpoint.save_weights(tmp_path / "w.safetensors", spec(), about)
    return tmp_path / "w.safetensors"


def rewritten(path, tensors, about):
    path.write_bytes(safetensors.torch.save(tensors, about))
    return path


def test_a_file_with_its_checksum_loads_and_one_without_too(weights):
    assert load(weights).family == "transformer"
    tensors, about = checkpoint.read(weights)
    assert len(about.pop(checkpoint.WEIGHTS_SUM)) == 64
    assert load(rewritten(weights, tensors, about)).family == "transformer"


@pytest.mark.parametrize("place", ["weights", "metadata", "name"])
def test_what_is_not_what_was_written_is_refused(weights, place):
    tensors, about = checkpoint.read(weights)
    if place == "weights":
        name = next(n for n, t in tensors.items() if t.is_floating_point())
        tensors[name].view(-1)[0] += 1e-9
    elif place == "metadata":
        about["family"] = "other"
    else:
        tensors["new"] = torch.zeros(1)
    with pytest.raises(StorageError, match="checksum does not match"):
        load(rewritten(weights, tensors, about))


def test_every_flipped_byte_is_refused_or_harmless(weights):
    data, whole = weights.read_bytes(), load(weights).model.state_dict()
    for at in range(0, len(data), max(1, len(data) // 150)):
        weights.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
        try:
            found = load(weights)
        except AllometryError:
            continue
        # In the name of the checksum itself: then there is none to compare, as in older files.
        assert checkpoint.WEIGHTS_SUM not in checkpoint.read(weights)[1]
        assert found.vocabulary.to_dict() == TEXT.vocabulary.to_dict()
        for name, tensor in found.model.state_dict().items():
            assert torch.equal(tensor, whole[name])
    for end in (0, 7, 8, 100, len(data) - 1):
        weights.write_bytes(data[:end])
        with pytest.raises(AllometryError):
            load(weights)


@pytest.mark.parametrize(
    "vocabulary",
    [
        "[",
        "[" * 100_000,
        "[]",
        "{}",
        '{"kind": "characters"}',
        '{"kind": "characters", "characters": 7}',
        '{"kind": "characters", "characters": "ab"}',
        '{"kind": "bpe", "tokenizer": "{}"}',
        '{"kind": "bpe", "tokenizer": "nothing"}',
        '{"kind": "marked", "base": {"kind": "bytes"}, "names": 3}',
        '{"kind":"marked","names":["a"],"base":' * 900 + "{}" + "}" * 900,
        '{"kind": ["characters"]}',
    ],
)
def test_a_vocabulary_that_is_none_is_a_sentence(weights, vocabulary):
    tensors, about = checkpoint.read_weights(weights)
    with pytest.raises(InputError):
        load(rewritten(weights, tensors, about | {"vocabulary": vocabulary}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_a_sentence(weights, value):
    tensors, about = checkpoint.read_weights(weights)
    first = next(k for k, v in tensors.items() if v.is_floating_point())
    spoiled = tensors[first].clone()
    spoiled.view(-1)[0] = value
    with pytest.raises(InputError, match=f"finite weights; got NaN or infinity in '{first}'"):
        load(rewritten(weights, tensors | {first: spoiled}, about))


def test_tensors_of_other_names_types_or_shapes_are_a_sentence(weights):
    tensors, about = checkpoint.read_weights(weights)
    first = next(iter(tensors))
    for change in (
        {first: tensors[first].reshape(-1)},
        {"another": torch.zeros(3)},
        {first: torch.zeros(0)},
    ):
        with pytest.raises(InputError, match="must contain the weights of the model"):
            load(rewritten(weights, tensors | change, about))
    with pytest.raises(InputError):
        load(rewritten(weights, {k: v for k, v in tensors.items() if k != first}, about))
