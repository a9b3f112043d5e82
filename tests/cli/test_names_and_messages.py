"""What people type and read: amounts, names, errors that name options, help with examples."""

import json
import logging
import shlex
import subprocess
import sys
import typing
import warnings

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import allometry as al
from allometry import InputError, Spec
from allometry._core.errors import AllometryWarning
from allometry._core.library_warnings import hide_library_warnings
from allometry._core.quantities import quantity
from allometry.cli import app, choices, error_messages
from allometry.cli.help_examples import EXAMPLES
from allometry.measure.catalogue import ENTRIES
from allometry.report import formatting as fmt
from allometry.study import density_studies, job_table, jobs
from allometry.study.recipes.density_runs import build_density
from allometry.study.sample_generation import choose, draw
from allometry.train import checkpoint
from tests.cli.test_cli import allometry as command

# Amounts


@given(st.floats(1.0, 1e14))
def test_a_count_is_read_as_it_is_printed(x):
    assert quantity(fmt.count(x), "size") == pytest.approx(x, rel=0.006)
    assert quantity(f"{fmt.count(x)} tokens", "data") == pytest.approx(x, rel=0.006)


@given(st.floats(1.0, 1e30))
def test_compute_is_read_as_it_is_printed(x):
    assert quantity(fmt.flops(x), "compute") == pytest.approx(x, rel=0.06)
    assert quantity(fmt.flops(x).replace(" ", ""), "compute") == pytest.approx(x, rel=0.06)


@given(st.floats(1e-300, 1e300))
def test_plain_numbers_are_read_as_ever(x):
    for kind in ("size", "data", "compute"):
        assert quantity(repr(x), kind) == x


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1ZFLOP", "compute", 1e21),
        ("1EFLOP", "compute", 1e18),
        ("1E21", "compute", 1e21),
        ("10²⁶ FLOP", "compute", 1e26),
        ("7B", "size", 7e9),
        ("7b", "size", 7e9),
        ("300B", "data", 3e11),
        ("1_000", "data", 1e3),
    ],
)
def test_amounts_as_people_write_them(text, kind, value):
    assert quantity(text, kind) == pytest.approx(value, rel=1e-12)


NONSENSE = [
    "",
    "abc",
    "-1",
    "0",
    "nan",
    "inf",
    "1e999",
    "1,000",
    "7BB",
    "1ZFLOP/s",
    "1__",
    "٣",
    "1E",
]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_in_a_sentence(text):
    with pytest.raises(
        InputError, match=r"it must be a positive number of parameters, such as .*; got "
    ):
        quantity(text, "size")


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_refused(text):
    try:
        assert quantity(text, "compute") > 0
    except InputError:
        return


RUNS = "N,D,loss\n" + "\n".join(
    f"{n:g},{d:g},{1.7 + 400 * n**-0.34 + 410 * d**-0.28:.6f}"
    for n in (1e7, 4e7, 1.6e8, 6.4e8)
    for d in (1e9, 4e9, 1.6e10)
)


