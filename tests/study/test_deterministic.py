"""`--deterministic`: the same digits however often, by however many, whatever a clock says."""

import functools

import pytest
import typer.testing

import allometry as al
from allometry.cli import app
from allometry.runs.lock import holder, locked
from allometry.study import Runs, Study, local, recipes
from allometry.study.schedule import cost_model, packing
from allometry.study.schedule.fixed_bundles import deterministic_bundles
from allometry.study.schedule.packing import Schedule
from allometry.study.schedule.timing import StepTime
from allometry.study.tasks import Bundle, ExecutionOptions
from allometry.train import DeviceSettings

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)
ON = DeviceSettings("cpu", deterministic=True)


def asked():
    """Trainings that could be vectorised, two with a common stable phase, and an n-gram."""
    small = functools.partial(recipes.transformer, context=16)

    def one_ngram(target, ladder, *, tokens, seeds):
        return recipes.ngram(target, ladder, tokens=tokens, seeds=seeds)[:1]

    every = [small, recipes.cooled(small), one_ngram]
    return Study(TEXT, every, [900], seeds=2, tokens=[4e3, 8e3])


def clock(monkeypatch, gain):
    """Let trials say that packing takes so much of the time that runs alone take."""
    price = StepTime(0.01, {m: m * 0.01 * gain for m in (2, 4)}, 0.0, 0.0, traced=gain)
    monkeypatch.setattr(packing, "profile", lambda shapes, *_: [price] * len(shapes))
    monkeypatch.setattr(cost_model, "PROBED", 1)


def shapes(made):
    """Bundles but for the expected seconds."""
    return {(b.name, tuple(t.key for t in b.tasks), b.how) for b in made.bundles}


def test_bundles_are_by_the_study_alone(tmp_path, monkeypatch):
    def bundles(gain, workers, **more):
        clock(monkeypatch, gain)
        return shapes(asked().schedule(tmp_path, workers=workers, threads=1, **more))

    assert bundles(0.2, 1) != bundles(2.0, 1)
    found = [
        bundles(gain, workers, deterministic=True) for gain in (0.2, 2.0) for workers in (1, 2, 8)
    ]
    assert all(other == found[0] for other in found)
    assert {how for _, _, how in found[0]} == {ExecutionOptions()}
    # Runs with a common stable phase share it all the same: two seeds of two lengths each.
    assert sorted(len(keys) for _, keys, _ in found[0]) == [1, 1, 1, 1, 1, 2, 2]


def test_remaining_runs_of_a_stable_phase_keep_their_bundle_name(tmp_path):
    specs, tasks = asked().specs(), asked().tasks(tmp_path)
    whole = {
        b.tasks[0].key: b.name for b in deterministic_bundles(specs, tasks) if len(b.tasks) == 2
    }
    rest = [task for task in tasks if task.key not in whole]
    names = {b.name for b in deterministic_bundles(specs, rest) if b.name != b.tasks[0].key}
    assert names == set(whole.values())


def test_threads_do_not_hang_on_the_cores():
    assert [local(n, on=ON).threads for n in (1, 2, 5)] == [1, 1, 1]
    assert local(1, 3, on=ON).threads == 3


def digits(runs):
    """All that a run ends in but the seconds, with its curve."""
    frame = runs.frame().sort_values("key").reset_index(drop=True)
    assert set(frame["status"]) == {"done"}
    curves = runs.curves().sort_values(["key", "step"]).reset_index(drop=True)
    # Which run ends first, and so gives the first columns, is not a digit.
    columns = sorted(set(frame.columns) - {"seconds", "versions"})
    return frame[columns], curves


def same(a, b):
    return all(x.equals(y) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The digits, by one worker whose folder has an old schedule with packs in it."""
    folder = tmp_path_factory.mktemp("once")
    tasks = [t for t in asked().tasks(folder) if t.spec().columns["family"] == "transformer"]
    packs = Schedule((Bundle("0" * 16, tuple(tasks[:2]), ExecutionOptions(size=2)),), 1, 1.0)
    packs.save(folder)
    return digits(asked().run(folder, local(1, on=ON)))


def test_equal_digits_over_repetitions_workers_and_clocks(once, tmp_path, monkeypatch):
    for workers, gain in ((1, 0.2), (2, 2.0)):
        clock(monkeypatch, gain)
        folder = tmp_path / str(workers)
        made = asked().schedule(folder, workers=workers, threads=1, deterministic=True)
        runs = asked().run(folder, local(workers, on=ON), schedule=made)
        assert same(digits(runs), once)
    says = {"alone, 1 thread, deterministic", "one by one, 1 thread, deterministic"}
    assert set(runs.frame()["packing"]) == says


def test_the_journal_says_how_runs_were_packed(tmp_path, monkeypatch):
    clock(monkeypatch, 0.2)
    study = Study(TEXT, [recipes.transformer], [900], seeds=2, tokens=[4e3])
    made = study.schedule(tmp_path, workers=1, threads=1)
    runs = study.run(tmp_path, local(1, 1), schedule=made)
    assert runs.frame()["packing"].tolist() == ["2 as one, traced, 1 thread"] * 2


def test_a_time_to_spend_is_refused(tmp_path):
    words = ["run", "embedded", "--deterministic", "--budget", "1min", "-o", str(tmp_path / "x")]
    result = typer.testing.CliRunner().invoke(app, words)
    assert "must be given as --flops with --deterministic" in str(result.exception)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "words",
    [["run", "embedded"], ["run", "embedded", "--budget", "1min"], ["demo"]],
)
def test_a_second_process_is_refused_before_it_tries_anything(tmp_path, monkeypatch, words):
    def tried(*_):
        raise AssertionError("it tried how long steps take")

    monkeypatch.setattr(packing, "profile", tried)
    folder = tmp_path / "study"
    folder.mkdir()
    with locked(folder):
        result = typer.testing.CliRunner().invoke(app, [*words, "-o", str(folder)])
        assert "is in use by process" in str(result.exception)
        assert [path.name for path in folder.iterdir()] == ["lock"]


def test_the_first_holds_the_folder_while_it_tries(tmp_path, monkeypatch):
    """So that of two that are started at once one is refused before it tries."""
    folder, seen = tmp_path / "study", []

    def tried(*_):
        seen.append(holder(folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(packing, "profile", tried)
    typer.testing.CliRunner().invoke(app, ["run", "embedded", "-o", str(folder)])
    assert len(seen) == 1
    assert "process" in seen[0]
    assert holder(folder) is None
    assert not folder.exists()
    with pytest.raises(al.InputError):
        Runs(folder)
