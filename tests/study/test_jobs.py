"""From the name of a job to its study."""

import sys

import pytest

from allometry._core.errors import InputError
from allometry.study import Study, density_studies, job_table, jobs, ladder, recipes
from allometry.study.recipes.polynomial_stacks import STACKS
from allometry.study.recipes.rank_runs import FORMS, MIXERS
from allometry.targets import Text


def test_every_family_of_sequences_can_be_named():
    names = job_table.TEXT_FAMILIES
    study = jobs.study("embedded", families=names, rungs=2, seeds=1, largest=2e4, context=16)
    rows = study.rows()
    assert {row["family"] for row in rows} == set(names)
    # One budget for all that are trained.
    budgets = {n: {row["D"] for row in rows if row["family"] == n} for n in names if n != "ngram"}
    spread = [max(d) / min(d) for d in zip(*(sorted(b) for b in budgets.values()), strict=True)]
    assert max(spread) < 1.02


def test_the_default_families_of_a_text_are_transformer_and_ngram():
    rows = jobs.study("embedded", rungs=2, seeds=1).rows()
    assert {row["family"] for row in rows} == {"transformer", "ngram"}


def test_an_unknown_family_is_refused_by_name():
    with pytest.raises(
        InputError, match=r"family must be one of transformer, .*ngram.*; got 'glow'"
    ):
        jobs.study("embedded", families=["glow"])


def test_a_misspelt_job_is_corrected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"got 'rnak'. Did you mean rank\?"):
        jobs.study("rnak")
    (tmp_path / "rnak").write_text("A text that happens to have this name. " * 200)
    assert jobs.study("rnak", rungs=2, seeds=1).target.name == "rnak"


def test_counts_are_measured_as_trained_models_are(tmp_path):
    text = Text.from_string("to be or not to be, that is the question " * 400)
    runs = Study(text, [recipes.ngram], ladder=[1000], seeds=1).run(tmp_path / "s")
    assert {"energy_distance", "precision", "recall"} <= set(runs.measures())
    assert runs.frame()["recall"].between(0, 1).all()


def test_a_job_file_is_the_one_that_was_named(tmp_path, monkeypatch):
    """Two files of one name are two jobs, and none passes for an installed module."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder, size in (("a", 1000), ("b", 2000)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sized_job.py").write_text(
            "import allometry as al\n"
            "def study():\n"
            "    text = al.targets.Text.from_string('a small text about little ' * 80)\n"
            f"    return al.study.Study(text, [al.study.recipes.ngram], ladder=[{size}])\n"
        )
    for folder, size in (("a", 1000), ("b", 2000), ("a", 1000)):
        made = jobs.study(f"{tmp_path / folder / 'sized_job.py'}:study")
        assert made.ladder == [size]
    (tmp_path / "json.py").write_text("def study(): ...\n")
    with pytest.raises(InputError, match="not have the name of an installed module"):
        jobs.study(f"{tmp_path / 'json.py'}:study")


def test_the_table_of_jobs_says_what_studies_are_by_default():
    for name, job in job_table.JOBS.items():
        study = jobs.study(name)
        smallest, largest, rungs = job.ladder or (study.ladder[0], study.ladder[-1], 1)
        assert study.ladder == ladder(smallest, largest, rungs), name
        assert study.tokens == list(job.tokens) or not job.tokens, name
        assert job.unit == (study.unit or study.target.describe()["unit"]), name


def test_the_table_has_every_family_of_the_theory_jobs():
    assert tuple(STACKS) == job_table.STACK_NAMES
    assert tuple(FORMS) == job_table.RANK_FORMS
    assert tuple(MIXERS) == job_table.MIXER_FORMS


def test_every_family_of_the_table_is_a_recipe():
    named = {*job_table.LIKELIHOOD_FAMILIES, *job_table.RECONSTRUCTION_FAMILIES}
    assert (named | set(job_table.TEXT_FAMILIES)) <= set(recipes.__all__)
    assert set(job_table.GAN_FAMILIES) == set(density_studies.GAN_RECIPES)
