"""Recipes of transformers with other norms, activations, heads and optimisers."""

import math

import pytest
import torch

import allometry as al
from allometry import Spec
from allometry.study import Study, jobs, load, recipes
from allometry.study.recipes.transformer_runs import TransformerRun
from allometry.study.recipes.transformer_variants import VariantRun, grouped
from allometry.targets import Text
from allometry.train.muon import Muon
from tests.study.fakes import carry_out


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "mats.txt"
    path.write_text("the cat sat on the mat and the dog lay on the log. " * 200)
    return Text(path)


def requests(text, sizes=(2e3,), seeds=1, **variant):
    return recipes.transformer(
        text, list(sizes), tokens=[2048.0], seeds=seeds, context=16, **variant
    )


def test_the_default_is_the_same_request_as_ever(text):
    named = {"activation": "gelu", "norm": "layernorm", "optimizer": "adamw", "qk_norm": False}
    plain = requests(text)
    assert [s.key for s in requests(text, **named)] == [s.key for s in plain]
    assert plain[0].name.endswith(":TransformerRun")
    assert isinstance(plain[0](), TransformerRun)


def test_a_variant_is_a_family_of_its_own(text):
    (spec,) = requests(text, activation="swiglu", optimizer="muon", qk_norm=True)
    run = spec()
    assert isinstance(run, VariantRun)
    assert run.family_name == "transformer (swiglu, muon, qk-norm)"
    assert (run.columns["activation"], run.columns["optimizer"]) == ("swiglu", "muon")
    assert isinstance(run.training().optimiser, Muon)
    plain = requests(text)[0]()
    # As many parameters and FLOPs as without the gate, up to the rounding of its size.
    assert abs(math.log(run.budget().N / plain.budget().N)) < 0.1
    assert abs(math.log(run.budget().C / plain.budget().C)) < 0.1


def test_key_and_value_heads_divide_the_heads_of_every_size(text):
    assert [grouped({"key_value_heads": 4}, heads) for heads in (1, 2, 6, 8)] == [
        {"key_value_heads": g} for g in (1, 2, 3, 4)
    ]
    runs = [s() for s in requests(text, (1e3, 3e5), key_value_heads=2)]
    assert [r.model().blocks[0].attention.key_value_heads for r in runs] == [1, 2]


def test_a_run_is_saved_and_loaded(text, tmp_path):
    variant = {"activation": "swiglu", "norm": "rmsnorm", "optimizer": "muon"}
    (spec,) = requests(text, **variant, key_value_heads=1, qk_norm=True)
    outcome = carry_out(spec, tmp_path)
    assert outcome.columns["N"] == spec().budget().N
    (path,) = tmp_path.rglob("*.safetensors")
    model = load(path).model
    assert isinstance(model.blocks[0].feed_forward_norm, torch.nn.RMSNorm)
    assert model.blocks[0].feed_forward.gate is not None


def test_a_study_of_seeds_and_rates(text, tmp_path):
    recipe = lambda *a, **k: recipes.transformer(*a, context=16, **k, optimizer="muon")  # noqa: E731
    study = Study(text, [recipes.tuned(recipe, [0.004, 0.016])], [1e3], seeds=1, tokens=[2048.0])
    frame = study.run(tmp_path / "runs", al.study.local(1)).frame()
    assert list(frame["status"]) == ["done"]
    assert frame["lr"].iloc[0] in (0.004, 0.016)
    assert frame["family"].iloc[0] == "transformer (muon)"


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"activation": "cube"}, "activation must be one of relu"),
        ({"norm": "pre"}, "norm must be one of layernorm, rmsnorm; got 'pre'"),
        ({"optimizer": "sgd"}, "optimizer must be one of adamw, muon; got 'sgd'"),
        ({"key_value_heads": 0}, "key_value_heads must be at least 1; got 0"),
        ({"gate": True}, "transformer must have the options activation"),
    ],
)
def test_refusals(text, variant, message):
    with pytest.raises(al.InputError, match=message):
        requests(text, **variant)


@pytest.mark.parametrize("job", ["moons", "sorting", "degree", "dyck", "study.py:study"])
def test_other_jobs_refuse_the_options_of_a_text(job):
    with pytest.raises(al.InputError, match="norm must be for the transformer of a text; got"):
        jobs.study(job, variant={"norm": "rmsnorm"})


def test_a_name_in_a_weights_file_is_enough(text):
    shape = requests(text, norm="rmsnorm")[0]().shape
    assert Spec.from_dict(shape.to_dict()) == shape
