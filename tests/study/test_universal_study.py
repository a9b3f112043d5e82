import numpy as np
import pytest

import allometry as al
from allometry import InputError, report
from allometry.report.sections import sizes
from allometry.study import Study, jobs, local
from allometry.study.recipes import built, learner
from allometry.targets import SequenceFunction


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    study = Study(
        SequenceFunction("attention", d=1, n=2),
        recipes=[built, learner],
        ladder=[300, 600, 1200],
        seeds=1,
        tokens=[2000.0],
    )
    # Only grids of at most 100 blocks, which are built in no time.
    study.recipes[0] = lambda *a, **k: built(*a, most_blocks=100, **k)
    return study.run(tmp_path_factory.mktemp("universal"), local(workers=1, threads=1))


def test_built_and_trained_stand_in_one_journal(runs):
    frame = runs.frame()
    assert (frame["status"] == "done").all(), frame["error"].tolist()
    families = {"thin construction", "compact construction", "trained transformer"}
    assert set(frame["family"]) == families
    thin = frame[frame["family"] == "thin construction"].sort_values("N")
    # Twice the cells, half the error, for a function without kinks.
    ratio = thin["loss"].to_numpy()[:-1] / thin["loss"].to_numpy()[1:]
    np.testing.assert_allclose(ratio, 2, atol=0.06)
    made = al.construct.universal(al.targets.functions.attention, d=1, n=2, delta=1 / 8)
    row = thin[thin["shape"] == "cells of 1/8"].iloc[0]
    assert row["N"] == made.certificate.nonzero
    assert abs(row["loss"] - made.certificate.d_p.value) < 5 * row["loss_se"] + 1e-4
    trained = frame[frame["family"] == "trained transformer"]
    assert (trained["C"] > 0).all()
    assert (trained["D"] == 16 * 128).all()


def test_the_chart_has_every_family_and_its_law(runs):
    assert sizes.built(runs) == ["thin construction", "compact construction"] or set(
        sizes.built(runs)
    ) == {"thin construction", "compact construction"}
    laws = sizes.lines(runs)
    # d n = 2: error falls as the root of the cells, of which the codes of the compact form are
    # in number.
    assert laws["compact construction"].exponent.value == pytest.approx(-0.5, abs=0.06)
    chart = sizes.sizes(runs, "distance per sequence")
    assert chart is not None


def test_the_report_says_built_and_not_counted(runs, tmp_path):
    analysis = report.analyse(runs)
    assert "n-gram" not in analysis.headline
    page = report.write(tmp_path / "report.html", runs, analysis=analysis).read_text()
    assert "Constructed and trained networks" in page
    assert (tmp_path / "report_charts" / "loss-against-size.svg").exists()


def test_the_command_line_names_the_study():
    study = jobs.study("universal")
    rows = study.rows()
    assert {row["family"] for row in rows} >= {"thin construction", "trained transformer"}
    assert max(row["N"] for row in rows) < 5e4


def test_what_is_no_such_job_is_refused():
    with pytest.raises(InputError, match="function must be one of mean"):
        SequenceFunction("sorting")
