"""`OwnCosts` and time budgets of a user's own code."""

import pytest

from allometry.study import Journal, command_study
from allometry.study.execute.time_limited_queue import TimeLimitedQueue
from allometry.study.own_training.own_costs import OwnCosts, costs_of
from allometry.study.schedule.measured_costs import MeasuredCosts
from allometry.study.tasks import Task, single


def study(widths=(8, 16, 32), **known):
    known = known or {"D": 1000}
    shapes = [{"width": w} | ({"N": w * w} | known if known.get("D") else {}) for w in widths]
    return command_study("train.py {width} {seed}", shapes, seeds=1)


def bundles_of(made):
    return [single(Task(spec, spec().work())) for spec in made.specs()]


def test_a_line_in_the_flops_is_found_and_larger_runs_are_not_underestimated():
    first, second, third = bundles_of(study())
    costs = OwnCosts(MeasuredCosts())
    assert not costs.known
    assert costs.seconds(first) < costs.seconds(third) < 1
    # 2 s to start and 1 s per 64,000 parameter-tokens: 3 s, 6 s, and 18 s at 16 times the FLOPs.
    costs.learn(first, 3.0)
    assert costs.seconds(third) == pytest.approx(3.0 * 16)
    costs.learn(second, 6.0)
    assert costs.seconds(third) == pytest.approx(18.0)
    # A slower repetition counts: the line is raised to it, and its own shape has its time.
    costs.learn(second, 9.0)
    assert costs.seconds(second) == 9.0
    assert costs.seconds(third) > 18.0


def test_shapes_of_unknown_size_grow_by_their_place_in_the_table():
    first, second, third = bundles_of(study(D=None))
    costs = OwnCosts(MeasuredCosts())
    costs.learn(first, 1.0)
    assert 1.0 < costs.seconds(second) < costs.seconds(third)
    costs.learn(second, 2.0)
    assert costs.seconds(third) == pytest.approx(4.0)


def test_a_resumed_study_knows_its_runtimes(tmp_path):
    made = study()
    rows = [
        {"key": spec.key, "status": "done", "loss": 1.0, "seconds": 3.0 * 4**i}
        for i, spec in enumerate(made.specs()[:2])
    ]
    for row in rows:
        Journal(tmp_path / "journal.jsonl").append(row)
    costs = costs_of(made, tmp_path, MeasuredCosts())
    assert costs.seconds(bundles_of(made)[2]) == pytest.approx(48.0)


def test_what_cannot_end_is_not_started():
    made = bundles_of(study())
    costs = OwnCosts(MeasuredCosts())
    costs.learn(made[0], 3.0)
    costs.learn(made[1], 6.0)
    queue = TimeLimitedQueue(made, 10.0, 1, costs)
    assert [b.name for b in queue] == [b.name for b in made[:2]]
    assert [b.name for b in queue.dropped] == [made[2].name]
    assert [b.name for b in TimeLimitedQueue(made, 30.0, 1, costs)] == [b.name for b in made]
