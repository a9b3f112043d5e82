"""Evaluations along a training of text read a part of the validation data, the last one all."""

import pytest
import torch

from allometry.models.diffusion import DiscreteDiffusion
from allometry.study import recipes
from allometry.study.recipes import discrete_diffusion_runs, text_run
from allometry.study.recipes.discrete_diffusion_runs import bound_on
from allometry.study.request import default_dtype
from allometry.study.saved_models import load
from allometry.targets import Text
from allometry.train.evaluate import evaluate, some_windows, token_losses
from tests.study.fakes import carry_out

CONTEXT = 16


@pytest.fixture(scope="module")
def text():
    words = torch.randint(0, 5, (30_000,), generator=torch.Generator().manual_seed(0)).tolist()
    return Text.from_string("".join("abcde"[i] for i in words), splits=(0.6, 0.2, 0.2))


def test_windows_are_at_even_distances():
    assert some_windows(10, 16, None).tolist() == list(range(10))
    assert some_windows(10, 16, 160).tolist() == list(range(10))
    assert some_windows(10, 16, 65).tolist() == [0, 2, 4, 6, 8]
    assert some_windows(10, 16, 1).tolist() == [0]


def test_a_part_of_a_split_has_the_losses_of_its_windows(text):
    (spec,) = recipes.mlp(text, [500], tokens=[500], seeds=1, context=CONTEXT)
    model = spec().model()
    all_losses = token_losses(model, text, "validation", context=CONTEXT)
    some = token_losses(model, text, "validation", context=CONTEXT, most=5 * CONTEXT)
    windows = -(-len(all_losses) // CONTEXT)
    chosen = some_windows(windows, CONTEXT, 5 * CONTEXT)
    kept = torch.cat([all_losses[i * CONTEXT : (i + 1) * CONTEXT] for i in chosen])
    torch.testing.assert_close(some, kept)


@pytest.mark.parametrize("family", ["mlp", "masked_diffusion"])
def test_the_final_loss_is_of_all_validation_data(text, family, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(text_run, "CURVE_TOKENS", 320)
    monkeypatch.setattr(discrete_diffusion_runs, "CURVE_TOKENS", 320)
    (spec,) = getattr(recipes, family)(text, [500], tokens=[2000], seeds=1, context=CONTEXT)
    training = spec().training()
    network = training.model.transformer if family == "masked_diffusion" else training.model
    network.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    training.measure(training.model)
    assert 320 <= sum(read) < 400  # one draw of diffusion, too
    done = carry_out(spec, tmp_path, spec.key)
    model = load(tmp_path / "weights" / f"{spec.key}.safetensors").model
    with default_dtype(torch.float32):  # of the draws of diffusion
        if isinstance(model, DiscreteDiffusion):
            whole = bound_on(model, text, "validation")
        else:
            whole = evaluate(model, text, "validation", context=CONTEXT)
    assert done.columns["loss"] == pytest.approx(whole.value, rel=1e-6)
