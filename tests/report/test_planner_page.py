"""The planner in a real browser: a person's path, permalinks, copies, keyboard, narrow screens."""

import csv
import io
import re
import shlex

import numpy as np
import pytest

import allometry as al
from allometry.laws import hardware
from allometry.report import formatting as fmt
from allometry.report import law_page
from allometry.report.planner_data import Question
from tests.report.planner_page import answers, facts, fill, same, settled
from tests.report.planner_queries import grid

pytestmark = pytest.mark.browser

LARGEST_PAGE = 1_500_000


@pytest.fixture(scope="module")
def law():
    return al.laws.fit(grid(np.random.default_rng(3)), bootstrap=60)


@pytest.fixture(scope="module")
def path(law, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planner")
    return law_page.write(folder / "law.html", law, source="my runs.csv")


@pytest.fixture
def open_page(browser, path):
    """Opens the page, and fails at the end if it complained or asked for anything."""
    pages, troubles = [], []

    def opened(fragment="", **options):
        page = browser.new_page(**options)
        page.on("console", lambda m: troubles.append(f"console {m.type}: {m.text}"))
        page.on("pageerror", lambda e: troubles.append(f"error: {e}"))
        own = path.as_uri()
        page.on(
            "request",
            lambda r: r.url.partition("#")[0] in (own, "data:,") or troubles.append(r.url),
        )
        page.goto(own + fragment)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not troubles


def test_a_budget_of_days_then_half_the_money(open_page, browser, path, law):
    """Set a price and 12 days of 8 accelerators, halve the money, copy, reload the permalink."""
    machine = hardware.parse("8xH100", mfu=0.4, price=2.5)
    page = open_page()
    fill(page, "Price of one accelerator", "2.5")
    page.get_by_label("Days", exact=True).check()
    fill(page, "Budget", "12")
    fill(page, "Number of accelerators", "8")
    compute = machine.compute_in(days=12)
    assert same(facts(page), answers(law, machine, compute))

    page.get_by_label("Money", exact=True).check()
    shown = page.locator("#planner-budget").input_value()
    assert float(shown) == machine.cost(compute) == 5760
    fill(page, "Budget", str(5760 / 2))
    half = machine.compute_for(2880)
    wanted = answers(law, machine, half)
    assert same(facts(page), wanted)
    assert half == pytest.approx(compute / 2)

    page.get_by_role("button", name="Sentence").click()
    page.locator("#planner-copied", has_text="Copied the sentence").wait_for()
    said = page.locator("#planner-text").input_value()
    low, high = wanted["Loss"]["lo"], wanted["Loss"]["hi"]
    value = wanted["Loss"]["value"]
    assert f"loss of {value:.3f} nats (95 % interval {low:.3f} to {high:.3f})" in said
    assert f"{fmt.count(wanted['Size N']['value'])} parameters" in said
    assert f"With {fmt.flops(half)} (6 d on 8 H100 at 40 % utilisation, $2,880 at $2.50" in said

    link = page.url
    assert link.startswith(path.as_uri() + "#planner=")
    again = open_page(link.removeprefix(path.as_uri()))
    assert same(facts(again), wanted)
    assert again.evaluate("Planner.COPIES.sentence(Planner.answer())") == said


def test_limits_and_fixed_sizes_agree_with_python(open_page, law):
    machine = hardware.parse("64xA100", mfu=0.35, price=1.8)
    page = open_page()
    page.get_by_label("Accelerator", exact=True).select_option("A100")
    for label, text in (
        ("Number of accelerators", "64"),
        ("Utilisation", "35"),
        ("Price of one", "€1.8"),
        ("Budget", "3e21"),
        ("Unique data", "20B"),
        ("Inference", "1T"),
    ):
        fill(page, label, text)
    options = {"unique": 2e10, "inference_tokens": 1e12}
    assert same(facts(page), answers(law, machine, 3e21, **options))
    assert "€" in page.locator("[data-fact='Money']").inner_text()
    assert "passes over the unique tokens" in page.locator("#planner-notes").inner_text()
    page.get_by_label("Fix size N").check()
    fill(page, "Size N, parameters", "500M")
    assert same(facts(page), answers(law, machine, 3e21, N=5e8, **options))
    page.get_by_label("Fix data D").check()
    fill(page, "Data D, tokens", "100B")
    assert same(facts(page), answers(law, machine, 3e21, D=1e11, **options))
    fill(page, "Unique data", "")
    fill(page, "Inference", "")
    assert same(facts(page), answers(law, machine, 3e21, D=1e11))


def test_copies_are_csv_and_a_command_that_parses(open_page, law):
    page = open_page("#planner&by=flops&budget=2e21&unique=1e10&fix=N&fixed=3e9")
    page.get_by_role("button", name="CSV").click()
    (row,) = csv.DictReader(io.StringIO(page.locator("#planner-text").input_value()))
    plan = law.plan(2e21, N=3e9, unique=1e10)
    assert float(row["loss_hi"]) == pytest.approx(plan.loss.hi, rel=1e-6)
    assert float(row["N"]) == pytest.approx(3e9)
    assert row["cost"] == ""
    page.get_by_role("button", name="Command").click()
    words = shlex.split(page.locator("#planner-text").input_value())
    assert words[:3] == ["allometry", "plan", "my runs.csv"]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert {k: float(v) for k, v in given.items()} == {
        "--compute": 2e21,
        "--size": 3e9,
        "--unique-tokens": 1e10,
    }
    fill(page, "Price of one", "€2.5")
    page.get_by_label("Money", exact=True).check()
    page.get_by_role("button", name="Command").click()
    words = shlex.split(page.locator("#planner-text").input_value())
    given = dict(zip(words[3::2], words[4::2], strict=True))
    machine = hardware.parse(
        given["--hardware"], mfu=float(given["--mfu"]), price=given["--price"]
    )
    assert (machine.name, machine.mfu, machine.currency) == ("8xH100", 0.4, "€")
    assert machine.compute_for(float(given["--money"])) == pytest.approx(2e21, rel=1e-3)
    page.get_by_role("button", name="Link").click()
    settled(page)
    assert "fixed=3000000000" in page.locator("#planner-text").input_value()


def test_the_keyboard_moves_the_plan_and_the_charts(open_page, law):
    page = open_page()
    before, drawn = facts(page), page.locator("#planner-size").inner_html()
    page.locator("#planner-budget-slider").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    after = facts(page)
    assert after["Compute"] > before["Compute"]
    assert after["Loss"]["value"] < before["Loss"]["value"]
    assert same(
        {k: after[k] for k in ("Loss", "Size N")},
        {
            k: v
            for k, v in answers(law, hardware.parse("8xH100", price=1), after["Compute"]).items()
            if k in ("Loss", "Size N")
        },
    )
    page.wait_for_function(
        "(old) => document.getElementById('planner-size').innerHTML !== old", arg=drawn
    )
    assert re.fullmatch(
        r"[\d.e]+[KMBT]?",
        page.locator("#planner-budget-slider").get_attribute("aria-valuetext") or "",
    )


def test_input_that_is_no_number_keeps_the_last_plan(open_page):
    page = open_page()
    before = facts(page)
    for text in ("", "abc", "-3", "0", "1e999", "<b>"):
        fill(page, "Budget", text)
        assert page.locator("#planner-budget").get_attribute("aria-invalid") == "true"
        assert facts(page) == before
    fill(page, "Budget", "1e21")
    assert page.locator("#planner-budget").get_attribute("aria-invalid") is None
    page.get_by_label("Money", exact=True).click()
    assert page.get_by_role("alert").inner_text() == (
        "Give the price of one accelerator-hour first."
    )
    page.goto(
        page.url.partition("#")[0] + "#planner&by=money&budget=<x>&on=Nothing&fix=Q&mfu=9e99"
    )
    page.reload()
    assert facts(page)["Compute"] == before["Compute"]
    fill(page, "Inference", "1e25")
    settled(page)
    assert "training beside inference" in page.get_by_role("alert").inner_text()


@pytest.mark.parametrize("width", [320, 420, 900])
def test_it_fits_the_screen(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    over = page.evaluate(
        """(width) => [...document.querySelectorAll("#planner *")].filter((e) => {
          const box = e.getBoundingClientRect();
          return box.width && box.right > width + 1 && !e.closest("svg");
        }).map((e) => e.outerHTML.slice(0, 80))""",
        width,
    )
    assert over == []
    assert page.locator("#planner-summary").is_visible() == (width < 960)


def test_the_page_is_small(path):
    assert path.stat().st_size < LARGEST_PAGE


def test_the_planner_begins_with_what_was_asked_of_plan(browser, law, tmp_path):
    machine = hardware.parse("16xA100", mfu=0.3, price="€2/h")
    asked = Question(2e21, N=4e9, unique=1e10, inference_tokens=1e11, hardware=machine)
    plan = law.plan(2e21, N=4e9, unique=1e10, inference_tokens=1e11)
    path = law_page.write(tmp_path / "plan.html", law, plan, question=asked)
    page = browser.new_page()
    page.goto(path.as_uri())
    options = {"N": 4e9, "unique": 1e10, "inference_tokens": 1e11}
    assert same(facts(page), answers(law, machine, 2e21, **options))
    assert page.locator("#planner-price").input_value() == "€2"
    assert "€" in page.locator("[data-fact='Money']").inner_text()
    page.close()
