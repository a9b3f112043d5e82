"""The page of a running study: what it shows, when it may be replaced, how it reloads."""

import math
import re

import pytest

from allometry.cli.progress_bars import StudyProgress
from allometry.cli.running_report import RunningReport
from allometry.report import running_page
from allometry.report.running_page import RunSoFar
from allometry.study import Event, Study, recipes
from allometry.targets import Text

WORDS = {"target": "shells", "unit": "nats per character", "token": "character", "total": 3}


def some():
    done = RunSoFar("transformer", "2 layers, width 6", 0, 1032.0, 1e5)
    for i in range(1, 1001):
        done.add(i / 1000, 1.0 + 3.0 * math.exp(-i / 200))
    done.status, done.loss = "done", 1.057
    running = RunSoFar("ngram", "order 1", 0, 900.0, 1e5)
    return {"a": done, "b": running}


def test_a_curve_keeps_its_ends_and_is_thinned_evenly_in_logarithms():
    curve = some()["a"]
    assert (curve.seen[0], curve.seen[-1]) == (100.0, 1e5)
    assert len(curve.seen) < 150
    ratios = [b / a for a, b in zip(curve.seen[30:-2], curve.seen[31:-1], strict=True)]
    assert max(ratios) < 1.1


def test_the_page_shows_losses_and_reloads_until_the_study_stops(tmp_path):
    path = running_page.write(tmp_path / "report.html", some(), **WORDS, left="about 2 min")
    page = path.read_text()
    assert "1 of 3 runs done, about 2" in page
    assert page.count("<svg role") == 2
    assert "1.057" in page
    assert "location.reload" in page
    # Without a server and without requests: the policy has no connect-src.
    assert "connect-src" not in page
    assert "default-src &#39;none&#39;" in page
    running_page.write(path, some(), **WORDS, stopped=True)
    assert "location.reload" not in path.read_text()


def test_a_finished_report_is_kept_until_its_successor_is_written(tmp_path):
    path = tmp_path / "report.html"
    assert running_page.replaceable(path)
    running_page.write(path, some(), **WORDS)
    assert running_page.replaceable(path)
    path.write_text("<!doctype html><title>Report</title>")
    assert not running_page.replaceable(path)


def test_names_from_a_study_are_text_and_not_markup(tmp_path):
    runs = {"a": RunSoFar("<b>x</b>", '"><script>', 0, 10.0, 10.0, [5.0], [2.0])}
    page = running_page.write(
        tmp_path / "r.html", runs, target="<script>1", unit="nats", token="t", total=1
    ).read_text()
    assert "<b>x</b>" not in page
    assert len(re.findall(r"<script>", page)) == 1


@pytest.fixture
def study():
    text = Text.from_string("she sells sea shells by the sea shore. " * 100)
    return Study(text, [recipes.transformer], [900], seeds=1, tokens=[4e3])


def test_the_first_loss_makes_a_page_and_further_ones_wait(study, tmp_path, monkeypatch):
    (task,) = study.tasks(tmp_path)
    shown = RunningReport(tmp_path, study, StudyProgress([task], 1))
    shown(Event("started", task, 0))
    assert not shown.path.exists()
    written = []
    real = running_page.write
    monkeypatch.setattr(running_page, "write", lambda *a, **k: written.append(k) or real(*a, **k))
    for step in range(1, 6):
        shown(Event("progress", task, 0, {"step": step, "steps": 5, "loss": 3.0 / step}))
    assert len(written) == 1
    shown.next = 0.0
    shown(Event("done", task, 0, {"columns": {"loss": 0.5}}))
    assert len(written) == 2
    assert "1 of 1 run done" in shown.path.read_text()


def test_a_page_that_cannot_be_written_does_not_stop_the_study(study, tmp_path, monkeypatch):
    (task,) = study.tasks(tmp_path)
    shown = RunningReport(tmp_path, study, StudyProgress([task], 1))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running_page, "write", full)
    for step in (1, 2):
        shown(Event("progress", task, 0, {"step": step, "steps": 5, "loss": 1.0}))
    assert not shown.active


@pytest.mark.browser
def test_in_a_browser_the_page_becomes_the_report_and_stays_where_it_was(browser, tmp_path):
    """Opened from disk, without a server."""
    runs = {
        str(i): RunSoFar("transformer", f"2 layers, width {i}", 0, 100.0 * i, 1e5, [1e3], [2.0])
        for i in range(4, 60)
    }
    path = running_page.write(tmp_path / "report.html", runs, **WORDS)
    page, troubles = browser.new_page(viewport={"width": 900, "height": 500}), []
    page.on("console", lambda m: troubles.append(m.text))
    page.on("pageerror", lambda e: troubles.append(str(e)))
    page.goto(path.as_uri())
    page.evaluate("window.scrollTo(0, 600)")
    running_page.write(path, runs, **WORDS | {"total": 77})
    page.locator("h1", has_text="77").wait_for(timeout=60000)
    page.wait_for_timeout(500)  # the script runs after the heading is there
    assert page.evaluate("window.scrollY") == 600
    path.write_text("<!doctype html><title>Report</title><h1>The law</h1>")
    page.locator("h1", has_text="The law").wait_for(timeout=60000)
    page.close()
    assert not troubles
