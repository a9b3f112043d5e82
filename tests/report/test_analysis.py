import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize

from allometry import InputError
from allometry.laws import fit
from allometry.report import analyse
from tests.report.synthetic import E, Synthetic, synthetic_runs, truth
from tests.report.synthetic import analysis as cached

GRID = {"per_parameter": (5.0, 20.0, 80.0), "noise": 0.002, "seeds": 1, "ngram": 1.14}


@pytest.fixture(scope="module")
def grid_analysis():
    return cached(**GRID)


@pytest.fixture(scope="module")
def ladder_analysis():
    return cached()


def changed(runs, rows, **values):
    table = runs.table.copy()
    for name, value in values.items():
        table.loc[rows, name] = value
    return dataclasses.replace(runs, table=table)


def least_loss(C):
    """The lowest loss that compute C = 6.4 N D buys under `truth`."""
    best = optimize.minimize_scalar(
        lambda n: float(truth(math.exp(n), C / 6.4 / math.exp(n))),
        bounds=(math.log(1e2), math.log(1e9)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(best.fun), math.exp(best.x)


def test_held_out_sizes_are_predicted(grid_analysis):
    family = grid_analysis.families[0]
    assert family.held_sizes == (150_000, 480_000)
    assert len(family.held_out) == 6
    # The true law is additive, with noise of 0.002 in losses above 1.1: that form predicts it.
    table = family.law_without.table
    columns = {name: np.exp(table.logs[name]) for name in ("N", "D")}
    fitted = fit(columns | {"loss": np.exp(table.y)}, "chinchilla", bootstrap=0)
    for held in family.held_out:
        at = held.configuration
        assert abs(fitted(N=at.N, D=at.D) / at.loss.value - 1) < 0.02
    # With twelve runs, forms without irreducible loss have a third of the average, and predictions
    # are corrected by what larger runs of other families show, which these lack.
    assert family.error < 0.05
    for held in family.held_out:
        at = held.configuration
        assert held.predicted.covers(float(truth(at.N, at.D)))
        assert held.error == held.predicted.value / at.loss.value - 1


def test_predictions_owe_nothing_to_the_held_out_runs(ladder_analysis):
    runs = synthetic_runs()
    large = runs.table["N"].isin([150_000, 480_000]) & (runs.table["family"] == "transformer")
    again = analyse(changed(runs, large, loss=9.0))
    before = [h.predicted for h in ladder_analysis.families[0].held_out]
    assert [h.predicted for h in again.families[0].held_out] == before
    assert not any(h.covered for h in again.families[0].held_out)
    assert ladder_analysis.families[0].law_without.n == 8


def test_unfinished_runs_enter_no_fit(ladder_analysis):
    runs = synthetic_runs()
    broken = runs.table["status"] != "done"
    analysis = analyse(changed(runs, broken, loss=0.01, loss_se=1e-6))
    assert analysis.families[0].law.params == ladder_analysis.families[0].law.params
    assert analysis.best == ladder_analysis.best
    assert {u.status for u in analysis.unfinished} == {"diverged", "failed"}
    assert "nan at step 311" in analysis.unfinished[0].error


def test_a_loss_that_is_not_finite_is_not_a_result():
    runs = synthetic_runs(broken=False)
    analysis = analyse(changed(runs, runs.table.index[3], loss=math.inf))
    assert [u.status for u in analysis.unfinished] == ["no finite loss"]


def test_the_crossing_is_where_the_true_law_has_it(grid_analysis):
    met = grid_analysis.families[0].crossing
    target = grid_analysis.rival.loss.value
    C = optimize.brentq(
        lambda c: least_loss(math.exp(c))[0] - target, math.log(1e9), math.log(1e20)
    )
    C = math.exp(C)
    N = least_loss(C)[1]
    assert met.C.covers(C)
    assert met.C.value == pytest.approx(C, rel=0.25)
    assert met.N.covers(N)


def test_the_crossing_has_the_ends_of_the_band(grid_analysis):
    law, met = grid_analysis.families[0].law, grid_analysis.families[0].crossing
    target = grid_analysis.rival.loss.value
    for C, end in ((met.C.lo, "lo"), (met.C.value, "value"), (met.C.hi, "hi")):
        loss = law.plan(compute=C).loss
        # The grid on which it is found has steps of 10 % in compute, joined by straight lines.
        assert getattr(loss, {"lo": "lo", "hi": "hi"}.get(end, "value")) == pytest.approx(
            target, rel=1e-3
        )


def test_larger_budgets_reach_what_the_true_law_has(grid_analysis):
    family = grid_analysis.families[0]
    largest = max(c.C for c in family.configurations)
    # The law plans in logarithms: the budget comes back to the last digits only.
    assert [r.C for r in family.reaches] == pytest.approx([10 * largest, 100 * largest], rel=1e-12)
    for reached in family.reaches:
        loss, N = least_loss(reached.C)
        assert reached.loss.covers(loss)
        assert reached.N.covers(N)
        assert reached.passes == reached.D.value / grid_analysis.D_unique
        assert reached.fresh is None  # there are data enough


def test_the_frontier_is_the_least_loss_of_the_law(grid_analysis):
    family = grid_analysis.families[0]
    line = family.frontier
    for i in (10, 40, 79):
        assert line.lo[i] < line.mid[i] < line.hi[i]
        assert line.mid[i] == pytest.approx(family.law.plan(line.C[i]).loss.value, rel=1e-4)


def test_an_n_gram_that_is_better_is_named():
    analysis = cached(**GRID)
    assert "the n-gram baseline of order 7 reaches 1.140 and is better" in analysis.headline
    assert "Predicted crossover with the n-gram baseline of order 7: " in analysis.headline
    assert analysis.headline.count("95 % interval") == 1
    assert analysis.best.family == "ngram"


def test_a_transformer_that_is_better_is_named():
    analysis = cached(ngram=1.6)
    assert "and is better than the n-gram baseline of order 7 at 1.600" in analysis.headline
    assert "Predicted loss at ten times the compute: " in analysis.headline
    assert analysis.best.family == "transformer"
    assert analysis.families[0].crossing is None  # it is measured, not predicted


def test_two_that_seeds_do_not_separate_are_tied():
    best = cached().families[0].best.loss.value
    assert "the spread between seeds does not separate" in cached(ngram=best + 0.001).headline
    one = cached(ngram=1.22, seeds=1)
    level = cached(ngram=one.families[0].best.loss.value + 0.001, seeds=1)
    assert "one seed does not separate them" in level.headline


def test_a_loss_below_the_floor_is_no_crossover():
    analysis = cached(**GRID | {"ngram": E - 0.3})
    assert analysis.families[0].crossing is None
    assert "not identified by these runs. The scaling law levels off above" in analysis.headline


def test_the_mean_over_seeds_carries_both_errors():
    runs = synthetic_runs(seeds=3, broken=False)
    config = analyse(runs).families[0].configurations[0]
    rows = runs.table[runs.table["key"].isin(config.keys)]
    assert config.loss.value == pytest.approx(rows["loss"].mean())
    spread = rows["loss"].std() / math.sqrt(3)
    assert config.spread == pytest.approx(spread)
    assert config.loss.se == pytest.approx(math.hypot(spread, 0.006))


def test_the_error_that_both_share_does_not_hide_who_is_better():
    runs = synthetic_runs(ngram=1.15)
    analysis = analyse(changed(runs, runs.table.index, loss_se=0.1))
    assert analysis.families[0].best.loss.value - analysis.rival.loss.value < 0.15
    assert "reaches 1.150 and is better" in analysis.headline


def test_runs_still_to_come_are_counted():
    runs = synthetic_runs(ngram=None)
    asked = [*runs.table["key"], "one", "two"]
    analysis = analyse(dataclasses.replace(runs, about=runs.about | {"runs": asked}))
    assert analysis.waiting == 2


def test_unequal_data_are_named():
    analysis = cached(**GRID)
    best = analysis.families[0].best
    assert best.D > 1.05 * analysis.rival.D
    assert "The training data differ: 420K characters for the baseline, " in analysis.headline
    runs = synthetic_runs(**GRID)
    same = analyse(changed(runs, runs.table["family"] == "ngram", D=best.D))
    assert same.families[0].best.D == same.rival.D
    assert "differ" not in same.headline


def test_a_given_law_and_plan_are_used():
    runs = synthetic_runs()
    done = runs.table[(runs.table["status"] == "done") & (runs.table["family"] == "transformer")]
    law = fit(done[["N", "D", "C", "loss"]], form="power")
    analysis = analyse(runs, law, law.plan(compute=1e15))
    assert analysis.families[0].law is law
    assert [r.label for r in analysis.families[0].reaches] == ["the plan asked for", "10×", "100×"]
    assert analysis.families[0].reaches[0].C == 1e15


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sizes": (), "ngram": None}, "There are no runs on notes.txt yet"),
        ({"sizes": ()}, "No trained family has a finished run"),
        (
            {"sizes": (1000,)},
            "A scaling law needs at least 3 sizes with a finished run; there is 1.",
        ),
        ({"sizes": (1000, 9000), "ngram": None}, "A scaling law needs at least 3 sizes"),
        ({"sizes": (1000, 9000, 81_000)}, "With 3 sizes, none could be held out"),
    ],
)
def test_few_runs_still_have_a_headline(arguments, said):
    analysis = cached(**arguments)
    assert said in analysis.headline


