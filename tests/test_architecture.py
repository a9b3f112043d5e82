"""The shape of the house: light imports, small files, public names that are explained."""

import ast
import importlib
import inspect
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import allometry

SRC = Path(allometry.__file__).parent
ROOMS = ["construct", "decode", "laws", "measure", "models", "report", "study", "targets", "train"]


def fresh(code):
    """What `code` prints in a new process, and the seconds it took of a processor.

    Not seconds on the clock: those tell how busy the machine is.
    """

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip(), spent() - before


def test_importing_the_package_loads_nothing_heavy():
    heavy = "torch pandas scipy altair typer rich numpy"
    loaded, _ = fresh(
        f"import sys, allometry; print(*[m for m in '{heavy}'.split() if m in sys.modules])"
    )
    assert loaded == ""


def test_importing_the_package_takes_less_than_half_a_second():
    bare = min(fresh("pass")[1] for _ in range(3))
    assert min(fresh("import allometry")[1] for _ in range(3)) - bare < 0.5


def test_laws_work_without_torch_and_pandas():
    loaded, _ = fresh(
        "import sys, allometry.laws; print([m for m in ('torch','pandas') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_help_takes_less_than_a_second():
    code = "import sys; sys.argv = ['allometry', '--help']; from allometry.cli import main; main()"
    assert min(fresh(code)[1] for _ in range(3)) < 1.0


def test_no_file_is_longer_than_four_hundred_lines():
    long = {p.name: n for p in SRC.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_exist_and_are_explained(room):
    module = importlib.import_module(f"allometry.{room}")
    assert module.__doc__
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{room}.{name} has no docstring"


def test_every_class_is_abstract_or_final():
    """So that a call site tells which code runs."""
    loose = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(b) for b in node.bases}
            marks = {ast.unparse(d).split("(")[0] for d in node.decorator_list}
            abstract = bases & {"ABC", "Protocol", "TypedDict"} or path.name == "errors.py"
            if not abstract and "final" not in marks:
                loose.append(f"{path.name}:{node.name}")
    assert not loose


def test_nobody_unpickles():
    for path in SRC.rglob("*.py"):
        text = path.read_text()
        for word in ("import pickle", "torch.load(", "allow_pickle=True", "joblib"):
            assert word not in text, f"{path.name} has {word}"
