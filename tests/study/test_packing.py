"""What goes together, how long it takes, and that the journal does not depend on it."""

import dataclasses
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import allometry as al
from allometry import InputError, Spec
from allometry.study import Runs, Schedule, Study, local, recipes
from allometry.study.request import default_dtype
from allometry.study.schedule import (
    compiling,
    cost_model,
    job_timing,
    packing,
    timing,
    timing_worker,
)
from allometry.study.schedule.packing import bundles, choose, one_step, span, stepping
from allometry.study.schedule.study_budget import flops, seconds_of, within
from allometry.study.schedule.timing import (
    CompiledStepTime,
    JobTime,
    StepTime,
    TimingOptions,
    profile,
)
from allometry.study.tasks import Bundle, ExecutionOptions, Task
from allometry.train import DeviceSettings, branch_step, next_token
from allometry.train.loop import Progress, Stopped
from allometry.train.lr_schedule import log_spaced
from allometry.train.packed import adamw
from tests.study.fakes import Deaf, FakeRun

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


def study(**changes):
    asked = {"ladder": [900], "seeds": 2, "tokens": [8e3, 1.6e4]} | changes
    return Study(TEXT, [recipes.transformer], **asked)


def packed(tasks, size=4):
    """All of them in one bundle."""
    return Schedule(
        (Bundle("together", tuple(tasks), ExecutionOptions(size=min(size, len(tasks)))),), 1, 1.0
    )


@given(st.lists(st.lists(st.integers(2, 60), min_size=1, max_size=4), min_size=1, max_size=5))
def test_stepping_counts_every_row_of_every_step(lengths):
    price = StepTime(1.0, {2: 2.0, 9: 9.0}, 0.0)  # a row costs a second, packed or not
    rows = 0
    for unit in lengths:
        if len(unit) == 1:
            rows += unit[0]
            continue
        for at in range(max(unit)):
            rows += sum(branch_step(s) <= at < s for s in unit)
            rows += any(branch_step(s) > at for s in unit)
    assert stepping(lengths, price) == pytest.approx(rows)


def test_a_packed_step_lies_between_those_that_were_tried():
    price = StepTime(1.0, {2: 1.2, 4: 1.6, 8: 2.8}, 0.0)
    seconds = [one_step(m, price, packed=True) for m in range(1, 9)]
    assert seconds == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.9, 2.2, 2.5, 2.8])
    assert one_step(3, price, packed=False) == 3.0


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=12), st.integers(1, 4))
def test_the_end_lies_between_its_bounds(works, workers):
    made = [Bundle(str(i), (Task(Spec(FakeRun, name=str(i)), w),)) for i, w in enumerate(works)]
    end = span(made, workers) - packing.START
    least = max(max(works), sum(works) / workers)
    # Longest first ends within 4/3 of the best, which is no less than `least` (Graham 1969).
    assert least - 1e-9 <= end <= sum(works) / workers + max(works) + 1e-9


def choices(monkeypatch, price, workers=2, **changes):
    monkeypatch.setattr(packing, "profile", lambda shapes, *_: [price] * len(shapes))
    specs = study(**changes).specs()
    return choose([Task(s, s().work()) for s in specs], workers=workers, threads=1), specs


@pytest.mark.parametrize("gain", [0.3, 1.0])
def test_what_is_cheaper_packed_is_packed_and_every_run_is_there_once(monkeypatch, gain):
    price = StepTime(0.01, {2: 2 * 0.01 * gain, 4: 4 * 0.01 * gain}, 0.0, 0.0)
    made, specs = choices(monkeypatch, price, ladder=[900, 2000, 5000])
    keys = [task.key for bundle in made for task in bundle.tasks]
    assert sorted(keys) == sorted(spec.key for spec in specs)
    sizes = {len(bundle.tasks) for bundle in made}
    assert (max(sizes) > 1) == (gain < 1)
    assert all(bundle.how.size == len(bundle.tasks) for bundle in made)