def test_several_families_are_ordered_best_first():
    analysis = cached(families=("gru", "transformer", "odd/name <b>"))
    assert [f.name for f in analysis.families] == ["gru", "transformer", "odd/name <b>"]
    assert "the best of three trained families, GRU (480K parameters" in analysis.headline
    # The same law 4 % higher: the same exponent, and held-out sizes for each. Forms that do
    # about as well may change places at the head of the average, so that the exponent is the
    # law's own slope, which all forms have.
    at, up = {"N": 5e5, "D": 1e7}, {"N": 5e5 * 1.01, "D": 1e7 * 1.01}
    level = np.array([f.law(**at) for f in analysis.families]).reshape(-1)
    slope = -np.log([f.law(**up) for f in analysis.families]).reshape(-1) + np.log(level)
    assert slope == pytest.approx([slope[0]] * 3, rel=0.15)
    assert level == pytest.approx(level[0] * 1.04 ** np.arange(3), rel=0.01)
    assert all(len(f.held_out) == 2 for f in analysis.families)


def test_the_crossing_counts_its_passes(grid_analysis):
    met = grid_analysis.families[0].crossing
    assert met.passes == met.D.value / grid_analysis.D_unique
    assert met.D.value == pytest.approx(met.C.value / 6.4 / met.N.value, rel=0.01)


