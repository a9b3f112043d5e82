"""Profiled step times: studies of one shape pay once, and a damaged cache is profiled anew."""

import json
import os

import pytest

from allometry.study.schedule import step_time_cache, timing
from allometry.study.schedule.timing import StepTime, TimingOptions, profile
from tests.study.test_packing import study

OPTIONS = TimingOptions(workers=2, threads=1)
FOUND = {"step": 0.01, "packed": {"2": 0.015}, "measure": 0.2, "finish": None, "traced": 0.9}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "allometry" / step_time_cache.FILE


@pytest.fixture
def profiled(monkeypatch):
    """The shapes that were really profiled."""
    seen = []

    def results(shapes, options, seconds):
        seen.extend(shapes)
        return [[dict(FOUND)] for _ in shapes]

    monkeypatch.setattr(timing, "_results", results)
    return seen


def shapes(**more):
    return [[spec] for spec in study(**more).specs()[:2]]


def test_three_studies_pay_for_profiling_once(profiled):
    first = profile(shapes(), OPTIONS)
    paid = len(profiled)
    assert first == [StepTime(0.01, {2: 0.015}, 0.2, None, 0.9)] * 2
    # Other lengths and seeds are other runs of the same shape.
    assert profile(shapes(), OPTIONS) == first
    assert profile([[spec] for spec in study(tokens=[8e3]).specs()[:2]], OPTIONS) == first
    assert 0 < len(profiled) == paid


def test_other_conditions_are_profiled_again(profiled):
    profile(shapes(), OPTIONS)
    paid = len(profiled)
    profile(shapes(), TimingOptions(workers=2, threads=2))
    profile(shapes(), TimingOptions(workers=2, threads=1, precision="bfloat16"))
    assert len(profiled) == 3 * paid


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace("0.01", '"a"'),
        lambda text: text.replace("0.01", "-1"),
        lambda text: text.replace("0.01", "NaN"),
        lambda text: text.replace('"measure"', '"meter"'),
        lambda text: json.dumps(dict.fromkeys(json.loads(text), 3)),
    ],
)
def test_a_damaged_cache_is_profiled_anew(profiled, cache, damage):
    expected = profile(shapes(), OPTIONS)
    paid = len(profiled)
    cache.write_text(damage(cache.read_text()))
    assert profile(shapes(), OPTIONS) == expected
    assert len(profiled) > paid


def test_old_entries_expire(profiled, monkeypatch):
    profile(shapes(), OPTIONS)
    paid = len(profiled)
    later = step_time_cache.time.time() + step_time_cache.EXPIRES + 1
    monkeypatch.setattr(step_time_cache.time, "time", lambda: later)
    profile(shapes(), OPTIONS)
    assert len(profiled) == 2 * paid


def test_a_cache_that_others_can_write_to_is_not_used(profiled, cache):
    profile(shapes(), OPTIONS)
    paid = len(profiled)
    os.chmod(cache.parent, 0o777)  # noqa: PTH101 - that is what is tested
    profile(shapes(), OPTIONS)
    assert len(profiled) == 2 * paid


def test_compiled_step_times_are_known_to_the_next_study(monkeypatch):
    asked = []

    def compile_all(shapes, options, *, compiled, seconds):
        asked.extend(each for share in shapes for each in share)
        price = {"eager": 1.0, "compiled": 0.6, "once": 2.0, "cold": 17.0}
        return [[dict(price) for _ in share] for share in shapes]

    monkeypatch.setattr(timing, "_profile", compile_all)
    assert timing.known_compiled(shapes(), OPTIONS) == [None, None]
    assert step_time_cache.compile_seconds() is None
    made = timing.profile_compiled(shapes(), OPTIONS)
    assert made == [timing.CompiledStepTime(1.0, 0.6, 2.0, 17.0)] * 2
    assert timing.known_compiled(shapes(), OPTIONS) == made
    assert step_time_cache.compile_seconds() == 17.0
    # The number of vectorised models is part of what is compiled.
    pair = [[spec for (spec,) in shapes()]]
    assert timing.known_compiled(pair, OPTIONS) == [None]
    assert len(asked) == 2
