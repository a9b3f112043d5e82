"""The evaluator in the page against Python, which is the reference."""

import base64
import json

import numpy as np
import pytest

import allometry as al
from allometry import InputError
from allometry.report.planner_payload import packed, payload
from tests.report.planner_queries import (
    PLAN,
    PREDICT,
    budgets,
    expected,
    flat,
    grid,
    page_with,
    planned,
    points,
)

CLOSE = 1e-6
"""The bound asked for. Draws are rounded to 1e-10 of their range, which costs about 1e-9."""


def line(rng, law):
    """Runs on a path of 20 tokens per parameter."""
    N = np.geomspace(1e6, 1e9, 14)
    loss = law(N) * np.exp(rng.normal(0, 0.003, 14))
    return {"N": N, "D": 20 * N, "loss": loss}


def fitted(form, bootstrap):
    rng = np.random.default_rng(5)
    if form in ("auto", "chinchilla", "tied", "coupled", "kaplan"):
        return al.laws.fit(grid(rng), form, bootstrap=bootstrap)
    if form == "repeated":
        return al.laws.fit(grid(rng, unique=True), form, bootstrap=bootstrap)
    runs = line(rng, lambda N: 1.5 + 8 / (1 + (N / 1e7)) ** 0.2)
    return al.laws.fit(runs, "auto" if form == "path" else form, bootstrap=bootstrap)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("form", "count", "plans", "bootstrap"),
    [
        ("auto", 6000, 24, 40),
        ("chinchilla", 1000, 30, 40),
        ("tied", 500, 10, 30),
        ("coupled", 500, 10, 30),
        ("kaplan", 500, 10, 30),
        ("repeated", 500, 10, 30),
        ("path", 500, 10, 30),
        ("m3", 150, 10, 30),
        ("m4", 150, 10, 30),
        ("logistic", 100, 10, 30),
        ("broken", 100, 10, 30),
    ],
)
def test_the_page_computes_what_python_computes(browser, form, count, plans, bootstrap):
    law, rng = fitted(form, bootstrap), np.random.default_rng(1)
    page = page_with(browser, law)
    queries = points(rng, law, count)
    found = np.array(page.evaluate(PREDICT, queries))
    wanted = expected(law, queries)
    assert found.shape == wanted.shape == (count, 3)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE)
    asked = budgets(rng, plans, {"N", "D"} <= set(law.variables))
    got, want = page.evaluate(PLAN, asked), planned(law, asked)
    page.close()
    (numbers, missing), (reference, absent) = flat(got), flat(want)
    assert missing == absent
    assert len(reference) >= 5 * plans // 2
    np.testing.assert_allclose(numbers, reference, rtol=CLOSE)


@pytest.mark.browser
def test_a_law_without_draws_has_values_and_an_interval_of_the_noise(browser):
    law = al.laws.fit(grid(np.random.default_rng(2)), "chinchilla", bootstrap=0)
    page = page_with(browser, law)
    asked = [(1e20, {}), (1e22, {"unique": 1e10})]
    got, want = page.evaluate(PLAN, asked), planned(law, asked)
    page.close()
    (numbers, missing), (reference, absent) = flat(got), flat(want)
    assert missing == absent
    np.testing.assert_allclose(numbers, reference, rtol=CLOSE)


def test_draws_are_rounded_to_a_ten_billionth_of_their_range():
    values = np.random.default_rng(0).normal(0, 3, 500)
    made = packed(values)
    whole = np.frombuffer(base64.b64decode(made["data"]), "<u4")
    back = made["low"] + made["step"] * whole
    assert np.abs(back - values).max() <= 1e-9 * np.ptp(values)
    assert packed(np.full(3, 2.5))["step"] == 0


def test_the_payload_is_json_without_nan():
    law = al.laws.fit(grid(np.random.default_rng(2)), bootstrap=20)
    assert json.loads(json.dumps(payload(law), allow_nan=False))["kind"] == "allocation"


def test_laws_without_a_plan_are_refused():
    N = np.geomspace(1e3, 1e6, 9)
    alone = al.laws.fit({"N": N, "loss": 8 * N**-0.2}, "power", bootstrap=20)
    with pytest.raises(InputError, match="depends on N and D, or on C; got a law in N"):
        payload(alone)
    own = al.laws.fit(
        {"C": N, "loss": 8 * N**-0.2}, lambda C, k=8.0, a=0.2: k * C**-a, bootstrap=20
    )
    with pytest.raises(InputError, match="one of the named forms"):
        payload(own)


def test_a_law_of_repeated_data_plans_without_a_limit():
    """It raised KeyError: 'D_unique'."""
    law = al.laws.fit(grid(np.random.default_rng(2), unique=True), "repeated", bootstrap=30)
    free, much = law.plan(1e20), law.plan(1e20, unique=1e18)
    assert free.N is not None
    assert much.N is not None
    assert free.N.value == pytest.approx(much.N.value, rel=1e-9)
    assert free.loss.value == pytest.approx(much.loss.value, rel=1e-9)


def test_inference_beyond_the_budget_with_limited_data_is_quiet():
    """Sizes whose inference alone takes the budget raised a numpy warning."""
    law = al.laws.fit(grid(np.random.default_rng(2)), "chinchilla", bootstrap=20)
    made = law.plan(1e20, unique=1e9, inference_tokens=1e12)
    assert made.N is not None
    assert made.N.value * 2e12 < 1e20
