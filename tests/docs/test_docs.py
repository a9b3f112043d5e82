"""The docs tell the truth: the command line's page is the program's, and every page is listed."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MAKE = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))


def test_the_page_of_the_command_line_is_what_the_program_says():
    assert (ROOT / "docs" / "cli.md").read_text() == MAKE["page"](), (
        "run: .venv/bin/python docs/make_cli.py"
    )
