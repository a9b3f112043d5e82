"""What every recipe promises: keys, sizes, costs and results, whatever the family.

Steps are few and data small: the suite checks the protocol, not the quality of the models.
"""

import functools
import inspect
import json
import math
import tempfile
from pathlib import Path

import orjson
import pytest
import torch

from allometry import Spec
from allometry.study import recipes
from allometry.study.request import Request
from allometry.targets import Images, Points, Text, points
from tests.study.fakes import carry_out

NOT_FAMILIES = {
    **dict.fromkeys(("at_rate", "carried", "checked", "cooled", "retried", "tuned"), "wraps"),
    **dict.fromkeys(("domains", "transduction", "twins", "upstream"), "has targets of its own"),
    **dict.fromkeys(("built", "learner"), "approximates a function; see test_universal_study"),
}
"""Names of `study.recipes` that this suite does not cover, with the reason."""

IMAGES_ONLY = {"glow", "variational_splines", "discrete", "vqvae", "pixelcnn", "vae", "beta_vae"}
IMAGES_ONLY |= {"info_vae", "convolutional_autoencoder", "linear_autoencoder", "quantiser"}
TEXT = {"transformer", "mlp", "rnn", "lstm", "gru", "convolution", "ngram"}
TEXT |= {"moe", "mamba", "gla", "retnet", "masked_diffusion", "uniform_diffusion"}
NOTHING_TO_SIZE = {"ngram", "baseline", "moments", "quantiser"}
"""Families whose size follows from the data, an order or a code book."""

LIMITED = {"planar": (50, 250), "radial": (50, 250), "linear_autoencoder": (1e3, 6e3)}
"""Sizes of families with a largest one: by layers alone on points, or by the data's dimension."""

FAMILIES = sorted(set(recipes.__all__) - set(NOT_FAMILIES))


@functools.cache
def text() -> Text:
    path = Path(tempfile.mkdtemp()) / "mats.txt"
    path.write_text("the cat sat on the mat and the dog lay on the log. " * 400)
    return Text(path)


@functools.cache
def target(family: str):
    if family in TEXT:
        return text()
    if family in IMAGES_ONLY:
        return Images.digits()
    return Points(points.TwoMoons(), held_out=256)


def specs(family: str, sizes=(2e3,), seeds=1) -> list[Spec]:
    return getattr(recipes, family)(target(family), list(sizes), tokens=[256.0], seeds=seeds)


def test_every_name_is_covered_or_has_a_reason():
    assert set(NOT_FAMILIES) <= set(recipes.__all__)
    for name in FAMILIES:
        assert list(inspect.signature(getattr(recipes, name)).parameters)[:2], name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_is_a_value(family):
    one, again = specs(family, seeds=2), specs(family, seeds=2)
    assert [spec.key for spec in one] == [spec.key for spec in again]
    assert len({spec.key for spec in one}) == len(one)
    for spec in one:
        assert isinstance(spec(), Request)
        # Keys are hashes of plain values, so a journal in JSON can hold them.
        assert json.loads(orjson.dumps(spec.to_dict())) == spec.to_dict()


@pytest.mark.parametrize("family", FAMILIES)
def test_costs_are_known_in_advance(family):
    for spec in specs(family):
        request = spec()
        budget = request.budget()
        assert {"family", "target", "shape", "seed"} <= set(request.columns)
        assert request.columns["target"] == target(family).name
        assert budget.N >= 0
        assert budget.D > 0
        assert budget.C >= 0
        assert 0 <= request.work() < 600


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - NOTHING_TO_SIZE))
def test_larger_sizes_have_more_parameters_and_cost_more(family):
    sizes = LIMITED.get(family, (3e3, 3e4))
    small, large = (spec().budget() for spec in specs(family, sizes))
    assert small.N < large.N
    assert small.C < large.C
    # The smallest images models exceed what was asked; nothing is off by a factor of three.
    assert abs(math.log(large.N / sizes[1])) < math.log(3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_ends_with_its_columns_and_the_same_digits(family, tmp_path):
    spec = specs(family)[0]
    request = spec()
    torch.manual_seed(1)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = carry_out(spec, tmp_path / "one")
    torch.manual_seed(2)
    second = carry_out(spec, tmp_path / "two")
    for outcome in (first, second):
        assert math.isfinite(outcome.columns["loss"])
        if family != "ngram":  # it counts the contexts that occur
            assert outcome.columns["N"] == request.budget().N
        assert outcome.columns["D"] > 0
    # A run is a function of its request: the global generator of torch has no part in it.
    assert first.columns["loss"] == second.columns["loss"]
    assert {k: v.value for k, v in first.measures.items()} == {
        k: v.value for k, v in second.measures.items()
    }
