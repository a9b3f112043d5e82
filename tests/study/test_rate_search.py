"""Rates tried side by side, and the best one carried to other sizes."""

import pytest

import allometry as al
from allometry import InputError
from allometry.study import Study, local, recipes

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)
RATES = [1e-5, 0.01]


@pytest.mark.parametrize("wrap", [lambda r: r, recipes.cooled])
def test_the_best_rate_is_kept_and_all_rates_are_recorded(tmp_path, wrap):
    recipe = recipes.tuned(wrap(recipes.transformer), RATES)
    study = Study(TEXT, [recipe], ladder=[900], seeds=1, tokens=6e4)
    (row,) = study.run(tmp_path, local(workers=1, threads=1)).frame().to_dict("records")
    assert row["lr"] == 0.01
    assert set(row["rates"]) == {"1e-05", "0.01"}
    losses = {name: loss for name, (loss, _) in row["rates"].items()}
    assert row["loss"] == losses["0.01"] < losses["1e-05"]
    shares = [share for _, share in row["rates"].values()]
    # The hopeless one stopped early, and the operations say so.
    assert shares[1] == 1.0
    assert shares[0] < 1.0
    assert row["C_tuning"] == pytest.approx(sum(shares) * row["C"])


def test_a_tuned_run_ends_where_the_same_rate_alone_ends(tmp_path):
    tried = recipes.tuned(recipes.transformer, RATES)
    for name, recipe in (
        ("tuned", tried),
        ("alone", recipes.at_rate(recipes.transformer, {"transformer": 0.01})),
    ):
        Study(TEXT, [recipe], ladder=[900], seeds=1, tokens=1e4).run(
            tmp_path / name, local(workers=1, threads=1)
        )
    losses = [al.study.Runs(tmp_path / n).frame()["loss"].item() for n in ("tuned", "alone")]
    # Float32 sums in another order over twenty steps.
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_best_rate_of_the_smallest_size_is_carried_to_all(tmp_path):
    study = Study(
        TEXT,
        [recipes.cooled(recipes.transformer), recipes.ngram],
        [900, 2000],
        seeds=1,
        tokens=[5e3, 1e4],
    )
    carried = recipes.carried(study, tmp_path, RATES, executor=local(workers=1, threads=1))
    before, after = study.specs(), carried.specs()
    assert len(before) == len(after)
    rates = {s.arguments["run"].arguments["lr"] for s in after if "run" in s.arguments}
    assert rates == {0.01}
    # What has no rate stays as it was.
    assert {s.key for s in before if "run" not in s.arguments} <= {s.key for s in after}


def test_one_rate_is_no_choice():
    with pytest.raises(InputError, match="at least two"):
        recipes.tuned(recipes.transformer, [0.01])(TEXT, [900], tokens=[1e4], seeds=1)
    study = Study(TEXT, [recipes.ngram], [900])
    with pytest.raises(InputError, match="none of this study"):
        recipes.carried(study, "unused", RATES)
