"""`laws.compare_recipes` against ladders whose multiplier is known."""

from dataclasses import replace

import numpy as np
import pytest

import allometry as al
from allometry._core.errors import InputError
from allometry.laws.comparison import comparison_verdict, paired_runs
from allometry.laws.comparison.linear_evidence import LinearFit, ScaledFits
from allometry.laws.comparison.run_noise import RunNoise
from allometry.laws.comparison.sequential import evidence


def ladder(
    seed=0, m=1.5, nu=0.0, floor=0.0, sizes=5, seeds=3, noise=0.004, shared=0.5, recipes=("A", "B")
):
    """Runs with D = 20 N; the second recipe acts as with m (C / C_max)^nu times the compute."""
    rng, rows = np.random.default_rng(seed), []
    C = np.logspace(17, 20, sizes)
    for c in C:
        for s in range(seeds):
            common = rng.normal()
            for i, name in enumerate(recipes):
                h = i * (np.log(m) + nu * np.log(c / C[-1]))
                loss = 1.8 * np.exp(i * floor) + 1.5 * (c * np.exp(h) / 10**18.5) ** -0.15
                chance = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal()
                n = np.sqrt(c / 120)
                rows.append((name, n, 20 * n, c, loss * np.exp(noise * chance), s))
    names: list[str] = ["recipe", "N", "D", "C", "loss", "seed"]
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def rows_of(frame, keep):
    return {name: column[keep] for name, column in frame.items()}


def test_the_winner_and_its_multiplier_are_found_inside_and_beyond_the_runs():
    for at in (1e20, 1e21, 1e22):
        found = al.laws.compare_recipes(ladder(), at=at)
        assert found.winner == "B"
        assert found.multiplier.covers(1.5)
        assert found.multiplier.interval[0] > 1
        assert "B wins" in found.verdict
    assert found.measured.interval[1] / found.measured.interval[0] < 1.3


def test_intervals_widen_with_extrapolation():
    def width(at):
        lo, hi = al.laws.compare_recipes(ladder(), at=at).multiplier.interval
        return np.log(hi / lo)

    assert width(1e20) < width(1e21) < width(1e23)


def test_intervals_cover_the_truth():
    """24 ladders; four standard errors below 95 % are 0.77. `bench/compare.py` has hundreds."""
    inside = beyond = 0
    for seed in range(24):
        found = al.laws.compare_recipes(ladder(seed, sizes=4), at=1e21)
        inside += found.measured.covers(1.5)
        beyond += found.multiplier.covers(1.5)
    assert min(inside, beyond) >= 19


def test_equal_recipes_stay_undecided_and_the_cost_is_said():
    found = al.laws.compare_recipes(ladder(m=1.0), at=1e21)
    assert found.winner is None
    assert found.multiplier.covers(1.0)
    assert "Undecided" in found.verdict


def test_a_gain_that_changes_sign_crosses_over_where_it_does():
    # h = log 1.02 + nu log(C / 1e20) = 0 at 1e20 exp(-log(1.02) / nu).
    found = al.laws.compare_recipes(ladder(m=1.02, nu=-0.2, noise=0.002), at=1e22)
    assert (found.winner, found.trend) == ("A", "crosses over")
    assert found.crossover is not None
    assert found.crossover.covers(float(1e20 * np.exp(np.log(1.02) / 0.2)))


@pytest.mark.parametrize(("nu", "word"), [(0.1, "grows"), (-0.1, "shrinks")])
def test_trends(nu, word):
    found = al.laws.compare_recipes(ladder(m=3.0, nu=nu, noise=0.001))
    assert (found.winner, found.trend) == ("B", word)


def test_own_irreducible_losses_are_covered():
    frame = ladder(m=1.0, floor=-0.02, noise=0.001)
    found = al.laws.compare_recipes(frame, at=1e21)
    # A needs the compute at which 1.8 + f(C') = 1.8 exp(-0.02) + f(1e21).
    fall = 1.5 * (1e21 / 10**18.5) ** -0.15
    need = 10**18.5 * ((1.8 * np.expm1(-0.02) + fall) / 1.5) ** (-1 / 0.15) / 1e21
    assert found.winner == "B"
    assert found.multiplier.covers(float(need))


