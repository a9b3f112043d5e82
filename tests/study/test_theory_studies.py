"""`allometry run degree | rank | mixer`: from the request to the words of the report."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from allometry import report
from allometry._core.errors import InputError
from allometry.cli.study_json import plain
from allometry.construct.programs import interpret
from allometry.report import questions
from allometry.report.questions import degrees
from allometry.study import Study, job_table, jobs, local
from allometry.study.recipes import algorithm_tasks
from allometry.study.recipes.built_runs import built_and_trained
from allometry.study.recipes.chebyshev_runs import chebyshevs, solve_chebyshev
from allometry.study.recipes.polynomial_learning import TEACHERS, learners, teacher_epsilon_rank
from allometry.study.recipes.polynomial_stacks import SMALL, STACKS
from allometry.study.recipes.rank_runs import mixers, ranks, stacks
from allometry.study.theory_studies import QUESTIONS
from allometry.targets import high_rank_functions
from tests.study.fakes import carry_out


def small(name, specs):
    """A study of one question with these runs only."""
    return Study(QUESTIONS[name], [lambda *a, **k: specs], ladder=[1], seeds=6, tokens=1000)


def carried(study, folder):
    runs = study.run(folder, local(workers=1, threads=1))
    frame = runs.frame()
    assert (frame["status"] == "done").all(), frame["error"].tolist()
    return runs, frame


def test_budgets_are_equal_where_they_can_be():
    sizes = {name: stack.size(8) for name, stack in STACKS.items()}
    assert {sizes[n] for n in ("T_2", "T_3", "T_4", "T_33222")} == {873}
    assert sizes["T_e"] < 873 < sizes["T_e wide"]
    assert sizes["T_e power"] < 873
    assert all(sum(s.degrees) == 12 for n, s in STACKS.items() if not n.startswith("T_e"))


def test_epsilon_ranks_of_teachers():
    """An exact rank, a hair away from exactness, is the rank; kinks have no finite one."""
    made = {name: spec() for name, spec in TEACHERS.items()}
    power = made["power"]
    assert power.rank == 20
    assert 1 < teacher_epsilon_rank(power) <= teacher_epsilon_rank(power, 1e-9) == 20
    for name, least in (("median", 30), ("largest", 100)):
        assert (
            2 < teacher_epsilon_rank(made[name]) < least < teacher_epsilon_rank(made[name], 0.01)
        )


@pytest.fixture(scope="module")
def degree(tmp_path_factory):
    specs = learners(["T_2", "T_3", "T_e power"], seeds=6, points=2560, trials=1, rates=[0.01],
                     teachers=["power"])  # fmt: skip
    specs += chebyshevs(["T_2", "T_3"], starts=4, kicks=0, steps=20)[:2]
    study = small("degree", specs)
    return study, tmp_path_factory.mktemp("degree")


def test_degrees_from_runs_to_words(degree):
    study, folder = degree
    runs, frame = carried(study, folder)
    learnt = frame[frame["part"] == "learning"]
    assert set(learnt["family"]) == {"T_2", "T_3", "T_e power"}
    assert (learnt["test_lo"] <= learnt["test_loss"]).all()
    assert (learnt["test_loss"] <= learnt["test_hi"]).all()
    assert all(len(e) == 6 for e in learnt["errors"])
    solved = frame[frame["part"] == "solving"]
    assert solved.set_index("family")["solved"]["T_2, six forms"] == 0
    analysis = report.analyse(runs)
    assert "Chebyshev 9" in analysis.headline
    path = report.write(folder / "report.html", runs, analysis=analysis)
    page = path.read_text()
    assert "Test errors" in page
    assert "Polynomials solved by second-order optimisation" in page
    assert "only for -0.290 &lt; c &lt; 0.819" in page
    assert {p.name for p in (folder / "report_charts").iterdir()} == {"errors-1.svg", "solved.svg"}
    answer = plain(analysis)
    assert answer["findings"][0]["tables"][0]["rows"][0]["Stack"] == "T_2"


def test_a_second_call_has_nothing_left_to_do(degree):
    study, folder = degree
    assert study.tasks(folder) == []


def rows(specs, folder):
    """What these runs leave in a journal, carried out in this process."""
    return pd.DataFrame([carry_out(spec, folder, spec.key).columns for spec in specs])


def drawn(answer):
    return [chart.draw(400) for finding in answer.findings for chart in finding.charts]


def test_ranks_from_runs_to_words(tmp_path):
    frame = rows(ranks(["hadamard", "multi"], budgets=(6,)), tmp_path)
    by = frame.set_index(["form", "degree"])["rank"]
    assert (by["multi", 2], by["multi", 3]) == (24, 29)
    assert frame["exact"].all()
    assert (frame["rank"] <= frame["bound"]).all()
    answer = questions.answer("rank", frame)
    assert "largest at degree 3 for multi-pooled attention of width 2" in answer.verdict
    assert "but not for Hadamard-pooled attention of width 2" in answer.verdict
    assert "at degree 4" in answer.findings[1].words[2]
    assert all(drawn(answer))


def test_epsilon_ranks_of_stacks(tmp_path):
    frame = rows(
        [s for s in stacks(draws=6) if "power" not in s.arguments["stack"]][-2:], tmp_path
    )
    assert frame["family"].tolist() == ["T_e wide", "T_33222"]
    assert (frame["epsilon_rank"] <= frame["near_rank"]).all()
    assert frame["near_rank"].between(2, 256).all()
    answer = questions.answer("rank", frame)
    assert answer.verdict.startswith("No rank has been measured")
    assert answer.findings[0].tables[0].rows[0][0].text == "T_e wide"


def test_ranks_too_large_to_measure_follow_the_theorem(tmp_path):
    frame = rows([s for s in ranks(["narrow"]) if s.arguments["degrees"] == [4] * 3], tmp_path)
    assert frame["rank"].tolist() == [17**4]
    assert "theorem" in frame["method"][0]


def test_mixers_from_runs_to_words(tmp_path):
    frame = rows(mixers(["linear", "cubic", "gelu"]), tmp_path)
    linear = frame[frame["form"] == "linear"]
    assert (linear["rank"] == 2).all()
    assert (linear["epsilon_rank"] <= 2).all()
    # Cubes reach all but two of what degree 9 can have, sum_a min(C(a+3,3), C(12-a,3)) = 140.
    cubic = frame[frame["form"] == "cubic"]
    assert (cubic["rank"].item(), cubic["bound"].item()) == (138, 140)
    gelu = frame[frame["form"] == "gelu"]
    assert gelu["rank"].isna().all()
    assert (gelu["epsilon_rank"] > 2).all()
    answer = questions.answer("mixer", frame)
    assert "separation rank 2 at 1, 2 and 4 layers" in answer.verdict
    assert "attention is not special" in answer.verdict
    assert all(drawn(answer))


def table(medians, width=0.1):
    rows = [
        {"family": name, "target": "f", "rung": i, "test_loss": m, "seeds": 16}
        | {"test_lo": m * (1 - width), "test_hi": m * (1 + width)}
        for i, (name, m) in enumerate(medians.items())
    ]
    return pd.DataFrame(rows).assign(part="learning", errors=[[1.0]] * len(rows))


@pytest.mark.parametrize(
    ("medians", "said"),
    [
        ({"T_2": 3.0, "T_3": 1.0, "T_4": 2.0}, "T_3 learns best on every teacher. The predicted"),
        ({"T_2": 1.0, "T_3": 3.0, "T_4": 2.0}, "degree 3 first, holds on 0 of 1 teacher."),
        ({"T_2": 1.0, "T_3": 1.05, "T_4": 2.0}, "are not distinguishable on any teacher"),
    ],
)
def test_verdicts_follow_the_intervals(medians, said):
    assert said in degrees._verdict(table(medians), pd.DataFrame(columns=["target", "family"]))


def test_a_diverged_stack_never_wins():
    found = degrees.errors(table({"T_2": 1.0, "T_3": math.nan}))["f"]
    assert found["T_3"].value == math.inf
    assert degrees.winner(found) == "T_2"


def test_degree_nine_is_out_of_reach_of_degree_eight():
    """What is left of Chebyshev 9 is its part in Legendre products of degree 9: 0.207 of it."""
    x, weights = np.polynomial.legendre.leggauss(24)
    values = high_rank_functions.chebyshev(9)(torch.cartesian_prod(*[torch.from_numpy(x)] * 2))
    values = values.numpy().reshape(24, 24) * np.sqrt(np.outer(weights, weights)) / 2
    basis = [
        np.sqrt((2 * i + 1) * weights / 2) * np.polynomial.Legendre.basis(i)(x) for i in range(10)
    ]
    left = sum(float(basis[i] @ values @ basis[9 - i]) ** 2 for i in range(10))
    assert left / float((values**2).sum()) == pytest.approx(0.20722, abs=1e-5)
    assert solve_chebyshev(9, SMALL["T_2"], 4, kicks=1, steps=15).value == 0
    assert solve_chebyshev(8, SMALL["T_2 wide"], 6, kicks=1, steps=50).value > 0


def test_what_is_asked_wrongly_is_refused():
    for arguments, said in [
        ({"families": ["T_7"]}, r"family must be one of T_2, .* for degree; got 'T_7'"),
        ({"seeds": 3}, "seeds must be at least 6"),
        ({"tokens": [1e3, 1e4]}, "tokens must be one number for degree"),
    ]:
        with pytest.raises(InputError, match=said):
            jobs.study("degree", **arguments)
    with pytest.raises(InputError, match="family must be one of network, multi"):
        jobs.study("rank", families=["T_2"])


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_defaults_are_minutes(name):
    rows = jobs.study(name).rows()
    assert sum(row["seconds"] for row in rows) / 2 < 600


def test_built_against_trained_from_runs_to_words(tmp_path):
    specs = built_and_trained(["majority", "copy"], points=3e4, sizes=[(1, 8)], length=5)
    frame = rows(specs, tmp_path)
    built = frame[frame["part"] == "built"]
    assert built["accuracy"].tolist() == [[1.0] * 3] * 2
    assert built["lengths"].tolist() == [[5, 7, 11]] * 2
    trained = frame[frame["part"] == "trained"]
    assert trained["N"].gt(0).all()
    answer = questions.answer("built-against-trained", frame)
    assert "right at every tested length, up to 11" in answer.verdict
    assert "of 2 tasks" in answer.verdict
    assert all(drawn(answer))
    bounds = answer.findings[0].tables[1]
    assert [row[0].text for row in bounds.rows] == ["majority", "copy"]


@pytest.mark.parametrize("name", algorithm_tasks.TASKS)
def test_answers_of_tasks_are_those_of_the_interpreter(name):
    task = algorithm_tasks.TASKS[name]
    for word in task.draw(np.random.default_rng(0), 12, 7):
        assert task.answer(word) == interpret(task.program(), word)
    assert set(algorithm_tasks.TASKS) == set(job_table.BUILT_TASKS)
