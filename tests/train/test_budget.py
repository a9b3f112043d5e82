"""What a run costs, counted quickly and as torch counts it."""

import functools
import json
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from allometry.models import Transformer
from allometry.models.convolution import CausalConvolution
from allometry.study.recipes.density_runs import build_density
from allometry.train import Flops, budget, next_token
from allometry.train.budget import count_cost, count_next_token

MODELS = {
    "decoder": lambda: Transformer(11, 16, 2, 2, 8, positions="rotary"),
    "encoder": lambda: Transformer(11, 16, 1, 1, 8, kind="encoder", positions="learned"),
    "convolution": lambda: CausalConvolution(11, 16, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_those_of_torchs_counter(name):
    model, tokens = MODELS[name](), torch.randint(11, (3, 9))
    with FlopCounterMode(display=False) as torchs, sdpa_kernel(SDPBackend.MATH):
        next_token(model, tokens).backward()
    with Flops() as ours, sdpa_kernel(SDPBackend.MATH):
        next_token(model, tokens).backward()
    assert ours.total == torchs.get_total_flops() > 0


def test_operations_of_a_flow_are_those_of_torchs_counter():
    model = build_density("spline_coupling", (2,), None, layers=2, width=8, rng=None)
    with FlopCounterMode(display=False) as torchs:
        model.log_prob(torch.zeros(5, 2)).sum().backward()
    with Flops() as ours:
        model.log_prob(torch.zeros(5, 2)).sum().backward()
    assert ours.total == torchs.get_total_flops() > 0


def test_a_large_model_is_counted_on_its_shapes_alone_with_the_same_result(monkeypatch):
    make = MODELS["decoder"]
    here = count_next_token(make, vocabulary=11, context=8)
    monkeypatch.setattr(budget, "SMALL", 0)
    assert count_next_token(make, vocabulary=11, context=8) == here
    huge = functools.partial(Transformer, 11, 1 << 14, 2, 8, 8, positions="rotary")
    N, _, flops = count_next_token(huge, vocabulary=11, context=8, about=6e9)
    assert N > 6e9
    assert 5.5 * N < flops < 7 * N


def test_counting_draws_nothing_that_others_would_have_drawn():
    torch.manual_seed(3)
    first = torch.rand(2)
    torch.manual_seed(3)
    count_cost(lambda: torch.nn.Linear(3, 4), lambda model: model(torch.ones(2, 3)).sum())
    assert torch.equal(torch.rand(2), first)


def test_a_grid_imports_neither_the_compiler_nor_pandas():
    """Each takes a second, which is a third of what a dry run may take."""
    code = (
        "import sys, json\n"
        "from allometry.cli import app, study_run\n"
        "from allometry.study import jobs\n"
        "rows = [study_run.grid(jobs.study(job).rows()) for job in "
        "('embedded', 'ring', 'digits', 'universal', 'dyck', 'reversal', 'tasks')]\n"
        "heavy = ('torch._dynamo', 'pandas', 'sklearn', 'altair', 'ray')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(printed) == []
