"""What notebooks show: HTML tables in which everything is escaped, and Altair charts."""

import json
import sys
from html.parser import HTMLParser

import altair
import numpy as np
import pytest

import allometry as al
from allometry import Estimate, InputError
from allometry._core.errors import MissingExtraError
from allometry.laws.plan import plan
from allometry.study.recipes import ngram

EVIL = "<script>alert(1)</script>"
TAGS = {"div", "strong", "table", "tr", "th", "td", "ul", "li", "span", "small"}


class Tags(HTMLParser):
    """Collects the tags of a page; they must be closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)
        assert {name for name, _ in attrs} <= {"title"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def sweep():
    N, D = (x.ravel() for x in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.004, len(N)))
    return {"N": N, "D": D, "loss": (1.7 + 400 / N**0.34 + 410 / D**0.28) * noise}


@pytest.fixture(scope="module")
def law():
    return al.fit(sweep(), "chinchilla", bootstrap=50)


@pytest.fixture
def imported(tmp_path):
    path = tmp_path / "runs.csv"
    columns = zip(*sweep().values(), strict=True)
    lines = [f"N,{EVIL} tokens,loss", *(f"{n},{d},{y}" for n, d, y in columns), f"1,2,{EVIL}"]
    path.write_text("\n".join(lines))
    return al.runs.load(path, D=f"{EVIL} tokens")


@pytest.fixture
def runs(tmp_path):
    rows = zip(*sweep().values(), strict=True)
    records = [
        {"key": f"{i:016x}", "family": EVIL, "target": EVIL, "shape": EVIL, "rung": 0, "seed": 0,
         "N": n, "D": d, "C": 6 * n * d, "loss": y, "status": "done"}
        for i, (n, d, y) in enumerate(rows)
    ]  # fmt: skip
    keys = [row["key"] for row in records]
    about = {"target": {"name": EVIL, "unit": "nats per token"}, "runs": keys}
    (tmp_path / "study.json").write_text(json.dumps(about))
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return al.runs.Runs(tmp_path)


def test_a_law_shows_its_parameters(law):
    page = Tags(law._repr_html_())
    assert page.seen <= TAGS
    for name, value in law.params.items():
        assert name in page.text
        assert f"{value.value:.4g}" in page.text
        assert f"{value.lo:.4g} to {value.hi:.4g}" in page.text


def test_a_plan_shows_sizes_and_warnings(law):
    made = law.plan(1e22)
    made.warnings.append(EVIL)
    page = Tags(made._repr_html_())
    assert page.seen <= TAGS
    assert made.N is not None
    assert f"{made.N.value:.4g}" in page.text
    assert EVIL in page.text


def test_an_estimate_shows_its_interval():
    page = Tags(Estimate(1.5, lo=1.25, hi=2.0, method=EVIL + '" onload="x')._repr_html_())
    assert page.text == "1.5 (95 % interval 1.25 to 2)"
    assert Tags(Estimate(3.0, exact=True)._repr_html_()).text == "3"
    assert Tags(Estimate(3.0)._repr_html_()).text == "3"


def test_what_comes_from_files_is_escaped(imported, runs):
    for thing in (imported, runs):
        page = Tags(thing._repr_html_())
        assert page.seen <= TAGS
        assert EVIL in page.text
    empty = al.runs.Imported({"loss": np.empty(0)}, {})
    assert "0 runs" in Tags(empty._repr_html_()).text


def test_a_study_shows_what_it_runs():
    study = al.study.Study(al.targets.Text.embedded(), [ngram], [1000])
    page = Tags(study._repr_html_())
    assert "ngram" in page.text
    assert page.seen <= TAGS


def test_a_law_in_any_variables_shows_and_draws():
    one = al.fit(sweep(), "E + A/N^alpha + B/D^beta", variables=["N", "D"], starts=4)
    assert "alpha" in Tags(one._repr_html_()).text
    effects = one.plot()
    assert len(effects.concat) == 2
    assert isinstance(one.plot("fit"), altair.LayerChart)


def test_charts_are_drawn(law, imported, runs, tmp_path):
    made = law.plan(1e22)
    charts = [law.plot(kind) for kind in ("fit", "residuals", "backtest")]
    charts += [made.plot(), made.plot("fit"), imported.plot(), runs.plot()]
    for i, one in enumerate(charts):
        assert isinstance(one, altair.LayerChart)
        if i == 5:  # drawing takes most of this test's time
            one.save(tmp_path / f"{i}.svg")
            assert EVIL not in (tmp_path / f"{i}.svg").read_text()


def test_charts_are_refused_in_words(law, monkeypatch):
    with pytest.raises(InputError, match="one of fit, residuals, isoflop, backtest; got 'pie'"):
        law.plot("pie")
    with pytest.raises(InputError, match="these runs allow; got 'isoflop'"):
        al.fit(sweep(), "floor", bootstrap=0).plot("isoflop")
    with pytest.raises(InputError, match=r"come from law\.plan"):
        plan(law, 1e22).plot()
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"allometry\[plot\]"):
        law.plot()
