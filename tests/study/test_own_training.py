"""A user's own training: commands and functions, with every way in which they can go wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allometry._core.errors import DivergedError, InputError, WorkerError
from allometry.study import RunContext, command_study, function_recipe, function_study
from allometry.study.own_training.command_runs import CommandRun, environment
from allometry.study.own_training.command_study import observations
from allometry.study.own_training.function_runs import FunctionRun
from allometry.study.own_training.shape_tables import shapes_of
from allometry.train.device import DeviceSettings
from allometry.train.loop import Stopped

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

NEEDS = {
    "lightning_module.py": ["pytorch_lightning"],
    "hf_trainer.py": ["transformers", "accelerate"],
}
"""Packages of examples that a base installation does not have."""

SCRIPT = """
import os, sys, time
mode, width, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("parameters", 24 * width**2 + (1 if mode == "grows" else 0) * 24 * width**2)
for step in (10, 20):
    print(f"step {step} val loss {3 / width + seed / 1000 + 1 / step:.4f}", flush=True)
if mode == "nan": print("step 30 val loss nan")
if mode == "hang": time.sleep(60)
if mode == "once" and not os.path.exists(sys.argv[4]): open(sys.argv[4], "w"); sys.exit(1)
if mode == "crash": raise MemoryError("CUDA out of memory")
if mode == "child":
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print("child", child.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run_of(script, mode="fine", **changes):
    options = {
        "command": [sys.executable, str(script), mode, "{width}", "{seed}", "{out}/mark"],
        "metric": r"step (?P<step>\d+) val loss (?P<loss>\S+)",
        "values": {"width": 8, "N": 1536, "D": 1000},
        "family": "own", "target": "own", "seed": 3, "rung": 0, "retries": 0,
    }  # fmt: skip
    return CommandRun(**(options | changes))


def carried_out(run, folder, stop=lambda: False):
    return run(RunContext("key", folder, lambda progress: None, stop))


def test_the_last_match_counts_and_the_curve_is_kept(script, tmp_path):
    found = carried_out(run_of(script), tmp_path)
    assert found.columns["loss"] == pytest.approx(3 / 8 + 0.003 + 0.05)
    assert found.columns["C"] == 6 * 1536 * 1000
    assert (found.columns["width"], found.columns["seed"]) == (8, 3)
    assert found.curve["step"] == [10, 20]
    assert "val loss" in (tmp_path / "output" / "key" / "output.txt").read_text()


@pytest.mark.parametrize(
    ("mode", "changes", "error", "message"),
    [
        ("crash", {}, WorkerError, "ended with exit code 1; its last line was 'MemoryError: CUDA"),
        ("nan", {}, DivergedError, "the command printed a loss of 'nan'"),
        (
            "hang",
            {"timeout": 1.0},
            WorkerError,
            "did not end within 1 s and was stopped; its last",
        ),
        ("fine", {"metric": "accuracy ([0-9.]+)"}, InputError, "matches the metric 'accuracy"),
        ("grows", {"n_metric": "parameters ([0-9]+)"}, InputError, "--shapes gives; its output"),
        ("fine", {"values": {"width": 8}}, InputError, "number of parameters must be known"),
        ("fine", {"command": ["no-such-program"]}, WorkerError, "can't be started; its last line"),
    ],
)
def test_each_failure_is_one_sentence(script, tmp_path, mode, changes, error, message):
    with pytest.raises(error) as raised:
        carried_out(run_of(script, mode, **changes), tmp_path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_command_that_fails_once_is_started_again(script, tmp_path):
    assert carried_out(run_of(script, "once", retries=1), tmp_path).columns["loss"] > 0


def test_stopping_ends_the_command(script, tmp_path):
    began = time.monotonic()
    with pytest.raises(Stopped):
        carried_out(run_of(script, "hang"), tmp_path, stop=lambda: time.monotonic() - began > 0.5)
    assert time.monotonic() - began < 20


def test_a_killed_worker_leaves_no_training_behind(script, tmp_path):
    code = (
        "import sys; sys.path[:0] = sys.argv[4].split(':')\n"
        "from pathlib import Path\n"
        "from tests.study.test_own_training import carried_out, run_of\n"
        "carried_out(run_of(Path(sys.argv[1]), 'child'), Path(sys.argv[2]))\n"
    )
    paths = ":".join(p for p in sys.path if p)
    arguments = [sys.executable, "-c", code, str(script), str(tmp_path), "", paths]
    worker = subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": paths})
    output = tmp_path / "output" / "key" / "output.txt"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (output.exists() and "child" in output.read_text()):
        time.sleep(0.1)
    child = int(output.read_text().split("child")[1].split()[0])
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    until = time.monotonic() + 20
    while time.monotonic() < until and running(child):
        time.sleep(0.1)
    assert not running(child)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_gpu_is_passed_on(tmp_path, monkeypatch):
    context = RunContext("k", tmp_path, print, lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    object.__setattr__(context, "on", DeviceSettings("cuda:1"))
    assert environment(context)["CUDA_VISIBLE_DEVICES"] == "7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert environment(context)["CUDA_VISIBLE_DEVICES"] == "1"


def test_shapes_by_rule_and_by_table(tmp_path):
    made = shapes_of("width=64,128; depth=width/32; steps=10,20; N=12*depth*width^2")
    assert len(made) == 4
    assert made[0] == {"width": 64, "depth": 2, "steps": 10, "N": 98304}
    path = tmp_path / "shapes.csv"
    path.write_text("width,opt\n8,adam\n16,muon\n")
    assert shapes_of(str(path)) == [{"width": 8, "opt": "adam"}, {"width": 16, "opt": "muon"}]


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("train {width} {depth} {seed}", {}, "command must use the placeholders"),
        ("train {width}", {}, "use {seed} if a shape is run several times"),
        ("train {width} {seed} | tee log", {}, "be one program, as no shell runs it"),
        ("train '{width} {seed}", {}, "command must be closed in its quotes"),
        ("train {width} {seed}", {"metric": "loss"}, "have a group for the number"),
        ("train {width} {seed}", {"metric": "loss ("}, "be a regular expression"),
        ("train {width} {seed}", {"shapes": [{"width": 8}]}, "number of parameters N"),
        ("", {}, "command must name a program"),
    ],
)
def test_mistakes_are_refused_before_any_run(command, options, message):
    settings = {"shapes": [{"width": 8, "N": 64}], "metric": "loss ([0-9.]+)"} | options
    with pytest.raises(InputError, match=message.replace("{", r"\{")):
        command_study(command, settings.pop("shapes"), **settings)


def test_rates_and_seeds_multiply_and_reach_the_journal():
    study = command_study("t {width} {seed} {lr}", [{"width": 8, "N": 64}], rates=[0.1, 0.2])
    assert len(study.specs()) == 4
    assert {row["lr"] for row in study.rows()} == {0.1, 0.2}


def test_ignored_seeds_changed_sizes_and_failures_are_noticed():
    rows = [
        {"family": "a", "shape": "w", "seed": s, "loss": 2.0, "N": 8 + s, "status": "done"}
        for s in (0, 1)
    ]
    rows.append({"family": "a", "shape": "w", "status": "failed", "error": "it broke"})
    failed, seeds, sizes = observations(rows)
    assert failed == "1 run: it broke"
    assert "ignore {seed}" in seeds
    assert "8 to 9" in sizes


def sine(shape, tokens, seed):
    return {"loss": 1 / shape["width"] + seed / 1000, "N": shape["width"]}


def test_a_function_is_a_recipe(tmp_path):
    study = function_study(sine, [{"width": 4}, {"width": 8}], tokens=100, seeds=2)
    assert len(study.specs()) == 4
    run = study.specs()[0]()
    assert isinstance(run, FunctionRun)
    found = carried_out(run, tmp_path)
    assert found.columns["loss"] == 0.25
    assert found.columns["C"] == 6 * 4 * 100
    with pytest.raises(InputError, match="importable by worker processes"):
        function_recipe(lambda shape, tokens, seed: 1.0, [{"width": 1}])


@pytest.mark.parametrize(
    ("arguments", "metric", "values"),
    [
        (["sklearn_mlp.py", "{width}", "300", "{seed}"], "json:loss", {"width": 4}),
        (
            [
                "nanogpt_style.py",
                *["--width", "{width}", "--layers", "1", "--steps", "8", "--seed", "{seed}"],
            ],
            "val loss ([0-9.]+)",
            {"width": 16, "N": 3280, "D": 2048},
        ),
        (["lightning_module.py", "{width}", "{seed}", "0.01"], "json:loss", {"width": 4}),
        (
            ["hf_trainer.py", "{width}", "{seed}", "0.003", "{out}", "5"],
            "file:{out}/trainer_state.json",
            {"width": 16, "N": 6144, "D": 640},
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_examples_of_the_docs_run(arguments, metric, values, tmp_path):
    for package in NEEDS.get(arguments[0], ()):
        pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    run = run_of("", command=command, metric=metric, values=values, n_metric=None)
    found = carried_out(run, tmp_path)
    assert 0 < found.columns["loss"] < 10
    assert found.columns["N"] > 0
