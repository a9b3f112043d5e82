"""Recipes of Mamba, linear attention and mixtures of experts: sizes, packing, files."""

import pytest
import torch

import allometry as al
from allometry.decode import greedy, sample
from allometry.study import jobs, load, recipes
from allometry.study.recipes.state_space_runs import FAMILIES, grow, parameters
from allometry.targets import Text
from allometry.train.budget import count_parameters
from allometry.train.objectives import next_token
from allometry.train.packed.stack import StackedModels
from tests.study.fakes import carry_out


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "mats.txt"
    path.write_text("the cat sat on the mat and the dog lay on the log. " * 200)
    return Text(path)


def requests(text, family, sizes=(2e3,), seeds=1, **options):
    recipe = getattr(recipes, family)
    return recipe(text, list(sizes), tokens=[1024.0], seeds=seeds, context=16, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_are_counted_and_near_those_asked_for(text, family):
    for N in (1e3, 2e4, 3e5):
        width, depth, heads = grow(family, N)
        (spec,) = requests(text, family, (N,))
        with torch.device("meta"):
            model = spec().shape()
        assert count_parameters(model)[0] == parameters(family, width, depth, heads)
        assert 0.6 < parameters(family, width, depth, heads) / N < 1.6


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_seeds_have_the_gradients_of_single_ones(text, family):
    runs = [spec() for spec in requests(text, family, seeds=3)]
    models = [run.model() for run in runs]
    tokens = torch.stack([text.batch(0, size=3, context=20, seed=i) for i in range(3)])
    stacked = StackedModels(models)
    losses = stacked.map(next_token, tokens)
    (gradient,) = torch.autograd.grad(losses.sum(), stacked.flat)
    for i, model in enumerate(models):
        alone = torch.autograd.grad(next_token(model, tokens[i]), list(model.parameters()))
        torch.testing.assert_close(gradient[i], torch.cat([g.flatten() for g in alone]))


@pytest.mark.parametrize("family", [*FAMILIES, "moe"])
def test_a_run_is_saved_loaded_and_generates(text, family, tmp_path):
    (spec,) = requests(text, family, (1e3,))
    run, outcome = spec(), carry_out(spec, tmp_path)
    assert outcome.columns["family"] == family
    assert outcome.columns["N"] == run.budget().N
    (path,) = tmp_path.rglob("*.safetensors")
    saved = load(path)
    drawn = sample(saved.model, saved.vocabulary.encode("the ").tolist(), greedy, n=12)
    assert len(saved.vocabulary.decode(drawn)) == 12


def test_a_mixture_reports_active_and_total_parameters(text):
    (spec,) = requests(text, "moe", experts=4, active_experts=2)
    run = spec()
    assert (run.family_name, run.packs, run.splits) == ("moe (2 of 4)", False, False)
    N, total = run.budget().N, run.columns["N_total"]
    (dense,) = requests(text, "transformer")
    assert abs(N / dense().budget().N - 1) < 0.1  # a token uses as much as without experts
    model = run.model()
    assert total == sum(p.numel() for p in model.parameters()) - run.cost()[1]
    assert total > 1.5 * N


def test_options_of_a_mixture_are_for_a_mixture(text, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one two three four five six seven. " * 100)
    with pytest.raises(al.InputError, match="experts must be for the family moe"):
        jobs.study(str(path), variant={"experts": 4})
    with pytest.raises(al.InputError, match=r"active_experts must be from 1 to experts \(2\)"):
        requests(text, "moe", experts=2, active_experts=3)
    study = jobs.study(str(path), families=["moe"], variant={"experts": 4}, context=16)
    assert study.specs()[0]().experts == 4
