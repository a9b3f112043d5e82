import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import allometry as al
from allometry import InputError, Spec
from allometry._core.errors import LockedError
from allometry.runs.lock import locked
from allometry.study import Runs, Study, local, recipes
from allometry.study.recipes.transformer_runs import grow
from tests.study.fakes import FakeRun, _starts

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


def fakes(*behaviours, seconds=0.0):
    def recipe(target, ladder, *, tokens, seeds):
        return [
            Spec(FakeRun, name=f"r{i}", behaviour=b, seconds=seconds)
            for i, b in enumerate(behaviours)
        ]

    return Study(TEXT, [recipe], [1000], tokens=100)


def test_a_study_and_its_runs_say_what_they_are(tmp_path):
    grown = functools.partial(recipes.transformer, context=16)
    study = Study(TEXT, [grown, recipes.ngram], [1e3, 3.4e5], seeds=2, tokens=[1e4, 2e5])
    assert repr(study) == (
        "Study(string; transformer, ngram; 2 sizes: N = 1e+03 to 3.4e+05; "
        "D = 1e+04 to 2e+05; 2 seeds)"
    )
    runs = fakes("good", "good", "raises").run(tmp_path, local(workers=1))
    assert repr(runs) == f"Runs({str(tmp_path)!r}: 2 done, 1 failed)"
    (tmp_path / "study.json").write_text("{")
    assert repr(runs).startswith(f"Runs({str(tmp_path)!r}: ")


def test_the_grid_is_a_frame_of_what_runs_cost():
    grid = Study(TEXT, [recipes.ngram], [1000], seeds=1, tokens=[1e4]).grid()
    assert {"key", "family", "N", "D", "C", "seconds"} <= set(grid.columns)
    assert set(grid["family"]) == {"ngram"}
    assert (grid["seconds"] > 0).all()


def test_a_study_is_written_down_and_read_back(tmp_path):
    runs = fakes("good", "diverges", "raises").run(tmp_path, local(workers=1))
    frame = runs.frame()
    assert sorted(frame["status"]) == ["diverged", "done", "failed"]
    done = frame[frame["status"] == "done"].iloc[0]
    assert done["loss"] == 1.5
    assert done["C_6ND"] == 6 * 10 * 100
    assert done["versions"]["allometry"] == al.__version__
    failed = frame[frame["status"] == "failed"].iloc[0]
    assert failed["error"] == "KeyError: 'nothing here'"
    assert np.isnan(failed["loss"])
    assert failed["N"] == 10
    assert runs.curves()["loss"].tolist() == [2.0, 1.5]
    assert runs.samples() == {done["key"]: "sample of r0"}
    assert runs.state() == {"done": 1, "failed": 1, "diverged": 1, "waiting": 0}
    assert runs.about["target"]["fingerprint"] == TEXT.fingerprint


def test_the_same_folder_resumes_and_only_failures_are_tried_again(tmp_path):
    study = fakes("good", "diverges", "raises")
    study.run(tmp_path, local(workers=1))
    study.run(tmp_path, local(workers=1))
    assert [_starts(tmp_path, f"r{i}") for i in range(3)] == [1, 1, 2]


def test_a_larger_study_extends_a_smaller_one(tmp_path):
    fakes("good").run(tmp_path, local(workers=1))
    runs = fakes("good", "good").run(tmp_path, local(workers=1))
    assert len(runs.frame()) == 2
    assert _starts(tmp_path, "r0") == 1
    assert len(runs.about["runs"]) == 2


def test_another_target_in_the_same_folder_is_refused(tmp_path):
    fakes("good").run(tmp_path, local(workers=1))
    other = al.targets.Text.from_string("quite another text, long enough to be cut. " * 40)
    study = Study(other, [recipes.ngram], [1000])
    with pytest.raises(InputError, match="Choose another folder"):
        study.run(tmp_path)


def test_a_second_driver_is_refused(tmp_path):
    with locked(tmp_path), pytest.raises(LockedError, match="in use by process"):
        fakes("good").run(tmp_path)


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"without study\.json"):
        Runs(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        Runs(tmp_path / "nowhere")


@pytest.mark.parametrize("N", [1e3, 1e4, 1e5, 1e6, 1e7])
def test_a_transformer_grows_to_about_the_wanted_size(N):
    width, depth, heads = grow(N)
    model = al.models.Transformer(vocabulary=9, width=width, depth=depth, heads=heads, context=8)
    size, _ = al.train.count_parameters(model)
    assert size == pytest.approx(N, rel=0.35)
    assert heads * 4 <= width


def test_the_text_must_be_longer_than_the_context():
    with pytest.raises(InputError, match="longer than the context of 512 tokens; got"):
        recipes.transformer(TEXT, [1e3], tokens=[100], seeds=1, context=512)


def real_study():
    return Study(
        TEXT, [recipes.transformer, recipes.ngram], [900, 2000], seeds=2, tokens=[6e4, 1.2e5]
    )


DRIVERS = """
import atexit, os, sys
from tests.study.test_study import real_study

for folder in sys.stdin:
    driver = os.fork()
    if driver == 0:
        try:
            real_study().run(folder.strip())
        except BaseException:
            pass
        atexit._run_exitfuncs()
        os._exit(0)
    print(driver, flush=True)
    os.waitpid(driver, 0)
    print("ended", flush=True)
"""


@contextlib.contextmanager
def drivers():
    """A process that imports once and forks a driver for each folder that it reads.

    A driver is at work from its first moment, so no signal is spent on imports.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVERS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        # Workers of pytest-xdist ignore Ctrl-C, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        yield process
        process.stdin.close()


def essence(folder):
    """What a journal says, without how long things took."""
    frame = Runs(folder).frame().sort_values("key")
    return frame[["key", "family", "shape", "seed", "N", "D", "C", "loss", "test_loss", "status"]]


def test_killed_at_random_moments_and_resumed_the_journal_is_the_same(tmp_path):
    undisturbed = real_study().run(tmp_path / "whole").folder
    reference = essence(undisturbed)
    broken = tmp_path / "broken"
    rng = random.Random(7)
    with drivers() as forks:
        for _ in range(10):
            forks.stdin.write(f"{broken}\n")
            driver = int(forks.stdout.readline())
            time.sleep(rng.uniform(0.3, 3.0))
            with contextlib.suppress(ProcessLookupError):  # a fast machine has finished
                os.kill(driver, rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            assert forks.stdout.readline() == "ended\n"
    real_study().run(broken)
    lines = [json.loads(line) for line in (broken / "journal.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)  # no finished run was repeated
    got = essence(broken)
    assert got.reset_index(drop=True).equals(reference.reset_index(drop=True))
    assert list((broken / "checkpoints").iterdir()) == []
