"""`referee`: two studies run against each other until a verdict stands."""

import numpy as np
import pytest

from allometry._core.errors import InputError
from allometry.study import function_study
from allometry.study.referee import referee
from tests.support.stub import Here

SHAPES = [{"width": w, "N": w * w} for w in (8, 16, 32, 64)]


def trained(shape, seed, gain, name):
    C = 6000 * shape["N"] * gain
    common = np.random.default_rng([seed, shape["N"]]).normal(0, 0.001)
    own = np.random.default_rng([seed, shape["N"], name]).normal(0, 0.001)
    return float((1.8 + 30 * C**-0.15) * np.exp(common + own))


def plain(shape, tokens, seed):
    return trained(shape, seed, 1.0, 1)


def better(shape, tokens, seed):
    return trained(shape, seed, 2.0, 2)


def same(shape, tokens, seed):
    return trained(shape, seed, 1.0, 3)


def broken(shape, tokens, seed):
    raise RuntimeError("out of memory")


def studies(second):
    return {
        "plain": function_study(plain, SHAPES, tokens=1000),
        "other": function_study(second, SHAPES, tokens=1000),
    }


def test_it_stops_when_the_verdict_stands_and_continues_in_its_folder(tmp_path):
    done = referee(studies(better), tmp_path, 600.0, Here())
    assert done.found.winner == "other"
    assert done.found.multiplier.covers(2.0)
    assert done.runs < 2 * 4 * 16
    again = referee(studies(better), tmp_path, 600.0, Here())
    assert again.runs == done.runs


def test_it_stops_at_the_budget_and_says_what_is_missing(tmp_path):
    done = referee(studies(same), tmp_path, 1e-6, Here())
    assert done.found.winner is None
    assert "more than the budget has left" in done.why
    assert done.runs == 2 * 3 * 2


def test_a_study_without_a_finished_run_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError, match="out of memory"):
        referee(studies(broken), tmp_path, 600.0, Here())
