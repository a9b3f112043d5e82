"""Charts of one law: each is drawn, holds the law's numbers, and the page stands alone."""

import base64
import hashlib
import html
import re
from pathlib import Path

import numpy as np
import pytest

import allometry as al
from allometry.report import law_charts, theme


@pytest.fixture(scope="module")
def law():
    rng = np.random.default_rng(0)
    C = np.repeat(np.geomspace(1e18, 1e20, 4), 6)
    N = np.sqrt(C / 120) * np.tile(np.geomspace(0.3, 3, 6), 4)
    loss = (1.7 + 400 / N**0.34 + 410 / (C / 6 / N) ** 0.28) * np.exp(
        0.003 * rng.standard_normal(24)
    )
    return al.laws.fit({"N": N, "C": C, "loss": loss}, "chinchilla", bootstrap=100)


def test_every_chart_is_drawn(law):
    charts = law_charts.charts(law, law.plan(1e21))
    assert set(charts) == {"fit", "residuals", "isoflop", "backtest", "plan", "profile"}
    for spec in charts.values():
        assert "<svg" in theme.svg(spec)


def test_charts_hold_the_runs_and_the_law(law):
    layers = law_charts.fit(law)["layer"]
    dots = layers[-1]["data"]["values"]
    assert sorted(d["loss"] for d in dots) == pytest.approx(sorted(np.exp(law.table.y)))
    band = layers[1]["data"]["values"]
    at = band[10]
    # The law at the compute-optimal allocation.
    assert at["mid"] == pytest.approx(law.plan(at["x"]).loss.value, rel=1e-3)
    away = [d["away"] for d in law_charts.residuals(law)["layer"][-1]["data"]["values"]]
    assert abs(np.mean(away)) < 0.3
    chart = law_charts.planned(law, law.plan(1e21))
    assert chart is not None
    best = chart["layer"][-1]["data"]["values"][0]
    assert best["x"] == law.plan(1e21).N.value


def test_a_law_in_one_variable_has_fewer_charts():
    N = np.geomspace(1e3, 1e6, 9)
    made = al.laws.fit({"N": N, "loss": 8 * N**-0.2}, "power", bootstrap=50)
    assert set(law_charts.charts(made)) == {"fit", "residuals", "backtest"}


def test_runs_without_noise_have_a_page_without_a_profile(tmp_path):
    """It raised: profiled.letter must have a profile that is finite."""
    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(6, 9, 12), 10 ** rng.uniform(8, 11, 12)
    runs = {"N": N, "D": D, "loss": 1.7 + 400 / N**0.34 + 410 / D**0.28}
    made = al.laws.fit(runs, "chinchilla", bootstrap=16, starts=4)
    assert "profile" not in law_charts.charts(made)
    assert law_charts.write(tmp_path / "law.html", made).stat().st_size > 1000


def test_the_page_needs_nothing_else(law, tmp_path):
    path = law_charts.write(tmp_path / "law.html", law, law.plan(1e21))
    text = path.read_text()
    assert text.count('<div class="picture"><svg') == 6
    assert "src=" not in text
    assert set(re.findall(r'href="([^"]*)"', text)) == {"data:,", "#main"}
    assert law.backtest.words() in text.replace("\u00a0", " ")
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    signed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; script-src 'sha256-{signed}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    bare = text.replace(script, "")
    assert len(re.findall(r"<script", bare)) == 1
    assert not re.search(r" style=| on\w+=", bare)


def test_every_page_has_a_policy():
    """A page is whatever the package writes with a doctype."""
    for path in Path(al.__file__).parent.rglob("*"):
        if path.suffix in (".py", ".html") and "<!doctype html>" in path.read_text().lower():
            assert "Content-Security-Policy" in path.read_text(), path


def test_runs_without_two_budgets_have_a_page_too(tmp_path):
    """Four sizes by three lengths: no compute has four sizes, so there is nothing to compare."""
    N, D = (a.ravel() for a in np.meshgrid(np.geomspace(1e7, 3e8, 4), np.geomspace(2e8, 5e9, 3)))
    loss = 1.8 + 300 / N**0.33 + 700 / D**0.33
    made = al.laws.fit({"N": N, "D": D, "loss": loss}, bootstrap=30)
    assert law_charts.isoflop(made) is None
    text = law_charts.write(tmp_path / "law.html", made, made.plan(1e21)).read_text()
    assert 'aria-label="plan"' in text
    assert "near the compute-optimal frontier" in text
    assert "<td>N</td>" in text
    assert "N<sup>" in text


def test_the_chart_reaches_the_planned_budget(law):
    plan = law.plan(1e24)
    spec = law_charts.fit(law, plan=plan)
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < 1e18 < plan.compute < high
    (mark,) = spec["layer"][-1]["data"]["values"]
    assert mark["x"] == plan.compute
    assert mark["y"] == plan.loss.value
