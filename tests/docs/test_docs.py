"""The docs tell the truth: the command line's page is the program's, and every page is listed."""

import re
import runpy
from pathlib import Path

import pytest

import allometry as al

ROOT = Path(__file__).parent.parent.parent
MAKE = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))


def test_the_page_of_the_command_line_is_what_the_program_says():
    assert (ROOT / "docs" / "cli.md").read_text() == MAKE["page"](), (
        "run: .venv/bin/python docs/make_cli.py"
    )


REFERENCE = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
GALLERY = runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))


@pytest.mark.parametrize("page", REFERENCE["PAGES"])
def test_every_public_name_has_a_summary_and_an_example(page):
    missing = [name for name, what, where in REFERENCE["rows"](page) if not (what and where)]
    assert not missing, f"write an example into docs/reference/{page}.md"
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert text.endswith(REFERENCE["generated"](page)), (
        "run: .venv/bin/python docs/make_reference.py"
    )


def test_every_subpackage_has_a_page_of_reference():
    assert set(REFERENCE["PAGES"].values()) >= {
        f"allometry.{name}" for name in al.__dir__() if name in al._SUBPACKAGES
    }


def test_the_gallery_shows_the_pictures_of_the_docs():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert text == GALLERY["page"](), "run: .venv/bin/python docs/make_gallery.py"
    pictures = re.findall(r"\]\(((?:course/)?figures/[^)]+)\)\]", text)
    assert len(pictures) >= 40
    assert all((ROOT / "docs" / picture).exists() for picture in pictures)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
