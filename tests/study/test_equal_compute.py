"""Families at equal compute."""

import pytest

import allometry as al
from allometry.study import at_compute, family_groups, recipes
from allometry.study.all_families import likelihood_kind


@pytest.fixture(scope="module")
def moons():
    return al.targets.Points(al.targets.points.TwoMoons())


@pytest.mark.parametrize("name", ["affine_coupling", "spline_coupling", "gan"])
def test_every_run_has_the_compute_of_its_budget(moons, name):
    budgets = [1e9, 3e9, 1e10]
    made = at_compute(getattr(recipes, name))(moons, budgets, tokens=[], seeds=2)
    assert len(made) == 6
    for spec in made:
        request = spec()
        wanted = budgets[request.columns["rung"]]
        assert pytest.approx(wanted, rel=0.05) == request.budget().C
        assert pytest.approx(20 * request.budget().N, rel=0.15) == request.budget().D


def test_a_family_without_a_model_of_that_compute_has_no_runs(moons):
    assert at_compute(recipes.continuous)(moons, [1e7], tokens=[], seeds=1) == []
    assert at_compute(recipes.gan)(moons, [1e3], tokens=[], seeds=1) == []


def test_groups_have_one_loss_and_the_total_compute_that_was_asked_for(moons):
    names = ["affine_coupling", "nice", "gan"]
    groups, notes = family_groups(moons, families=names, rungs=3, seeds=2, flops=6e10)
    assert [(g.name, g.families) for g in groups] == [
        ("likelihood", ("affine_coupling", "nice")),
        ("samples", ("gan",)),
    ]
    assert notes == []
    total = sum(row["C"] for g in groups for row in g.study.rows())
    assert total == pytest.approx(6e10, rel=0.05)


def test_families_that_cannot_learn_the_target_are_left_out():
    digits = al.targets.Images.digits()
    groups, notes = family_groups(digits, families=["planar", "vae", "gan"], rungs=3, seeds=1)
    assert [g.families for g in groups] == [("vae",), ("gan",)]
    assert "planar is left out" in notes[0]
    assert likelihood_kind("vae", digits) == "bound"
    assert likelihood_kind("pixelcnn", digits) == "exact"


def test_wrong_input_is_refused(moons):
    with pytest.raises(al.InputError, match="three budgets"):
        family_groups(moons, rungs=2)
    with pytest.raises(al.InputError, match="family must be one of"):
        family_groups(moons, families=["transformer", "nice"])
    with pytest.raises(al.InputError, match="name at least 2 with --all"):
        family_groups(moons, families=["nice"])
    digits = al.targets.Images.digits()
    with pytest.raises(al.InputError, match=r"got \['planar', 'gan'\]\. planar is left out"):
        family_groups(digits, families=["planar", "gan"])


def test_compute_beyond_every_family_is_refused_before_a_model_is_made(moons):
    with pytest.raises(al.InputError, match=r"nice is left out: .* of 4 budgets"):
        family_groups(moons, families=["nice", "gan"], flops=1e30)