def test_size_and_data_on_a_grid():
    rng, rows = np.random.default_rng(0), []
    for N in np.logspace(7, 9, 4):
        for D in np.logspace(9, 11, 4):
            for name, gain in (("A", 1.0), ("B", np.sqrt(2))):
                loss = 1.7 + 400 / (N * gain) ** 0.34 + 410 / (D * gain) ** 0.28
                rows.append((name, N, D, loss * np.exp(rng.normal(0, 0.003))))
    columns = map(np.array, zip(*rows, strict=True))
    frame = dict(zip(("recipe", "N", "D", "loss"), columns, strict=True))
    found = al.laws.compare_recipes(frame, at=1e22)
    assert found.winner == "B"
    assert found.multiplier.covers(2.0)


def test_several_variants_are_judged_together():
    first, second = ladder(m=1.6), ladder(m=1.1, recipes=("A", "C"))
    third = rows_of(second, second["recipe"] == "C")
    frame = {name: np.concatenate([first[name], third[name]]) for name in first}
    found = al.laws.compare_recipes(frame)
    assert found.winner == "B"
    assert {rival.name for rival in found.rivals} == {"A", "C"}
    assert found.rivals[0].name == "C"
    assert found.multiplier.level == pytest.approx(0.975)


def test_one_size_decides_there_and_nowhere_else():
    frame = ladder(sizes=1, seeds=8)
    here = al.laws.compare_recipes(frame)
    assert here.winner == "B"
    assert any("One size" in text for text in here.warnings)
    assert al.laws.compare_recipes(frame, at=1e22).winner is None


def test_unpaired_missing_and_unequal_runs():
    frame = ladder(seeds=4)
    without = {name: column for name, column in frame.items() if name != "seed"}
    assert al.laws.compare_recipes(without).winner == "B"
    keep = np.random.default_rng(0).random(len(frame["loss"])) < 0.7
    found = al.laws.compare_recipes(rows_of(frame, keep))
    assert found.winner == "B"
    assert found.multiplier.covers(1.5)
    short = (frame["recipe"] == "A") | (frame["C"] < 1e19)
    found = al.laws.compare_recipes(rows_of(frame, short), at=1e20)
    assert found.multiplier.covers(1.5)


@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.5])
def test_no_noise_and_much_noise(noise):
    found = al.laws.compare_recipes(ladder(noise=noise), at=1e21)
    assert found.winner == (None if noise == 0.5 else "B")
    lo, hi = found.multiplier.interval
    assert lo <= 1.5 * (1 + 1e-4)
    assert hi >= 1.5 * (1 - 1e-4)


def test_compute_may_be_missing():
    frame = ladder()
    del frame["C"]
    assert al.laws.compare_recipes(frame).scale == "C"
    del frame["D"]
    found = al.laws.compare_recipes(frame)
    assert found.scale == "N"
    assert found.multiplier.covers(1.5**0.5)


def test_unequal_tuning_is_flagged():
    frame = ladder()
    tuned = {name: np.concatenate([column] * 3) for name, column in frame.items()}
    tuned["lr"] = np.repeat([0.001, 0.01, 0.1], len(frame["loss"]))
    tuned["loss"] = tuned["loss"] * np.where(tuned["lr"] == 0.01, 1.0, 1.05)
    keep = (tuned["recipe"] == "B") | (tuned["lr"] == 0.01)
    found = al.laws.compare_recipes(rows_of(tuned, keep))
    assert any("tuned unequally: values of lr tried: A 1, B 3" in w for w in found.warnings)
    assert found.multiplier.covers(1.5)
    edge = al.laws.compare_recipes(rows_of(tuned, tuned["lr"] < 0.05))
    assert any("end of the values tried" in text for text in edge.warnings)


def test_failed_runs_are_counted():
    frame = ladder()
    frame["status"] = np.where((frame["recipe"] == "B") & (frame["seed"] == 0), "diverged", "done")
    found = al.laws.compare_recipes(frame)
    assert any("B 5" in text for text in found.warnings)


def test_mistakes_get_one_sentence():
    frame = ladder()
    with pytest.raises(InputError, match="by must be a column of the runs; got 'optimizer'"):
        al.laws.compare_recipes(frame, by="optimizer")
    with pytest.raises(InputError, match="by must not be the loss or a size; got 'N'"):
        al.laws.compare_recipes(frame, by="N")
    with pytest.raises(InputError, match="recipe must have at least 2 values"):
        al.laws.compare_recipes(rows_of(frame, frame["recipe"] == "A"))
    with pytest.raises(InputError, match="at must be positive and finite"):
        al.laws.compare_recipes(frame, at=-1)


