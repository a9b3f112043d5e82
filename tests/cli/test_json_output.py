"""What `--json` prints: every output validates against its schema, and refusals have codes."""

import json
import random
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import typer

from allometry import InputError, UnidentifiedError
from allometry._core import errors
from allometry.cli import app, refusal_codes, schemas

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "tests" / "fixtures" / "studies" / "text"


def check(name, text):
    """The parsed output, after validation by the published and by the closed schema."""
    data = json.loads(text)
    for closed in (False, True):
        jsonschema.validate(data, schemas.schema(name, closed=closed))
    return data


def table(path, N, D, more=None):
    N, D = (x.ravel() for x in np.meshgrid(N, D))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.004, len(N)))
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * noise
    extra = more or [""] * len(N)
    rows = [f"{n},{d},{y},{e}" for n, d, y, e in zip(N, D, loss, extra, strict=True)]
    path.write_text("\n".join(["N,D,loss,recipe", *rows]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("json")
    table(place / "runs.csv", np.geomspace(1e6, 1e9, 4), np.geomspace(1e8, 1e11, 3))
    table(place / "line.csv", np.geomspace(1e6, 1e9, 5), [1e10])
    table(place / "two.csv", np.geomspace(1e6, 1e9, 5), [1e10, 1e10], ["a"] * 5 + ["b"] * 5)
    table(place / "few.csv", [1e6, 1e7], [1e10])
    log = [f"{step},{2 + 8 / step**0.3}" for step in range(20, 1200, 20)]
    (place / "log.csv").write_text("\n".join(["step,loss", *log]))
    rng = np.random.default_rng(0)
    for name in ("real", "samples"):
        np.save(place / f"{name}.npy", rng.normal(size=(30, 2)))
    shutil.copytree(STUDY, place / "study")
    return place


PLAIN = ("--form", "chinchilla")


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "runs.csv", *PLAIN, "--bootstrap", "30"),
        ("fit", "line.csv", "--form", "floor", "--bootstrap", "0"),
        ("fit", "runs.csv", "--form", "E + A/N^a + B/D^b"),
        ("plan", "runs.csv", *PLAIN, "--compute", "1e21", "--hardware", "8xH100"),
        ("plan", "line.csv", "--form", "floor", "--reach", "3"),
        ("plan", "runs.csv", "--form", "E + A/N^a + B/D^b", "--cost", "6*N*D", "--budget", "1e20"),
        (
            "next",
            "two.csv",
            "--pool",
            "runs.csv",
            "--x",
            "N",
            "--cost",
            "N*D",
            "--budget",
            "1e18",
            "--target",
            "N=1e10",
        ),
        ("next", "runs.csv", *PLAIN, "--budget", "1e19", "--compute", "1e21", "--most", "1"),
        ("compare", "two.csv", "--by", "recipe"),
        ("watch", "log.csv", "--total", "2000"),
        ("status", "study"),
        ("list",),
        ("list", "forms"),
        ("measure", "real.npy", "samples.npy", "--only", "mmd"),
        ("construct", "dyck", "()", "--k", "1", "--depth", "1", "--seconds", "0.1"),
        ("construct", "generator", "increment", "101", "--size", "3", "--seconds", "0.1"),
        ("run", "embedded", "--family", "ngram", "--dry-run", "--rungs", "2"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_outputs_validate(words, folder, typed):
    done = typed(*words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = check(words[0], done.stdout)
    if isinstance(found, dict) and "warnings" in found:
        assert len(found["codes"]) == len(found["warnings"])


def test_an_expression_is_printed(folder, typed):
    done = typed("fit", "line.csv", "--form", "E + A/N^a", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "E + A/N^a" in done.stdout


def test_every_command_with_json_has_a_schema():
    group: Any = typer.main.get_command(app)
    commands = group.commands
    able = {
        name
        for name, command in commands.items()
        if any("--json" in parameter.opts for parameter in command.params)
        or hasattr(command, "commands")
    }
    assert able - {"schema"} == set(schemas.SCHEMAS) - {"error"}


@pytest.mark.parametrize("name", sorted(schemas.SCHEMAS))
def test_schemas_are_valid_and_published(name, typed, tmp_path):
    done = typed("schema", name, cwd=tmp_path)
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    assert (ROOT / "docs" / "schemas" / f"{name}.json").read_text() == done.stdout


def test_a_schema_can_fail():
    with pytest.raises(jsonschema.ValidationError):
        check("plan", '{"N": 3}')
    with pytest.raises(jsonschema.ValidationError):
        check("watch", json.dumps(dict.fromkeys(schemas._STATE) | {"step": 1}))


@pytest.mark.parametrize(
    ("name", "keys"), [("fit", {"averaged", "forms"}), ("next", {"needed", "cost"})]
)
def test_schemas_list_the_keys_of_averages_and_costs(name, keys):
    assert keys <= set(schemas.schema(name)["anyOf"][0]["properties"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("no_such_file", ("plan", "none.csv", "--compute", "1e20")),
        ("no_such_file", ("status", "nowhere")),
        ("too_few_runs", ("fit", "few.csv")),
        ("too_few_runs", ("plan", "log.csv", "--compute", "1e20")),
        ("unknown_name", ("fit", "runs.csv", "--form", "parabola")),
        ("not_identified", ("plan", "runs.csv", *PLAIN, "--reach", "0.5")),
        ("no_variation", ("fit", "line.csv", "--form", "chinchilla")),
        ("missing_column", ("fit", "runs.csv", "--loss", "cost")),
        ("invalid_input", ("plan", "runs.csv")),
        # An expression has no allocation to N and D: --compute was ignored.
        ("invalid_input", ("plan", "runs.csv", "--compute", "1e20", "--form", "E + A/N^a")),
        ("usage", ("plan", "runs.csv", "--colour")),
        ("damaged_file", ("fit", "broken.json")),
    ],
)
def test_refusals_have_codes(code, words, folder, typed):
    (folder / "broken.json").write_text('{"format": "allometry law", "version": 1, "law": {}}')
    done = typed(*words, "--json", cwd=folder)
    assert done.returncode == 2
    found = check("error", done.stdout)["error"]
    assert found["code"] == code
    assert found["exit_code"] == 2
    assert done.stderr == f"allometry: {found['message']}\n"
    assert found["message"].endswith(found["do"])
    plain = typed(*words, cwd=folder)
    assert plain.stdout == ""


def test_every_class_of_error_has_a_code():
    raised = {
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.AllometryError)
    } - {errors.AllometryError}
    assert {cls for cls, _ in refusal_codes.CLASSES} == raised
    assert refusal_codes.refusal_code(UnidentifiedError("no such file")) == "not_identified"
    assert refusal_codes.refusal_code(InputError("x must be 1; got 2.")) == "invalid_input"
    assert refusal_codes.refusal_code(KeyError("x")) == "defect"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "allocation_not_identified",
            ("plan", "line.csv", "--form", "floor", "--compute", "1e20"),
        ),
        ("far_extrapolation", ("plan", "runs.csv", *PLAIN, "--compute", "1e30")),
        ("exponent_not_identified", ("fit", "two_sizes.csv", *PLAIN, "--bootstrap", "20")),
        ("loss_rises", ("fit", "rising.csv", "--form", "power", "--bootstrap", "0")),
        ("not_backtested", ("fit", "line.csv", "--form", "m4", "--bootstrap", "0")),
    ],
)
def test_warnings_have_codes(code, words, folder, typed):
    table(folder / "two_sizes.csv", [1e7, 1e8], np.geomspace(1e8, 1e11, 6))
    rising = [f"{n},{1 + 0.1 * i}" for i, n in enumerate(np.geomspace(1e6, 1e9, 6))]
    (folder / "rising.csv").write_text("\n".join(["N,loss", *rising]))
    done = typed(*words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert code in json.loads(done.stdout)["codes"]


def test_codes_are_documented():
    page = (ROOT / "docs" / "json.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    refusals = {code for code, _ in refusal_codes.REFUSALS}
    refusals |= {code for _, code in refusal_codes.CLASSES} | set(refusal_codes.OTHERS)
    warned = {code for code, _ in refusal_codes.WARNINGS} | {refusal_codes.NOTE}
    assert told == refusal_codes.MEANINGS
    assert set(told) == refusals | warned


def test_the_files_of_the_site_are_current():
    make = runpy.run_path(str(ROOT / "docs" / "make_schemas.py"))
    for path, text in make["files"]().items():
        assert path.read_text() == text


def random_call(rng):
    """A command line that may be right or wrong."""

    def pick(*options):
        return rng.choice(options)

    runs = pick("runs.csv", "line.csv", "two.csv", "few.csv", "log.csv", "none.csv", "real.npy")
    form = ("--form", pick("power", "floor", "chinchilla", "nope", "E + A/N^a"))
    amount = pick("1e19", "1e21", "1ZFLOP", "-1", "nan", "0", "1e400", "x")
    return pick(
        ("fit", runs, *form, "--bootstrap", pick("0", "20", "-3"), "--drop-highest", "1"),
        ("plan", runs, *form, "--compute", amount, *pick((), ("--size", "7B"), ("--tokens", "0"))),
        ("plan", runs, *form, "--reach", pick("3", "0.1", "-1", "1e9")),
        ("next", runs, *form, "--budget", amount, "--compute", "1e21", "--most", pick("1", "0")),
        ("watch", pick("log.csv", runs), "--total", pick("2000", "10", "-1"), "--step", "step"),
        ("list", pick("forms", "targets", "colours")),
        ("status", pick("study", "none", "runs.csv")),
        ("schema", pick("plan", "none")),
    )  # fmt: skip


def try_calls(count, seed, folder, typed):
    rng = random.Random(seed)
    codes: dict[str, int] = {}
    for _ in range(count):
        words = random_call(rng)
        done = typed(*words, "--json", cwd=folder)
        assert done.returncode in (0, 2), (words, done.stderr)
        if done.returncode == 2:
            code = check("error", done.stdout)["error"]["code"]
        else:
            code = "answered"
            if words[0] != "schema":
                check(words[0], done.stdout)
        codes[code] = codes.get(code, 0) + 1
    return codes


def test_random_calls_validate(folder, typed):
    codes = try_calls(12, 1, folder, typed)
    assert len(codes) > 2


@pytest.mark.slow
def test_a_thousand_random_calls_validate(folder, typed):
    codes = try_calls(1000, 0, folder, typed)
    assert codes["answered"] > 200
    assert "defect" not in codes