def test_what_is_missing_is_said():
    none = cached(ngram=None)
    assert none.notes[0] == "There is no n-gram or other baseline to compare with."
    three = cached(sizes=(1000, 9000, 81_000))
    assert "at least 4 sizes" in three.families[0].notes[0]
    assert three.families[0].held_out == ()
    four = cached(sizes=(1000, 9000, 81_000, 500_000))
    assert "Only the largest size could be held out" in four.families[0].notes[0]
    assert len(four.families[0].held_out) == 1


def test_nothing_finished():
    runs = synthetic_runs(sizes=(1000, 9000, 81_000), ngram=None)
    only = dataclasses.replace(runs, table=runs.table[runs.table["status"] != "done"])
    analysis = analyse(only)
    assert "No run on notes.txt has finished: 2 runs diverged or failed" in analysis.headline
    assert analysis.families == ()


def test_runs_of_others_need_few_columns():
    full = synthetic_runs(broken=False, ngram=None)
    table = full.table[["family", "N", "D", "loss"]]
    analysis = analyse(Synthetic(table, full.lines, {}))
    assert 6 * table["N"][0] * table["D"][0] == analysis.families[0].configurations[0].C
    assert np.isfinite(analysis.families[0].law(C=1e13))
    with pytest.raises(InputError, match="have a column 'loss'"):
        analyse(Synthetic(table.drop(columns="loss"), full.lines, {}))


def test_hold_out_must_not_be_negative():
    with pytest.raises(InputError, match=r"analyse\.hold_out must be at least 0; got -1"):
        analyse(synthetic_runs(), hold_out=-1)


def test_no_prediction_is_below_a_known_entropy():
    runs = synthetic_runs(broken=False)
    without = analyse(runs).families[0]
    first, second = without.reaches
    floor = (first.loss.value + first.loss.interval[0]) / 2
    assert second.loss.value < floor  # else there is nothing to test
    assert first.loss.interval[0] < floor
    known = dataclasses.replace(runs, table=runs.table.assign(floor=2 * floor, symbol_entropy=2.0))
    (family,) = analyse(known).families
    assert [r.label for r in family.reaches] == ["10×"]
    for r in family.reaches:
        assert r.loss.value >= floor
        assert r.loss.interval[0] >= floor
    assert family.frontier.lo.min() >= floor
    assert family.best.loss == without.best.loss  # what was measured stays
    reasons = [c.reason for c in family.claims if not c.supported]
    said = f"below the entropy of {floor:.3f}, the lowest possible loss"
    assert any(said in reason for reason in reasons), reasons


def test_domains_are_not_called_rivals():
    runs = synthetic_runs(
        sizes=(1_400, 4_600, 15_000), families=("text", "tunes"), ngram=None, broken=False
    )
    about = {"target": {"name": "domains", "unit": "of the entropy of a symbol"}}
    analysis = analyse(dataclasses.replace(runs, about=about))
    assert analysis.headline.startswith("One transformer on two kinds of data")
    assert analysis.headline.count("for text") == analysis.headline.count("for tunes") == 1
    assert not any("n-gram" in note for note in analysis.notes)