def test_no_worker_is_left_without_work(monkeypatch):
    """Eight seeds packed as one are least work, and take twice as long as four on each core."""
    price = StepTime(0.01, {2: 0.013, 4: 0.019, 8: 0.031}, 0.0, 0.0)
    made, _ = choices(monkeypatch, price, seeds=8, tokens=[1.6e4])
    assert [len(bundle.tasks) for bundle in made] == [4, 4]


def test_long_bundles_are_compiled_where_trying_says_so(monkeypatch):
    answers = iter([CompiledStepTime(1.0, 0.7, 10.0), CompiledStepTime(1.0, 0.7, 1e4)])
    monkeypatch.setattr(
        compiling, "profile_compiled", lambda packs, *_: [next(answers)] * len(packs)
    )
    price = StepTime(200.0, {}, 0.0, 0.0)
    first, _ = choices(monkeypatch, price)
    second, _ = choices(monkeypatch, price)
    assert all(b.how.compiled and b.name != b.tasks[0].key for b in first)
    assert not any(b.how.compiled for b in second)
    assert sum(b.work for b in first) == pytest.approx(0.7 * sum(b.work for b in second))


def test_compiling_risks_at_most_three_percent_of_a_shape(monkeypatch, tmp_path):
    """A shape is compiled to try it only if that is lost in its time; a known one always."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiling, "compiler", lambda: "c++")
    asked, known = [], []
    monkeypatch.setattr(
        compiling, "profile_compiled", lambda s, *_: asked.extend(s) or [None] * len(s)
    )
    made, _ = choices(monkeypatch, StepTime(1e-6, {}, 0.0, 0.0), tokens=[1.6e4])
    steps = sum(bundle.work for bundle in made) / 1e-6
    least = compiling.COMPILE_SECONDS / compiling.RISK / steps
    for share in (0.99, 1.01):
        choices(monkeypatch, StepTime(least * share, {}, 0.0, 0.0), tokens=[1.6e4])
        known.append(len(asked))
    assert known == [0, 1]
    # The median time of earlier compilations replaces the assumed one.
    monkeypatch.setattr(compiling, "compile_seconds", lambda: 2 * compiling.COMPILE_SECONDS)
    choices(monkeypatch, StepTime(least * share, {}, 0.0, 0.0), tokens=[1.6e4])
    assert len(asked) == 1


def test_a_shape_of_an_earlier_study_is_compiled_where_it_saves_time(monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda: "c++")
    monkeypatch.setattr(compiling, "profile_compiled", None)
    for share, expected in ((0.7, True), (0.99, False)):
        times = CompiledStepTime(1.0, share, 2.0, 20.0)
        monkeypatch.setattr(compiling, "known_compiled", lambda s, *_, t=times: [t] * len(s))
        made, _ = choices(monkeypatch, StepTime(1.0, {}, 0.0, 0.0), tokens=[1.6e4])
        assert {bundle.how.compiled for bundle in made} == {expected}
    # Too short: loading the code takes longer than it saves.
    times = CompiledStepTime(1.0, 0.7, 2.0, 20.0)
    monkeypatch.setattr(compiling, "known_compiled", lambda s, *_: [times] * len(s))
    made, _ = choices(monkeypatch, StepTime(0.01, {}, 0.0, 0.0), tokens=[1.6e4])
    assert not any(bundle.how.compiled for bundle in made)


@pytest.mark.parametrize("counted", [False, True])
def test_one_training_takes_all_threads_unless_other_runs_would_wait_for_them(
    monkeypatch, counted
):
    """Twice as fast on two threads, which are then not free for other runs."""
    prices = {1: StepTime(0.02, {}, 0.0, 0.0), 2: StepTime(0.01, {}, 0.0, 0.0)}
    monkeypatch.setattr(
        packing, "profile", lambda shapes, ways, *_: [prices[ways.threads]] * len(shapes)
    )
    families = [recipes.transformer, recipes.ngram] if counted else [recipes.transformer]
    specs = Study(TEXT, families, ladder=[900], seeds=1, tokens=[1.6e4]).specs()
    made = choose([Task(s, s().work()) for s in specs], workers=2, threads=1)
    assert len(made) == len(specs)
    assert {bundle.how.threads for bundle in made} == ({None} if counted else {2})


@dataclass(frozen=True)
class Stepping(FakeRun):
    """A run whose seconds are known, on a clock of its own."""

    family: str = "stepping"
    steps: int = 0
    unlike: float = 0.0
    """Seconds more to make it where it is long."""

    clock: ClassVar[list[float]] = [0.0]

    @property
    def columns(self):
        return super().columns | {"family": self.family}

    @property
    def parts(self):
        """To make it, of a step, of a measurement, to finish."""
        return 0.1 + (self.unlike if self.steps > 100 else 0.0), 0.01, 0.03, 0.4

    def __call__(self, place):
        make, step, measurement, finish = self.parts
        marks = log_spaced(self.steps, 12)
        self.clock[0] += make
        for at in range(1, self.steps + 1):
            self.clock[0] += step + (measurement if at in marks else 0.0)
            place.watch(Progress(at, self.steps, 1.0))
            if place.stop() and at < self.steps:
                raise Stopped
        self.clock[0] += finish
        return super().__call__(place)


@pytest.mark.parametrize("asked", [{"steps": 30}, {"steps": 3000}, {"steps": 900, "unlike": 0.5}])
def test_the_seconds_of_a_run_are_known_from_a_part_of_it(monkeypatch, asked):
    run, now = Stepping("a", **asked), Stepping.clock
    monkeypatch.setattr(job_timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    make, step, measurement, finish = run.parts
    truth = make + run.steps * step + len(log_spaced(run.steps, 12)) * measurement + finish
    started = now[0]
    # The few steps of the short run leave out one or two of the measurements.
    assert job_timing.job_seconds(run) == pytest.approx(truth, rel=0.05)
    assert now[0] - started < min(truth + 1e-9, 4.0)


def test_a_shape_without_progress_is_skipped_and_the_others_are_profiled(monkeypatch):
    """The process is ended from outside, and another one goes on with what is left."""
    monkeypatch.setattr(timing, "SHAPE_TIMEOUT", 4.0)
    monkeypatch.setattr(timing, "RESTART", 0.0)
    names = ("quick", "long", "late")
    shapes = [[Spec(Deaf, name=n, seconds=300.0 * (n == "long"))] for n in names]
    quick, long, late = profile(shapes, TimingOptions(workers=1, threads=1), seconds=100.0)
    assert isinstance(quick, JobTime)
    assert long is None
    assert isinstance(late, JobTime)


def test_trying_ends_when_its_time_is_up():
    started = time.monotonic()
    (found,) = profile(
        [[Spec(Deaf, name="long", seconds=300.0)]], TimingOptions(2, 1), seconds=1.0
    )
    assert found is None
    assert time.monotonic() - started < 20.0


def test_nothing_is_interrupted_by_a_signal():
    """An alarm that rings in the midst of an import leaves half a module behind."""
    sources = Path(al.__file__).parent.rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert "SIGALRM" not in text
    assert "setitimer" not in text


def test_jobs_without_training_are_estimated_from_two(monkeypatch):
    """Guesses that are off by factors of 3 at one end and 12 at the other, 6 in the middle."""
    tasks = [Task(Spec(Stepping, name=f"{work}"), work) for work in (10.0, 40.0, 160.0)]
    off = {"10.0": 30.0, "160.0": 1920.0}
    monkeypatch.setattr(
        packing, "profile", lambda shapes, *_: [JobTime(off[spec().name]) for (spec,) in shapes]
    )
    made = choose(tasks, workers=1, threads=1)
    assert {b.tasks[0].key: b.work for b in made} == pytest.approx(
        dict(zip([task.key for task in tasks], [30.0, 240.0, 1920.0], strict=True))
    )


def test_of_many_families_the_middle_ones_of_the_dearest_are_tried():
    tasks = [
        Task(Spec(Stepping, name=f"{place}", family=f"f{i}"), float(i + place))
        for i in range(10)
        for place in (1, 2, 3)
    ]
    requests = {task.key: task.spec() for task in tasks}
    asked = []

    def ask(shapes):
        asked.extend(shapes)
        return [None] * len(shapes)

    assert cost_model.estimate({}, tasks, requests, ask) == ({}, {})
    assert [spec().family for (spec,) in asked] == [f"f{i}" for i in range(9, 1, -1)]
    assert {spec().name for (spec,) in asked} == {"2"}


def test_a_probe_says_how_long_things_take(monkeypatch):
    monkeypatch.setattr(timing, "SHAPE_TIMEOUT", 60.0)
    specs = study().specs()
    count = Study(TEXT, [recipes.ngram], ladder=[1], seeds=1).specs()[2]
    price, counted = profile([specs, [count]], TimingOptions(workers=1, threads=1), seconds=100.0)
    assert isinstance(price, StepTime)
    assert isinstance(counted, JobTime)
    assert 0.0 < counted.seconds < 30.0
    assert 1e-4 < price.step < 1.0
    assert set(price.packed) == {2, 4}
    # More models never take less time, and a pack of four takes less than ten models do.
    assert price.step / 2 < price.packed[4] < 10 * price.step
    assert price.measure > 0
    assert price.finish > price.measure / 2


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
def test_a_probe_computes_in_the_precision_of_the_runs(monkeypatch, precision):
    monkeypatch.setattr(adamw, "best_precision", lambda *_: "bfloat16")
    seen = []

    def noted(model, *batch):
        seen.append(torch.is_autocast_enabled("cpu"))
        return next_token(model, *batch)

    with default_dtype(torch.float32):
        made = study().specs()[0]().training()
    made = dataclasses.replace(made, objective=noted)
    on = timing_worker._on(made, DeviceSettings("cpu", precision))
    timing_worker._update(made, 0, on)
    timing_worker._pack([made], on).step(0)
    assert on.precision == "bfloat16"
    assert all(seen)
    assert len(seen) >= 2


@pytest.mark.parametrize("together", [True, False])
def test_the_journal_says_in_which_precision_a_run_was_trained(tmp_path, together):
    # Two runs where they are packed, which takes two; steps in bfloat16 are slow at this size.
    asked = study(seeds=1 + together, tokens=[4e3])
    place = local(workers=1, threads=1, on=DeviceSettings("cpu", "bfloat16"))
    how = packed(asked.tasks(tmp_path)) if together else None
    frame = asked.run(tmp_path, place, schedule=how).frame()
    assert set(frame["status"]) == {"done"}
    assert set(frame["dtype"]) == {"bfloat16"}


def test_a_schedule_tries_the_precision_it_is_asked_for(monkeypatch):
    seen = []

    def probe(shapes, ways, *_):
        seen.append(ways.precision)
        return [StepTime(0.01, {}, 0.0, 0.0)] * len(shapes)

    monkeypatch.setattr(packing, "profile", probe)
    study().schedule("/nonexistent", workers=2, threads=1, precision="auto")
    assert set(seen) == {"auto"}


def losses(folder):
    frame = Runs(folder).frame().sort_values("key")
    return frame.set_index("key")[["loss", "test_loss", "C", "D", "N", "seed"]]


def test_a_packed_study_has_the_journal_of_a_plain_one_and_resumes_in_the_same_digits(tmp_path):
    plain = losses(study().run(tmp_path / "plain", local(workers=1, threads=1)).folder)
    asked = study()
    runs = asked.run(
        tmp_path / "packed", local(workers=1, threads=1), schedule=packed(asked.tasks("none"))
    )
    whole = losses(runs.folder)
    assert list(whole.index) == list(plain.index)
    # Float32: sums taken in another order, which thirty steps at a high rate enlarge.
    np.testing.assert_allclose(whole, plain, rtol=1e-3)
    assert list((runs.folder / "checkpoints").iterdir()) == []
    assert len(runs.curves()["key"].unique()) == 4

    class Enough(Exception):
        pass

    events = itertools.count()

    def watch(event):
        if event.kind in ("progress", "done") and next(events) == 3:
            raise Enough

    broken = tmp_path / "broken"
    with pytest.raises(Enough):
        asked.run(broken, local(workers=1, threads=1), watch, schedule=packed(asked.tasks("none")))
    assert list((broken / "checkpoints").iterdir())
    asked.run(broken, local(workers=1, threads=1))
    assert losses(broken).equals(whole)
    lines = [json.loads(line) for line in (broken / "journal.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)


def test_a_schedule_stays_with_its_folder(tmp_path):
    tasks = study().tasks(tmp_path)
    packed(tasks[:3]).save(tmp_path)
    Schedule((Bundle("late", tuple(tasks[2:3]), ExecutionOptions()),), 1, 1.0).save(tmp_path)
    found = bundles(tasks, tmp_path)
    assert [len(b.tasks) for b in found] == [3, 1]
    assert found[0].how.size == 3


def test_threads_are_never_more_than_the_slots(tmp_path):
    specs = [Spec(FakeRun, name=f"r{i}", seconds=0.2) for i in range(4)]
    made = [Bundle(s.key, (Task(s, 1.0),), ExecutionOptions(threads=2)) for s in specs]
    running = most = 0
    for event in local(workers=2, threads=1)(made, tmp_path):
        running += {"started": 1, "done": -1}.get(event.kind, 0)
        most = max(most, running)
    assert most == 1


def test_data_budgets_from_one_stable_phase_equal_single_runs(tmp_path):
    asked = Study(
        TEXT,
        [recipes.cooled(recipes.transformer)],
        ladder=[900],
        seeds=1,
        tokens=[4e3, 8e3, 1.6e4],
    )
    specs = asked.specs()
    assert len({spec().stable_phase for spec in specs}) == 1
    plain = losses(asked.run(tmp_path / "plain", local(workers=1, threads=1)).folder)
    together = packed(asked.tasks("none"), size=1)
    shared = losses(
        asked.run(tmp_path / "shared", local(workers=1, threads=1), schedule=together).folder
    )
    assert list(shared.index) == list(plain.index)
    np.testing.assert_allclose(shared, plain, rtol=1e-3)
    # A stable phase of 25 steps and cool-downs of 2, 3 and 6 instead of 8 + 16 + 31 steps.
    share = flops(asked) / sum(spec().budget().C for spec in specs)
    assert share == pytest.approx((25 + 2 + 3 + 6) / (8 + 16 + 31))


def test_a_stable_phase_is_one_unit_of_a_schedule(monkeypatch):
    asked = Study(
        TEXT, [recipes.cooled(recipes.transformer)], [900], seeds=2, tokens=[4e3, 8e3, 1.6e4]
    )
    price = StepTime(1.0, {2: 2.0, 4: 4.0}, 0.0, 0.0)
    monkeypatch.setattr(packing, "profile", lambda shapes, *_: [price] * len(shapes))
    made = choose([Task(s, 1.0) for s in asked.specs()], workers=2, threads=1)
    assert [len(bundle.tasks) for bundle in made] == [3, 3]
    assert [len({t.spec().stable_phase for t in bundle.tasks}) for bundle in made] == [1, 1]
    assert sum(bundle.work for bundle in made) == pytest.approx(2 * (25 + 2 + 3 + 6))


@pytest.mark.parametrize("most", [3e10, 3e11])
def test_a_budget_decides_the_largest_size(most):
    asked = study(ladder=[900, 2000, 5000], seeds=1)
    cut = within(asked, operations=most)
    assert flops(cut) <= most
    assert len(cut.ladder) == 3
    assert cut.ladder[0] == 900
    taller = Study(
        TEXT, asked.recipes, al.study.ladder(900, cut.ladder[-1] * 1.3, 3), 1, cut.tokens
    )
    assert flops(taller) > most or cut.tokens[-1] < asked.tokens[-1]


def test_a_budget_too_small_is_refused_with_what_it_takes():
    with pytest.raises(InputError, match=r"flops must be at least .* for 3 sizes"):
        within(study(ladder=[900, 2000, 5000]), operations=1e3)
    with pytest.raises(InputError, match="be a duration such as 10min"):
        seconds_of("soon")
