"""Commands, typed."""

import subprocess
import sys

import pytest

from allometry.cli import main


@pytest.fixture
def typed(monkeypatch, capsys):
    """A command typed into this very process, for what needs no process of its own."""

    def type_in(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["allometry", *map(str, arguments)])
        # A module of a user's job file must not be found again by the next test.
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, left.value.code or 0, told.out, told.err)

    return type_in