def test_the_e_value_has_mean_one_without_an_effect():
    """The expectation under the hypothesis, over 4,000 samples, of the e-value cut at 100."""
    rng, values = np.random.default_rng(0), []
    x = np.repeat([1.0, 2.0, 3.0], 3)
    for _ in range(4000):
        fit = LinearFit.of(0.3 * x + rng.normal(size=9), np.ones(9), x[:, None])
        assert fit is not None
        values.append(np.exp(fit.log_e_value()))
    values = np.array(values)
    assert (values >= 20).mean() <= 0.05
    assert np.minimum(values, 100).mean() < 1 + 5 * np.minimum(values, 100).std() / 4000**0.5


def test_noise_that_grows_with_scale_gives_no_false_verdicts():
    """400 equal pairs at four sizes, noise 1 to 4, looked at after every seed.

    Constant noise gives a verdict to 7 % of them; 20 are expected at most.
    """
    rng, wrong = np.random.default_rng(1), {"constant": 0, "changing": 0}
    x, noise = np.log([1.0, 8.0, 64.0, 512.0]), np.array([1.0, 1.6, 2.5, 4.0])
    for _ in range(400):
        y = rng.normal(0, noise, (8, 4))
        seen = [(y[:k].ravel(), np.tile(x, k)) for k in range(2, 9)]
        for kind in wrong:
            fits = [
                ScaledFits.of(
                    z, np.ones(len(z)), (at - x[-1])[:, None], at, constant=kind == "constant"
                )
                for z, at in seen
            ]
            wrong[kind] += any(fit is not None and fit.e_value() >= 20 for fit in fits)
    assert wrong["changing"] <= 16 < wrong["constant"]


def test_looking_after_every_run_names_few_winners():
    """16 pairs that differ in seed only; 0.8 are expected at most, 5 are 4 standard errors off."""
    wrong = 0
    for seed in range(16):
        frame = ladder(seed, m=1.0, sizes=3, seeds=3)
        order = np.lexsort((frame["C"], frame["seed"]))
        runs = paired_runs.read(rows_of(frame, order), "recipe").two(0, 1)
        looks = range(6, len(order) + 1, 3)
        wrong += any(evidence(runs.take(np.arange(n)), np.log(1e20)).value >= 20 for n in looks)
    assert wrong <= 4


def test_repeated_data_are_noted_and_any_column_can_be_compared():
    frame = ladder(m=1.0, sizes=3)
    frame["D_unique"] = frame["D"] / 4
    found = al.laws.compare_recipes(frame)
    assert any("up to 4 passes" in text for text in found.warnings)
    # Seeds as recipes: they must not be paired by themselves.
    by_seed = al.laws.compare_recipes(rows_of(frame, frame["recipe"] == "A"), by="seed")
    assert by_seed.rivals[0].pairs == 3


def one_seed(seed, m, noise):
    return ladder(seed, m=m, sizes=3, seeds=1, noise=noise)


def test_a_stated_noise_decides_without_replicates_and_is_noted():
    frame = one_seed(0, 1.5, 0.001)
    assert al.laws.compare_recipes(frame).winner is None
    found = al.laws.compare_recipes(frame, noise=0.001)
    assert found.winner == "B"
    assert any("stated, not estimated" in text for text in found.warnings)
    with pytest.raises(al.InputError, match=r"noise must be between 0 and 1; got 3"):
        al.laws.compare_recipes(frame, noise=3)


def test_a_stated_noise_keeps_false_verdicts_rare():
    """200 pairs that differ in seed only, judged after every size; at most 10 are expected."""
    wrong = 0
    for seed in range(200):
        frame = one_seed(seed, 1.0, 0.003)
        runs = paired_runs.read(rows_of(frame, np.argsort(frame["C"])), "recipe").two(0, 1)
        x = np.unique(runs.x)
        wrong += any(
            evidence(
                runs.take(np.flatnonzero(runs.x <= top)), np.log(1e21), RunNoise.known(0.003)
            ).value
            >= 20
            for top in x[1:]
        )
    assert wrong <= 10


def test_noise_beyond_what_was_stated_is_noted():
    found = al.laws.compare_recipes(ladder(1, m=1.0, sizes=4, noise=0.02), noise=0.001)
    assert any("scatter more" in text for text in found.warnings)