def test_plans_take_amounts_as_they_are_printed(tmp_path, typed):
    (tmp_path / "runs.csv").write_text(RUNS)
    fit = ("runs.csv", "--form", "chinchilla", "--json")
    plain = typed("plan", *fit, "--compute", "1e21", "--size", "7e9", cwd=tmp_path)
    short = typed("plan", *fit, "--compute", "1ZFLOP", "--size", "7B", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert json.loads(short.stdout) == json.loads(plain.stdout)
    wrong = typed("plan", *fit, "--compute", "1ZF", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "'--compute': it must be a positive number of FLOPs, such as 1e21" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1


# Lists


def test_every_listed_target_is_a_job_and_every_job_is_listed():
    named = {name for name in choices.TARGETS if name == name.lower()}
    known = {"embedded", "digits", "universal", "dyck", *density_studies.DISTRIBUTIONS}
    assert named == known | {*jobs.SEQUENCE_JOBS, *job_table.THEORY_JOBS} == set(job_table.JOBS)
    for name in named:
        assert jobs.study(name).recipes


def test_every_listed_recipe_is_a_family_and_every_family_is_listed():
    listed = choices.RECIPES
    assert set(listed["a text"]) == set(job_table.TEXT_FAMILIES)
    assert set(listed["a density"]) == {job_table.FLOW, *job_table.LIKELIHOOD_FAMILIES}
    assert set(listed["a density, by the error of reconstructions"]) == set(
        job_table.RECONSTRUCTION_FAMILIES
    )
    assert set(listed["a density, by the distance of samples"]) == set(job_table.GAN_FAMILIES)
    assert set(listed["tasks"]) == set(job_table.PRETRAINING_TASKS)
    assert set(listed["reversal, sorting and transliteration"]) == set(job_table.TRANSDUCERS)
    for job, names in job_table.theory_families().items():
        assert jobs.study(job, families=names).recipes


def test_every_measure_is_listed_and_nothing_else():
    better = {name: entry.better[name] for entry in ENTRIES for name in entry.names}
    assert better == choices.BETTER
    assert list(choices.MEASURES) == list(better)


def test_every_construction_is_listed():
    assert set(choices.CONSTRUCTIONS) == set(_command("construct").commands)


def test_list_alone_lists_everything_without_latex(tmp_path, typed):
    done = typed("list", cwd=tmp_path)
    assert done.returncode == 0
    for name in ("embedded", "transformer", "T_2", "recall", "chinchilla", "turing"):
        assert name in done.stdout
    assert "\\" not in done.stdout
    assert "$" not in done.stdout


def test_a_flow_is_a_family(tmp_path, typed):
    flow, usual = (
        {row["family"] for row in jobs.study("moons", families=f, rungs=2).rows()}
        for f in (["flow"], [])
    )
    assert flow == usual
    both = jobs.study("moons", families=["flow", "vae", "spline_coupling"])
    assert len(both.recipes) == 4  # two flows, one VAE and the baseline


# Errors


def _command(*path):
    found = typer.main.get_command(app)
    for name in path:
        found = found.commands[name]
    return found


@pytest.mark.parametrize(
    ("path", "message", "expected"),
    [
        (
            ("construct", "universal"),
            "universal.eps must be positive; got None. Pass positions=True or delta=0.25.",
            "--eps must be positive; got nothing. Pass --positions or --delta 0.25.",
        ),
        (("construct", "universal"), "f must be fine; got 1.", "FUNCTION must be fine; got 1."),
        (("generate",), "top_k.k must be 1; got 0.", "--top-k must be 1; got 0."),
        (("run",), "ladder.rungs must be 2; got 1.", "--rungs must be 2; got 1."),
        (("run",), "torchrun.processes must be 1; got 0.", "--workers must be 1; got 0."),
        (("run",), "gan.batch must be 1; got 0.", "batch must be 1; got 0."),
        (("fit",), "runs.json must be a file; got none.", "runs.json must be a file; got none."),
        (
            ("fit",),
            "--where must be column=value; got 'loss=True'.",
            "--where must be column=value; got 'loss=True'.",
        ),
        (("fit",), "q must be; got PosixPath('a/b').", "q must be; got 'a/b'."),
        (("fit",), "Can't read a.csv: no such file.", "Can't read a.csv: no such file."),
    ],
)
def test_errors_name_options_not_arguments(path, message, expected):
    assert error_messages.plainly(message, _command(*path)) == expected
    assert error_messages.asked(typer.main.get_command(app), [*path, "--json", "x"]) is not None


def test_the_command_is_found_among_the_words():
    program = typer.main.get_command(app)
    assert error_messages.asked(program, ["construct", "dyck", "plan"]).name == "dyck"
    assert error_messages.asked(program, []) is program


PYTHON = ["universal.", "=True", "=None", "got None", "PosixPath", "Error:", "(7", "next_runs"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("construct universal mean --eps 0", "--eps must be positive"),
        ("construct universal sort --no-positions", "Pass --positions for a function"),
        ("construct dyck --k 0", "--k must be from 1 to 1,048,576"),
        ("construct program nosuch", "NAME must be FILE.py:function or one of"),
        ("run embedded --smallest 9 --largest 3", "--smallest must be at most the largest"),
        ("run embedded --seeds 0 --dry-run", "--seeds must be at least 1"),
        ("plan runs.csv --compute 1e21 --size 7B --tokens 1B", "--size or --tokens, not both"),
        ("next runs.csv --budget 1e18", "--compute, or --size with --tokens"),
        ("measure runs.csv", "SAMPLES must be given beside REAL; got nothing. Or use --audit."),
        ("report runs.csv", "`allometry fit runs.csv --report page.html`"),
        ("status runs.csv", "`allometry fit runs.csv --report page.html`"),
    ],
)
def test_no_python_in_errors(tmp_path, typed, line, expected):
    (tmp_path / "runs.csv").write_text(RUNS)
    done = typed(*line.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not [word for word in PYTHON if word in done.stderr]


# Help


def _commands(group, prefix=""):
    yield prefix.strip(), group
    for name, inner in getattr(group, "commands", {}).items():
        yield from _commands(inner, f"{prefix} {name}")


def test_every_command_has_examples_in_its_help(tmp_path, typed):
    found = dict(_commands(typer.main.get_command(app)))
    assert set(found) == set(EXAMPLES)
    for name, lines in EXAMPLES.items():
        assert lines
        expected = " ".join(typed(*name.split(), "--help", cwd=tmp_path).stdout.split())
        for line in lines:
            assert line in expected
            assert line.startswith(f"allometry {name}".strip())


@pytest.mark.parametrize("line", sorted({one for lines in EXAMPLES.values() for one in lines}))
def test_every_example_can_be_read(line):
    """Its options are there and their values can be read; what it does is tested elsewhere."""
    context = None
    command, rest = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands") and rest:
        command, rest = command.commands[rest[0]], rest[1:]
    context = command.make_context(command.name, rest, resilient_parsing=False)
    assert context.command is command


@pytest.mark.parametrize("name", ["mean", "sort"])
def test_the_functions_that_the_help_names_can_be_built_as_they_are(tmp_path, typed, name):
    done = typed("construct", "universal", name, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["d_p"]["value"] < 0.2


# Models that are asked


@pytest.fixture
def folder(tmp_path):
    """A study with three saved models of points and images, none of them trained."""
    place = tmp_path / "study"
    (place / "weights").mkdir(parents=True)
    target = al.targets.Points(al.targets.points.TwoMoons())
    about = {"target": target.describe(), "unit": None}
    lines, keys = [], {}
    for i, (family, N, loss) in enumerate(
        [("affine_coupling", 900.0, 1.4), ("affine_coupling", 9e3, 1.2), ("vae", 5e3, 1.9)]
    ):
        key = keys[family, N] = f"{i}" * 16
        shape = [2] if family != "vae" else [1, 4, 4]
        levels = None if len(shape) == 1 else 8
        spec = Spec(build_density, family=family, shape=shape, levels=levels, layers=2, width=8)
        metadata = {"family": family, "model": json.dumps(spec.to_dict()), "unit": "nats"}
        checkpoint.save_weights(place / "weights" / f"{key}.safetensors", spec(), metadata)
        lines.append({"key": key, "family": family, "N": N, "loss": loss, "status": "done"})
    (place / "study.json").write_text(json.dumps(about | {"runs": list(keys.values())}))
    (place / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def test_a_studys_model_is_chosen_by_family_and_size(folder):
    best = choose(folder)
    assert (best.family, best.N, best.loss, best.among) == ("affine_coupling", 9e3, 1.2, 3)
    assert choose(folder, size=1e3).N == 900
    assert choose(folder, family="vae").N == 5e3
    with pytest.raises(InputError, match="family must be one of affine_coupling, vae, saved here"):
        choose(folder, family="lstm")
    with pytest.raises(InputError, match="size must be left out with a file"):
        choose(best.path, size=1e3)
    (folder / "weights" / f"{'1' * 16}.safetensors").unlink()
    assert choose(folder).N == 900


def test_samples_are_those_of_the_seed(folder):
    one, same, other = (draw(choose(folder), 7, seed).values for seed in (0, 0, 1))
    assert one.shape == (7, 2)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_flows_and_vaes_generate_files(folder, typed):
    done = typed("generate", folder, "--n", "9", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("affine coupling, 9K parameters, loss 1.200 nats, of 3 saved")
    assert np.load(folder.parent / "samples.npy").shape == (9, 2)
    for family, size in (("vae", (400, 400)), ("affine_coupling", (400, 400))):
        path = folder.parent / f"{family}.png"
        done = typed("generate", folder, "--family", family, "--n", "9", "-o", path,
                     cwd=folder.parent)  # fmt: skip
        assert done.returncode == 0, done.stderr
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert abs(int.from_bytes(data[16:20]) - size[0]) < 40
    wrong = typed("generate", folder, "-o", "a.txt", cwd=folder.parent)
    assert wrong.returncode == 2
    assert wrong.stderr == "allometry: --output must end in .npy or .png; got 'a.txt'.\n"


def test_points_of_many_numbers_have_no_picture(tmp_path):
    from allometry.report.sample_grid import write_sheet

    with pytest.raises(InputError, match=r"output must be a .npy file for these samples"):
        write_sheet(tmp_path / "a.png", np.zeros((5, 3)))


SCHEMA = {
    "type": "object",
    "properties": {"é": {"type": "integer"}},
    "required": ["é"],
    "additionalProperties": False,
}


def _follow(grammar, tokens, text):
    state = grammar.start()
    for letter in text:
        at = tokens.index(letter.encode())
        assert grammar.allowed(state)[at]
        state = grammar.advance(state, at)
    return state


def test_a_schema_works_on_characters_of_several_bytes():
    pytest.importorskip("llguidance")
    tokens = [c.encode() for c in '\n {}":,0123456789-é']
    grammar = al.decode.json_schema(SCHEMA, tokens)
    state = _follow(grammar, tokens, '{"')
    assert [tokens[i] for i in grammar.allowed(state).nonzero()[:, 0].tolist()] == ["é".encode()]
    assert grammar.complete(_follow(grammar, tokens, '{"é":12}'))


def test_a_schema_that_the_vocabulary_cannot_write_says_what_is_missing():
    pytest.importorskip("llguidance")
    tokens = [c.encode() for c in '\n {}":,0123456789-']
    grammar = al.decode.json_schema(SCHEMA, tokens)
    with pytest.raises(InputError, match="'é\"' must come next, which it can't"):
        grammar.allowed(_follow(grammar, tokens, '{"'))
    bare = al.decode.json_schema(SCHEMA, [b"a", b"b"])
    start = bare.start()
    with pytest.raises(InputError, match="model's vocabulary can write"):
        bare.allowed(start)


# Warnings


def test_only_our_own_warnings_are_shown(capsys):
    with hide_library_warnings():
        warnings.warn("of a library", UserWarning, stacklevel=1)
        logging.getLogger("torch").warning("of a library")
        warnings.warn("The kernels were\ndamaged.", AllometryWarning, stacklevel=1)
    assert capsys.readouterr().err == "allometry: The kernels were damaged.\n"
    assert logging.root.manager.disable == 0


def test_a_person_may_ask_for_all_warnings():
    code = (
        "import warnings; from allometry._core.library_warnings import hide_library_warnings\n"
        "with hide_library_warnings(): warnings.warn('of a library')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True
    )
    assert "of a library" in done.stderr


# Whole numbers


def _callbacks(group: typer.Typer):
    yield from (command.callback for command in group.registered_commands)
    for sub in group.registered_groups:
        yield from _callbacks(sub.typer_instance)


@pytest.mark.parametrize("command", list(_callbacks(app)), ids=lambda command: command.__name__)
def test_every_whole_number_has_a_largest_value(command):
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        base, *marks = typing.get_args(hint) or (hint,)
        if base is int or int in typing.get_args(base):
            assert any(getattr(mark, "max", None) is not None for mark in marks), name


@pytest.mark.parametrize(
    "line",
    [
        ("status", "x" * 5000),
        ("construct", "universal", "mean", "--n", "2", "--delta", "1e-320"),
        ("construct", "universal", "mean", "--n", "2", "--delta", "1e-320", "--compact"),
    ],
)
def test_names_that_are_too_long_and_tiny_cells_are_refused_in_a_sentence(line, tmp_path):
    done = command(*line, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "defect" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
