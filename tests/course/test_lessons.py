"""Every lesson runs, draws pictures that are not blank, and has exercises with right answers."""

import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
import vl_convert

import allometry as al
from allometry.course import lesson
from allometry.course.exercise import exercises
from allometry.course.figure import Figure, Film
from allometry.course.size import SMALL
from allometry.report import theme

ROOT = Path(__file__).parent.parent.parent
COURSE = ROOT / "docs" / "course"
NAMES = lesson.names()
execute = runpy.run_path(str(ROOT / "docs" / "make_course.py"))["execute"]


@pytest.fixture
def as_a_reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


def ink(png):
    """Share of pixels that differ from the background."""
    from io import BytesIO

    from PIL import Image

    pixels = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
    return float((np.abs(pixels - pixels[0, 0]).sum(-1) > 30).mean())


def check_pictures(done):
    figures = list(done.figures.values())
    assert len(figures) >= 2
    for figure in figures:
        assert figure.caption
        if isinstance(figure, Figure):
            assert ink(figure.png()) > 0.005
        else:
            assert "http://" not in figure.html()
            assert "https://" not in figure.html()
            assert len({str(f) for frames in figure.moving.values() for f in frames}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_runs_in_its_small_version(name, as_a_reader, monkeypatch):
    monkeypatch.setenv(SMALL, "small")
    check_pictures(execute(lesson.read(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_runs_in_full(name, as_a_reader, monkeypatch):
    monkeypatch.delenv(SMALL, raising=False)
    check_pictures(execute(lesson.read(name)))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_the_lesson(name):
    written = (COURSE / f"{name}.md").read_text()
    fresh = lesson.without_outputs(lesson.page(lesson.read(name)))
    assert lesson.without_outputs(written) == fresh, (
        f"run: .venv/bin/python docs/make_course.py {name}"
    )
    pictures = re.findall(r"\]\(figures/([^)]*)\)", written)
    assert len(pictures) >= 2
    on_disk = {p.name for p in (COURSE / "figures").glob(f"{name}-*")}
    assert set(pictures) == on_disk
    for picture in pictures:
        if picture.endswith(".svg"):
            text = (COURSE / "figures" / picture).read_text()
            assert ink(vl_convert.svg_to_png(text, scale=1)) > 0.005, picture
    for heading in ("## Exercises", "## Sources", "## Grow next"):
        assert heading in written


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_has_three_exercises(name):
    own = [key for key in exercises() if key.split(".")[0] == name]
    assert len(own) >= 3
    code = "\n".join(lesson.read(name).code())
    assert all(f'check("{key}"' in code for key in own)


@pytest.mark.parametrize("key", list(exercises()))
def test_solutions_pass_and_other_answers_do_not(key, as_a_reader):
    exercise = exercises()[key]
    space = {}
    exec(exercise.solution, space)
    answer = space["answer"]
    assert al.course.check(key, answer)
    assert not al.course.check(key, ...)
    if isinstance(exercise.answer(), str | bool):
        assert not al.course.check(key, "something else")
        return
    right = np.asarray(exercise.answer(), float)
    off = right + 3 * (exercise.absolute + exercise.tolerance * np.abs(right)) + 1e-6
    assert not al.course.check(key, off.tolist())
    assert not al.course.check(key, np.zeros_like(right)) or not right.any()
    with pytest.raises(al.InputError, match="must be"):
        al.course.check(key, "a word")


def test_an_unknown_exercise_is_named():
    with pytest.raises(al.InputError, match=r"be one of sampling\.1"):
        al.course.check("nothing.1", 3)


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_valid(name, tmp_path):
    import orjson

    path = al.course.notebook(name, tmp_path / "lesson.ipynb")
    book = orjson.loads(path.read_bytes())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    code = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]
    assert code == lesson.read(name).code()
    ids = [c["id"] for c in book["cells"]]
    assert len(set(ids)) == len(ids)
    if importlib.util.find_spec("nbformat"):
        import nbformat

        nbformat.validate(nbformat.reads(path.read_text(), as_version=4))


def test_notebooks_are_written_from_the_command_line(tmp_path, monkeypatch, capsys):
    from allometry.course.__main__ import main

    monkeypatch.chdir(tmp_path)
    assert main(["games"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["games.ipynb"]
    assert main(["nothing"]) == 2
    assert "be one of" in capsys.readouterr().err


def test_colours_of_the_pages_are_those_of_charts():
    css = (COURSE / "course.css").read_text()
    for scheme, colours in (("default", theme.LIGHT), ("slate", theme.DARK)):
        own = re.search(rf'scheme="{scheme}"\] \{{(.*?)\}}', css)[1]
        assert dict(re.findall(r"--(\w+): (#\w+);", own)) == colours


def test_a_film_escapes_what_it_shows():
    film = Film(
        {"<b>": [np.zeros((2, 2)), np.ones((2, 2))]},
        ["</script>", "last"],
        x="<i>",
        y="y",
        caption='a "quote" <p>',
    )
    text = film.html()
    assert "<b>" not in text
    assert "<i>" not in text
    assert "<p>" not in text
    assert text.count("</script>") == 2
