"""A budget of time is kept: by what is chosen beforehand, and by what is done about it since."""

import heapq
import json
import math
import time
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry import InputError, Spec
from allometry.cli.study_run import left_out
from allometry.study import Study, local, recipes, time_budget
from allometry.study.execute.driver import Event
from allometry.study.execute.time_limited_queue import TimeLimitedQueue, ending
from allometry.study.schedule import measured_costs, study_budget
from allometry.study.schedule.fixed_bundles import rule_bundles
from allometry.study.schedule.measured_costs import MeasuredCosts
from allometry.study.tasks import Bundle, Task, single
from allometry.targets import Text
from tests.study.fakes import Deaf, FakeRun

TEXT = Text.from_string("she sells sea shells by the sea shore. " * 120)


@dataclass(frozen=True)
class Priced(FakeRun):
    """A run that guesses what it takes."""

    N: float = 10.0
    seed: int = 0
    family: str = "priced"

    @property
    def columns(self):
        return super().columns | {"family": self.family, "seed": self.seed}

    def budget(self):
        return replace(super().budget(), N=round(self.N))

    def work(self):
        return self.seconds


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    """No test learns from another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def bundle(name, work, **about):
    spec = Spec(Priced, name=name, seconds=work, **about)
    return single(Task(spec, work))


def carry_out(queue, truth, clock, workers=2):
    """What a driver does, on a clock of its own; when the last run ended."""
    at, ends, idle = {}, [], list(range(workers))
    last = clock[0]
    while True:
        while idle and queue and not queue.over():
            worker = idle.pop()
            taken = queue.popleft()
            at[worker] = taken
            heapq.heappush(ends, (clock[0] + truth(taken), worker))
            queue.update(Event("started", taken.tasks[0], worker))
        if not ends:
            return last
        limit = queue.end + 0.05 * queue.seconds
        if ends[0][0] > limit:  # stopped by the driver
            clock[0] = limit + 0.01
            assert queue.over()
            return clock[0]
        clock[0], worker = heapq.heappop(ends)
        last = clock[0]
        queue.update(Event("done", at.pop(worker).tasks[0], worker))
        idle = [*idle, worker] if queue or not ends else idle
        idle = [w for w in range(workers) if w not in at]


def rungs(sizes=8, top=8.0):
    """Runs whose guesses climb to `top` seconds: six of each."""
    works = [top * 2.0 ** (i - sizes + 1) for i in range(sizes)]
    return [bundle(f"{i}.{j}", w) for i, w in enumerate(works) for j in range(6)]


def seeds(works):
    """Further runs without end."""
    for seed in range(1, 30):
        yield [bundle(f"s{seed}.{i}", w, seed=seed) for i, w in enumerate(works)]


@settings(max_examples=12)
@given(
    off=st.floats(1 / 3, 3.0),
    noise=st.floats(0.0, 0.3),
    tilt=st.floats(-0.2, 0.2),
    workers=st.integers(1, 4),
)
def test_a_study_ends_in_time_though_guesses_are_off_by_three(off, noise, tilt, workers):
    clock, made = [0.0], rungs(top=8.0)
    each = {b.name: 1 + noise * math.sin(13 * i) for i, b in enumerate(made)}

    def truth(taken):
        guess = taken.tasks[0].work + measured_costs.EACH
        return off * guess ** (1 + tilt) * each.get(taken.name, 1.0)

    seconds = sum(b.work + measured_costs.EACH for b in made) / workers
    works = [b.work for b in made[::-6]]
    queue = TimeLimitedQueue(
        made, seconds, workers, MeasuredCosts(), seeds(works), clock=lambda: clock[0]
    )
    end = carry_out(queue, truth, clock, workers)
    # A run may be as long as a seventh of the whole where guesses are three times too low.
    longest = 3 * 8.4 / seconds
    assert 0.95 - max(0.15, longest / 2) <= end / seconds <= 1.06


def test_the_shortest_come_first_and_the_longest_are_left_out():
    clock, made = [0.0], rungs()
    queue = TimeLimitedQueue(made, 40.0, 2, MeasuredCosts(), clock=lambda: clock[0])
    works = [b.work for b in queue]
    assert works == sorted(works)
    out = queue.dropped
    assert min(b.work for b in out) >= works[-1] / 2
    assert {b.name for b in out} | {b.name for b in queue} == {b.name for b in made}
    assert ending([0.0, 0.0], [b.work + measured_costs.EACH for b in queue]) <= 40.0 * 1.03


def test_runs_that_take_longer_than_expected_push_others_out_and_back():
    clock = [0.0]
    made = [bundle(f"{i}", 2.0) for i in range(20)]
    # Ten runs, and the imports of the worker's first one.
    seconds = 24.0 + measured_costs.FIRST_RUN_SECONDS
    queue = TimeLimitedQueue(made, seconds, 1, MeasuredCosts(), clock=lambda: clock[0])
    assert len(queue) == 10
    for i in range(2):  # a worker's first run is not used
        queue.update(Event("started", queue.popleft().tasks[0], 0))
        clock[0] += 4.8
        queue.update(Event("done", made[i].tasks[0], 0))
    assert len(queue) in (2, 3)
    assert len(queue.dropped) == 18 - len(queue)


def test_further_runs_fill_the_time_that_a_dropped_run_leaves():
    """Half of a budget went unspent when the largest size alone did not fit."""
    clock = [0.0]
    made = [*(bundle(f"{i}", 1.0) for i in range(8)), bundle("largest", 60.0)]
    queue = TimeLimitedQueue(
        made, 100.0, 2, MeasuredCosts(), seeds([1.0, 2.0, 4.0]), clock=lambda: clock[0]
    )
    assert [b.work for b in queue.dropped] == [60.0]
    expected = queue.expected()
    end = carry_out(queue, lambda b: b.work + measured_costs.EACH, clock)
    assert 85.0 <= end <= 103.0
    assert expected == pytest.approx(end, rel=0.15)


def test_no_size_is_chosen_that_the_queue_would_drop():
    costs, asked = MeasuredCosts(), Study(TEXT, [recipes.transformer], [1e3, 1e4, 1e5], 2, [4e4])
    for seconds in (45.0, 90.0, 200.0):
        chosen = study_budget.fitted(asked, seconds, costs, 2)
        tasks = [Task(spec, spec().work()) for spec in chosen.specs()]
        left = seconds - study_budget.START - costs.report(len(tasks))
        queue = TimeLimitedQueue(rule_bundles(tasks), left, 2, costs)
        assert not queue.dropped


def test_the_imports_of_first_runs_are_learnt():
    costs = MeasuredCosts()
    before = costs.first_run()
    for _ in range(4):
        costs.learn_first_run(4.0)
    costs.save(2, 1)
    after = measured_costs.load(2, 1).first_run()
    assert before == pytest.approx(measured_costs.FIRST_RUN_SECONDS)
    assert after == pytest.approx(4.0, rel=0.1)
    # Runs and reports have costs of their own.
    one = bundle("a", 2.0)
    assert measured_costs.load(2, 1).seconds(one) == pytest.approx(MeasuredCosts().seconds(one))


def test_what_a_dead_worker_left_behind_is_not_forgotten():
    clock = [0.0]
    made = [bundle(f"{i}", 2.0) for i in range(6)]
    queue = TimeLimitedQueue(made, 100.0, 2, MeasuredCosts(), clock=lambda: clock[0])
    first, second = queue.popleft(), queue.popleft()
    queue.update(Event("started", first.tasks[0], 0))
    queue.update(Event("started", second.tasks[0], 1))
    back = Bundle(first.name, first.tasks, first.how)
    queue.appendleft(back)  # as the driver does
    queue.update(Event("done", second.tasks[0], 1))
    assert queue[0] is back
    assert len(queue) == 5


def test_time_is_up_when_the_last_run_is_late_by_a_twentieth():
    clock = [0.0]
    queue = TimeLimitedQueue([bundle("a", 1.0)], 10.0, 1, MeasuredCosts(), clock=lambda: clock[0])
    clock[0] = 10.4
    assert not queue.over()
    clock[0] = 10.6
    assert queue.over()


def test_the_driver_stops_a_run_that_says_nothing_when_the_time_is_up(tmp_path):
    made = [single(Task(Spec(Deaf, name="long", seconds=60.0), 0.1))]
    queue = TimeLimitedQueue(made, 4.0, 1, MeasuredCosts())
    started = time.monotonic()
    events = [event.kind for event in local(workers=1, threads=1)(queue, tmp_path)]
    assert "done" not in events
    assert queue.stopped
    assert time.monotonic() - started < 50


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0.3, 3)), min_size=3, max_size=8))
def test_costs_follow_what_runs_take(seen):
    found = MeasuredCosts()
    for i, (work, factor) in enumerate(seen):
        one = bundle(f"{i}", work)
        found.learn(one, factor * found.guess(one)[1])
    low, high = (limit(factor for _, factor in seen) for limit in (min, max))
    for work in (0.05, 1.0, 100.0):
        one = bundle("new", work)
        found._guesses.clear()
        found._seconds.clear()
        ratio = found.seconds(one) / found.guess(one)[1]
        assert min(low, 1.0) * 0.999 <= ratio <= max(high, 1.0) * 1.001


def test_costs_are_saved_in_cpu_time():
    found = measured_costs.load(2, 1)
    one = bundle("a", 10.0)
    before = found.seconds(one)
    found.learn(one, 100.0, busy=20.0)
    assert found.seconds(one) == pytest.approx(100.0, rel=0.1)
    found.save(2, 1)
    assert measured_costs.load(2, 1).seconds(one) == pytest.approx(20.0, rel=0.1)
    assert measured_costs.load(4, 1).seconds(one) == pytest.approx(
        before, rel=0.5
    )  # another machine


def test_damaged_costs_are_measured_anew():
    found = measured_costs.load(2, 1)
    path = measured_costs._path()
    path.write_text("{]")
    again = measured_costs.load(2, 1)
    assert again.past == []
    assert again.speed == pytest.approx(found.speed, rel=0.9)


def study(**changes):
    asked = {"ladder": [900, 2000, 5000], "seeds": 2, "tokens": [8e3, 1.6e4]} | changes
    return Study(TEXT, [recipes.transformer, recipes.ngram], **asked)


@pytest.mark.parametrize("seconds", [40.0, 90.0])
def test_a_budget_of_time_decides_the_largest_size(seconds):
    made = study_budget.fitted(study(), seconds, MeasuredCosts(), 2)
    assert made.ladder[0] == 900
    assert len(made.ladder) == 3
    taken = (
        study_budget.span(made, MeasuredCosts(), 2)
        + study_budget.START
        + MeasuredCosts().report(20)
    )
    assert 0.6 * seconds <= taken <= 1.05 * seconds


@settings(max_examples=8)
@given(
    speed=st.floats(0.3, 30.0),
    rungs=st.integers(1, 6),
    seeds=st.integers(1, 3),
    workers=st.integers(1, 4),
)
def test_a_refusal_says_what_is_then_accepted(speed, rungs, seeds, workers):
    def sized(target, ladder, *, tokens, seeds):
        return [
            Spec(Priced, name=f"{N}", seconds=1e-5 * N**0.5 * D, N=N, seed=seed)
            for N in ladder
            for D in tokens
            for seed in range(seeds)
        ]

    sizes = [900 * 2**i for i in range(rungs)]
    asked = Study(TEXT, [sized, recipes.ngram], sizes, seeds, [8e3, 1.6e4])
    found = MeasuredCosts(speed=speed)
    with pytest.raises(InputError) as caught:
        study_budget.fitted(asked, 1.0, found, workers)
    said = str(caught.value)
    number = "1 size" if rungs == 1 else f"{rungs} sizes"
    assert f" s for {number} from 900 parameters up; got 1 s." in said
    least = float(said.partition("at least ")[2].partition(" s")[0])
    made = study_budget.fitted(asked, least, found, workers)
    assert made.ladder[0] == 900
    with pytest.raises(InputError, match=f"at least {least:.0f} s"):
        study_budget.fitted(asked, least - 1, found, workers)


def test_a_refusal_of_operations_says_what_is_then_accepted():
    asked = study()
    with pytest.raises(InputError, match=r"flops must be at least .* for 3 sizes") as caught:
        study_budget.within(asked, operations=1e3)
    least = float(str(caught.value).partition("at least ")[2].partition(" for")[0])
    assert study_budget.flops(study_budget.within(asked, operations=least)) <= least


def test_a_study_whose_sizes_change_nothing_is_given_less_data():
    def fixed(target, ladder, *, tokens, seeds):
        return [Spec(Priced, name=f"{D}", seconds=D / 100) for D in tokens]

    asked = Study(TEXT, [fixed], [1], seeds=1, tokens=[1e4])
    made = study_budget.fitted(asked, 40.0, MeasuredCosts(), 1)
    assert made.ladder == [1]
    assert 0.5 * 40 <= made.tokens[0] / 100 + 10 <= 40.0


def test_a_resumed_study_keeps_its_sizes_and_what_is_left_of_its_time(tmp_path):
    place, clock = local(workers=2, threads=1), [3.0]
    first = time_budget.budgeted(study(), tmp_path, 100.0, place, lambda: clock[0])
    left = first.left()
    clock[0] = 40.0
    first.save(tmp_path)
    clock[0] = 3.0
    again = time_budget.budgeted(study(), tmp_path, 100.0, place, lambda: clock[0])
    assert again.study.ladder == first.study.ladder
    assert again.study.tokens == first.study.tokens
    assert again.left() == pytest.approx(left - 40.0)
    clock[0] = 98.0
    first.save(tmp_path)
    assert time_budget.budgeted(study(), tmp_path, 100.0, place).spent
    assert not time_budget.budgeted(study(), tmp_path, 300.0, place).spent  # more of the same
    # Another question in the same folder is chosen for anew.
    other = time_budget.budgeted(study(seeds=1), tmp_path, 100.0, place, lambda: clock[0])
    assert other.before == 0.0


def test_a_folders_budget_that_is_damaged_is_chosen_anew(tmp_path):
    (tmp_path / time_budget.FILE).write_text(json.dumps({"asked": {}, "ladder": ["a"]}))
    made = time_budget.budgeted(study(), tmp_path, 60.0, local(workers=2, threads=1), lambda: 1.0)
    assert made.before == 0.0


def test_further_runs_are_the_next_size_and_another_seed_and_none_twice():
    asked = Study(TEXT, [recipes.transformer], [900, 2000, 5000], seeds=1, tokens=[8e3])
    have = {time_budget._run_identity(spec) for spec in asked.specs()}
    taller, other = (
        [time_budget._run_identity(t.spec) for b in more for t in b.tasks]
        for more, _ in zip(time_budget.further_runs(asked), range(2), strict=False)
    )
    assert min(what[3] for what in taller) > max(what[3] for what in have)
    assert {what[2] for what in other} == {1}
    everything = [*have, *taller, *other]
    assert len(set(everything)) == len(everything)


def test_small_trainings_of_a_shape_go_together_by_rule():
    tasks = [Task(spec, spec().work()) for spec in study().specs()]
    made = rule_bundles(tasks)
    assert sorted(t.key for b in made for t in b.tasks) == sorted(t.key for t in tasks)
    assert {len(b.tasks) for b in made if b.how.size > 1} == {4}
    assert rule_bundles(tasks) == made


def test_a_budgeted_study_keeps_to_its_time_and_lists_what_it_did(tmp_path):
    """Real workers on runs of known length: twenty seconds of work in four."""

    def known(target, ladder, *, tokens, seeds):
        return [Spec(FakeRun, name=f"r{i}", seconds=0.5) for i in range(80)]

    asked, begun, queues = Study(TEXT, [known], [1], seeds=1, tokens=[1e4]), [], []

    def clock():
        return time.monotonic() - begun[0] if begun else 0.0

    def watch(event):
        begun.extend([time.monotonic()] if not begun else [])  # when workers are there

    def make_queue(chosen):
        queues.append(TimeLimitedQueue(chosen, 4.0, 2, MeasuredCosts(), clock=clock))
        return queues[0]

    runs = asked.run(tmp_path, local(workers=2, threads=1), watch, make_queue=make_queue)
    done, out = len(runs.frame()), queues[0].dropped
    assert 0 < done < 40
    assert clock() < 30.0
    assert runs.state()["waiting"] == 0
    assert len(out) == 80 - done
    assert left_out(out).startswith(f"Left out to keep to the budget: {80 - done} runs, fake r")


@given(st.floats(1.0, 1e6), st.integers(1, 40), st.integers(0, 60), st.integers(1, 300))
def test_the_nearest_width_is_found_with_few_models(N, a, b, most):
    from allometry.study.recipes.base import nearest_width

    made = set()

    def size(w):
        made.add(w)
        return a * w * w + b * w + w // 3 + 5

    best = min(range(1, most + 1), key=lambda w: abs(math.log(size(w) / N)))
    made.clear()
    assert abs(math.log(size(nearest_width(size, N, most)) / N)) == pytest.approx(
        abs(math.log(size(best) / N))
    )
    assert len(made) < 12
