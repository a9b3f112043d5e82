"""A page, a terminal and a JSON answer for every prefix of every kind of journal."""

import dataclasses
import io
import json
import random

import pytest
from rich.console import Console

from allometry.cli.study_json import plain
from allometry.report import analyse, extrapolation, theme
from allometry.report.page import render
from allometry.report.terminal import closing, runs_table
from tests.report.kinds import KINDS

SVG = '<svg width="9" height="9"></svg>'


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Every law is fitted once, with few draws; charts are specified but not drawn."""
    fit, kept = extrapolation.laws.fit, {}

    def once(columns, **options):
        key = tuple((name, tuple(values)) for name, values in columns.items())
        if key not in kept:
            try:
                kept[key] = fit(columns, starts=4, **options | {"bootstrap": 20})
            except Exception as error:
                kept[key] = error
        if isinstance(kept[key], Exception):
            raise kept[key]
        return kept[key]

    monkeypatch.setattr(extrapolation.laws, "fit", once)
    monkeypatch.setattr(theme, "svg", lambda spec: SVG)


def reported(runs):
    """The analysis and the page of these runs; raises if any output fails."""
    analysis = analyse(runs)
    page, _ = render(runs, analysis)
    console = Console(width=120, file=io.StringIO())
    console.print(closing(analysis), runs_table(runs, analysis))
    answer = json.dumps(plain(analysis), allow_nan=False)
    assert analysis.headline in json.loads(answer)["headline"]
    assert "<h1>" in page
    return analysis, page


def broken(runs, at, status):
    rows = list(runs.rows)
    lost = {"loss": None, "loss_se": None, "status": status, "error": "it broke", "measures": []}
    lost |= {"test_loss": None, "test_loss_se": None}
    for i in at:
        rows[i] = {k: v for k, v in (rows[i] | lost).items() if k != "errors"}
    return dataclasses.replace(runs, rows=rows)


def check(kind, lengths, subsets, seed=0):
    runs, rng = KINDS[kind], random.Random(seed)
    for length in lengths:
        reported(dataclasses.replace(runs, rows=runs.rows[:length]))
    whole = range(len(runs.rows))
    reported(broken(runs, whole, "failed"))
    largest = sorted(whole, key=lambda i: runs.rows[i]["N"])[-3:]
    reported(broken(runs, largest, "diverged"))
    for _ in range(subsets):
        some = rng.sample(whole, rng.randint(1, len(whole) - 1))
        half = len(some) // 2
        reported(broken(broken(runs, some[:half], "diverged"), some[half:], "failed"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_journal_is_reported(kind):
    whole = len(KINDS[kind].rows)
    check(kind, {1, 2 * whole // 3}, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_prefix_and_many_statuses_are_reported(kind):
    check(kind, range(len(KINDS[kind].rows) + 1), 40, seed=1)
