"""What the command line prints: no text from a file can command a terminal."""

import io
import json
import subprocess
import sys

import pytest
from rich.table import Table

from allometry import cli
from allometry.cli import console, main

EVIL = "a\x1b[2J\x1b]0;owned\x07b\u202ec\u2066d\x9b31me\rf[/bold][red]:boom:\ud800"


def printed(*things):
    clean = console.CleanConsole(file=io.StringIO(), width=200)
    for thing in things:
        clean.print(thing)
    return clean.file.getvalue()


def harmless(text):
    return not set(text) & {
        *map(chr, range(10)),
        *map(chr, range(11, 32)),
        *"\x7f\x9b\u202e\u2066",
    }


def test_nothing_printed_commands_a_terminal():
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    text = printed(EVIL, table)
    assert harmless(text)
    text.encode()
    assert text.count("[/bold][red]") == 4  # text, never markup


def test_own_colours_stay():
    clean = console.CleanConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    clean.print("fine", style="red")
    assert "\x1b[31mfine" in clean.file.getvalue()


def test_messages_are_one_line(capsys):
    console.say("  first\nsecond\x1b[0m" + "x" * 5000)
    console.complain("first\n\nsecond\u2028third\u202e")
    said = capsys.readouterr().err
    assert harmless(said)
    assert len(said.splitlines()) == 2
    assert said.startswith("  first second")
    assert len(said) < 4200


def test_json_says_all_and_commands_nothing(capsys):
    console.write_json({"name": EVIL})
    text = capsys.readouterr().out
    assert harmless(text)
    text.encode()
    assert json.loads(text) == {"name": EVIL}


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["allometry", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "embedded", "--seeds", "1e5"], "'--seeds'"),
        (["plan", "x.csv", "--compute", "much"], "'--compute'"),
        (["fit"], "Missing argument"),
        (["fit", "x.csv", "--nonsense"], "--nonsense"),
        (["conjure"], "conjure"),
        (["list", "wonders"], "wonders"),
        (["fit", "a\x1b[2J\nb"], "no such path"),
        (["fit", "x" * 5000], "no such path"),
    ],
)
def test_misuse_of_any_kind_is_one_line(monkeypatch, capsys, arguments, words):
    assert command(monkeypatch, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert words in said.err
    assert harmless(said.err)


def test_no_arguments_are_answered_with_help(monkeypatch, capsys):
    assert command(monkeypatch) in (0, 2)
    said = capsys.readouterr()
    assert "generate" in said.out + said.err


def test_a_defect_is_one_line_with_what_to_report(monkeypatch, capsys):
    def broken(*_, **__):
        raise KeyError("x\x1b[2J\ny")

    monkeypatch.setattr("allometry.runs.importers.load", broken)
    assert command(monkeypatch, "fit", "x.csv") == cli.DEFECT
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "ALLOMETRY_TRACEBACK" in said
    monkeypatch.setenv("ALLOMETRY_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["allometry", "fit", "x.csv"])
    with pytest.raises(KeyError):
        main()


def test_a_terminal_of_few_characters_is_no_error(tmp_path):
    code = "from allometry.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "list", "forms"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(p for p in sys.path if p)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
