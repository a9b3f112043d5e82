"""Study folders that version 0.1.0 wrote resume, report and generate.

`tests/fixtures/studies` holds five small ones as `allometry run` left them at commit b11ab15, less
their reports and the two largest files of weights of `universal`. Keys are hashes of registered
names and arguments: if one of these tests fails after code has moved, a registered name changed.
"""

import shutil
from pathlib import Path

import pytest

from allometry import decode, report, study
from allometry.study import jobs

STUDIES = Path(__file__).parent.parent / "fixtures" / "studies"

ASKED = {
    "text": {"tokens": [4000], "context": 16, "largest": 2000},
    "moons": {"tokens": [4000], "families": ["affine_coupling"], "largest": 2000},
    "ring": {"tokens": [20000], "families": ["gan"], "largest": 2000},
    "digits": {"tokens": [2000], "families": ["vae"], "smallest": 4000, "largest": 8000},
    "universal": {"tokens": [2000], "largest": 1500},
}


@pytest.fixture
def folder(request, tmp_path):
    shutil.copytree(STUDIES / request.param, tmp_path / request.param)
    return tmp_path / request.param


each = pytest.mark.parametrize("folder", ASKED, indirect=True)


@each
def test_no_run_is_repeated(folder):
    job = str(STUDIES / "notes.txt") if folder.name == "text" else folder.name
    made = jobs.study(job, rungs=2, seeds=1, **ASKED[folder.name])
    assert len(made.specs()) == len(study.Runs(folder).frame())
    assert made.tasks(folder) == []


@each
def test_a_report_is_written(folder):
    runs = study.Runs(folder)
    assert (runs.frame()["status"] == "done").all()
    page = report.write(folder / "report.html", runs)
    text = Path(page or folder / "report.html").read_text(encoding="utf-8")
    assert folder.name.replace("text", "notes") in text


@pytest.mark.parametrize("folder", ["text"], indirect=True)
def test_its_models_generate(folder):
    saved = study.load(folder)
    going = study.Generation(saved, "the ", decode.plain, n=20, seed=1)
    assert len("".join(piece.text for piece in going)) == 20
