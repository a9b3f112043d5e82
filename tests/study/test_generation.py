import json

import pytest
import torch

from allometry import InputError, decode, study
from allometry._core.errors import StorageError
from allometry.study.recipes import sequence_runs
from allometry.study.recipes.text_run import weights_metadata
from allometry.targets import Text
from allometry.train import checkpoint
from tests.study.fakes import carry_out

TEXT = Text.from_string("the quick brown fox jumps over the lazy dog. " * 60)


def request(family, N=600):
    specs = getattr(study.recipes, family)(TEXT, [N], tokens=[512], seeds=1, context=16, batch=4)
    assert len(specs) == 1
    return specs[0]()


@pytest.mark.parametrize("family", sequence_runs.FAMILIES)
def test_a_family_is_grown_trained_saved_and_speaks_again(family, tmp_path):
    asked = request(family)
    outcome = carry_out(lambda: asked, tmp_path)
    columns = outcome.columns
    assert columns["family"] == family
    assert columns["N"] == asked.budget().N
    assert columns["D"] == 8 * 4 * 16
    assert columns["loss"] < 3.5
    assert columns["C"] > 4 * columns["D"] * columns["N"]
    saved = study.load(tmp_path / "weights" / "key.safetensors")
    going = study.Generation(saved, "the ", decode.plain, n=20, seed=1)
    text = "".join(piece.text for piece in going)
    told = going.describe()
    assert told["text"] == text
    assert told["tokens"] == len(text) == 20
    assert told["perplexity"] == pytest.approx(torch.tensor(told["along"]).mean().exp().item())
    best, *others = study.likeliest(saved, "the ", n=5, width=3)
    assert best["log_prob"] >= others[0]["log_prob"]


@pytest.mark.parametrize("family", sequence_runs.FAMILIES)
@pytest.mark.parametrize("N", [1e3, 1e4, 1e5, 1e6])
def test_sizes_come_within_a_fifth_of_what_is_asked(family, N):
    found = request(family, N).budget().N
    assert found == pytest.approx(N, rel=0.2)


def test_stops_and_grammars_end_a_generation(tmp_path):
    model = study.SavedModel(_counts(), TEXT.vocabulary, "ngram", "string", TEXT.unit)
    going = study.Generation(model, "t", decode.plain, n=99, stop=[" "])
    assert "".join(piece.text for piece in going) == going.describe()["text"]
    assert going.describe()["text"].endswith(" ")
    assert going.describe()["text"].count(" ") == 1
    rule = decode.constrained(decode.regex("[a-z]{3}\\.", TEXT.vocabulary.token_bytes()))
    going = study.Generation(model, "t", rule, n=99)
    list(going)
    assert len(going.describe()["text"]) == 4


def _counts():
    from allometry.models import KneserNey

    return KneserNey(4, TEXT.vocabulary.size).fit(TEXT.train)


def test_bytes_are_shown_when_they_are_characters():
    from allometry.models import AddConstant

    text = Text.from_string("é€" * 300, vocabulary="bytes")
    model = AddConstant(4, 256, alpha=1e-6).fit(text.train)
    saved = study.SavedModel(model, text.vocabulary, "ngram", "string", text.unit)
    pieces = [p.text for p in study.Generation(saved, "é€", decode.greedy, n=10)]
    assert "".join(pieces) == "é€é€"
    assert set(pieces) == {"é", "€"}


def test_files_that_are_no_model_are_refused(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(StorageError, match="not a whole safetensors file"):
        study.load(tmp_path / "x.safetensors")
    checkpoint.save_weights(tmp_path / "y.safetensors", _counts(), {"family": "ngram"})
    with pytest.raises(InputError, match="does not say what it is"):
        study.load(tmp_path / "y.safetensors")
    data = weights_metadata("x", TEXT.spec, TEXT) | {
        "model": json.dumps({"spec": "os:system", "arguments": {}})
    }
    checkpoint.save_weights(tmp_path / "z.safetensors", _counts(), data)
    with pytest.raises(InputError, match="must name a registered model"):
        study.load(tmp_path / "z.safetensors")
    with pytest.raises(InputError, match="study folder"):
        study.load(tmp_path)
    with pytest.raises(InputError, match="at least one symbol"):
        study.Generation(
            study.SavedModel(_counts(), TEXT.vocabulary, "", "", ""), "", decode.plain, n=1
        )