def test_repeated_rows_and_seeds_without_effect_are_no_replicates():
    """A table that is written twice, or whose code ignores the seed, shows no further noise."""
    frame = ladder(m=1.05, sizes=3, seeds=2)
    twice = {name: np.concatenate([column, column]) for name, column in frame.items()}
    once, again = (al.laws.compare_recipes(f) for f in (frame, twice))
    assert any("12 rows repeat others" in text for text in again.warnings)
    assert again.rivals[0].e_value == once.rivals[0].e_value
    single = rows_of(frame, frame["seed"] == 0)
    same = {name: np.concatenate([column] * 4) for name, column in single.items()}
    same["seed"] = np.repeat([0, 1, 2, 3], len(single["seed"]))
    deaf = al.laws.compare_recipes(same)
    assert any("All seeds of A have the same loss" in text for text in deaf.warnings)
    assert deaf.rivals[0].e_value == al.laws.compare_recipes(single).rivals[0].e_value


def test_rows_without_a_recipe_are_left_out_and_counted():
    frame = ladder(sizes=3)
    frame["recipe"] = np.where(np.arange(len(frame["loss"])) == 0, "", frame["recipe"])
    frame["recipe"] = np.where(frame["recipe"] == "B", "nan", frame["recipe"])
    found = al.laws.compare_recipes(frame)
    assert found.runs.names == ("A", "nan")
    assert any("without a value of recipe are left out: 1" in text for text in found.warnings)
    assert not any("without a usable loss" in text for text in found.warnings)


def test_recipes_without_a_common_scale_are_compared_with_a_warning():
    frame = ladder(sizes=4)
    low, high = frame["C"] < 1e18, frame["C"] > 1e19
    apart = rows_of(frame, np.where(frame["recipe"] == "A", low, high))
    found = al.laws.compare_recipes(apart)
    assert found.winner is None
    assert any("no scale in common" in text for text in found.warnings)
    together = al.laws.compare_recipes(frame)
    assert not any("no scale in common" in text for text in together.warnings)


def test_where_only_the_law_is_uncertain_larger_scales_are_asked_for():
    found = al.laws.compare_recipes(ladder(0, m=1.5, sizes=4, noise=0.003), at=1e29)
    assert found.winner is None
    assert found.rivals[0].e_value >= 20
    assert "larger scales would decide" in found.verdict


def test_recipes_without_a_common_scale_get_no_verdict():
    """One recipe's parameters are in millions: the law alone would name a winner."""
    frame = ladder(m=1.5)
    second = frame["recipe"] == "B"
    for name in ("N", "C"):
        frame[name] = np.where(second, frame[name] / 1e6, frame[name])
    found = al.laws.compare_recipes(frame)
    assert found.winner is None
    assert any("Check units" in text for text in found.warnings)
    assert "runs at scales in common would decide" in found.verdict


def test_an_accuracy_gets_no_verdict():
    frame = ladder(m=1.5)
    frame["loss"] = 1 / frame["loss"]
    found = al.laws.compare_recipes(frame)
    assert found.winner is None
    assert any("give 1 minus it" in text for text in found.warnings)
    assert "a loss that rises with scale can't be judged" in found.verdict


def test_the_leader_is_not_behind_its_closest_rival(monkeypatch):
    """Gains over one recipe choose the leader; direct comparisons may put another one ahead."""
    real, leaders = comparison_verdict._rivals, []

    def behind(runs, leader, *others):
        leaders.append(runs.names[leader])
        found = real(runs, leader, *others)
        value = 0.9 if len(leaders) == 1 else 1.1
        return [replace(found[0], multiplier=al.Estimate(value, lo=0.8, hi=1.2)), *found[1:]]

    monkeypatch.setattr(comparison_verdict, "_rivals", behind)
    found = al.laws.compare_recipes(ladder(m=1.0, sizes=3, recipes=("A", "B", "C")))
    assert len(leaders) == 2
    assert found.leader == leaders[1] != leaders[0]
    assert found.multiplier.value == 1.1


def test_several_undecided_rivals_are_told_from_the_worse_ones():
    frame = ladder(m=1.0, sizes=4, seeds=4, noise=0.001, recipes=("A", "B", "C"))
    third = frame["recipe"] == "C"
    frame["loss"] = np.where(third, frame["loss"] * 1.05, frame["loss"])
    found = al.laws.compare_recipes(frame)
    assert found.winner is None
    assert "1 of 2 others is worse" in found.verdict
