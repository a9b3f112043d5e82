"""Architecture: light imports, small files, documented public names."""

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
SUBPACKAGES = [
    "construct",
    "decode",
    "laws",
    "measure",
    "models",
    "report",
    "study",
    "targets",
    "train",
]


def fresh(code):
    """What `code` prints in a new process, and its CPU seconds.

    Elapsed time would depend on the load of the machine.
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


def test_a_fit_loads_neither_optimisers_nor_other_kinds_of_laws():
    loaded, _ = fresh(
        "import sys, allometry as al;"
        "al.fit({'N': [1e6, 1e7, 1e8, 1e9], 'loss': [4.6, 3.4, 2.8, 2.5]}, bootstrap=10);"
        "wanted = 'scipy.optimize allometry.laws.multivariate allometry.laws.comparison';"
        "print([m for m in wanted.split() if m in sys.modules])"
    )
    assert loaded == "[]"


@pytest.mark.parametrize("subpackage", ["laws", "runs", "report"])
def test_lazy_names_survive_the_import_of_every_module(subpackage):
    """A module of the same name as a function would replace it on import."""
    code = f"""
import importlib, pkgutil, types
import allometry.{subpackage} as package
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if "_worker" not in found.name and "regressor" not in found.name:
        importlib.import_module(found.name)
print(*sorted(n for n in package.__all__ if isinstance(getattr(package, n), types.ModuleType)))
"""
    modules = {
        "laws": "branching hardware kaplan mammals memory published small_scale",
        "runs": "",
        "report": "figures likelihood_units process_spectra",
    }
    assert fresh(code)[0] == modules[subpackage]


def test_help_takes_less_than_a_second():
    code = "import sys; sys.argv = ['allometry', '--help']; from allometry.cli import main; main()"
    assert min(fresh(code)[1] for _ in range(3)) < 1.0


def test_no_file_is_longer_than_four_hundred_lines():
    long = {p.name: n for p in SRC.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_public_names_exist_and_are_documented(subpackage):
    module = importlib.import_module(f"allometry.{subpackage}")
    assert module.__doc__
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{subpackage}.{name} has no docstring"


def test_every_class_is_abstract_or_final():
    """So that a call site tells which code runs."""
    undecided = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(b) for b in node.bases}
            marks = {ast.unparse(d).split("(")[0] for d in node.decorator_list}
            abstract = bases & {"ABC", "Protocol", "TypedDict"} or path.name == "errors.py"
            if not abstract and "final" not in marks:
                undecided.append(f"{path.name}:{node.name}")
    assert not undecided


def test_no_module_unpickles():
    for path in SRC.rglob("*.py"):
        text = path.read_text()
        for word in ("import pickle", "torch.load(", "allow_pickle=True", "joblib"):
            assert word not in text, f"{path.name} has {word}"
