"""The page in a real browser."""

import pytest

from allometry.laws import hardware
from allometry.report import analyse, write
from tests.report.kinds import KINDS
from tests.report.planner_page import answers, facts, fill, same
from tests.report.synthetic import synthetic_runs

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def study():
    runs = synthetic_runs(
        per_parameter=(5.0, 20.0, 80.0), seeds=1, name="a-name-without-any-break" * 6 + ".txt"
    )
    return runs, analyse(runs)


@pytest.fixture(scope="module")
def url(study, tmp_path_factory):
    runs, analysis = study
    path = tmp_path_factory.mktemp("browser") / "report.html"
    return write(path, runs, analysis=analysis).as_uri()


@pytest.fixture
def open_page(browser, url):
    """Opens the page, and fails at the end if it complained or asked for anything."""
    pages, troubles = [], []

    def opened(**options):
        page = browser.new_page(**options)
        page.on("console", lambda m: troubles.append(f"console {m.type}: {m.text}"))
        page.on("pageerror", lambda e: troubles.append(f"error: {e}"))
        page.on(
            "request", lambda r: r.url in (url, "data:,") or troubles.append(f"request: {r.url}")
        )
        page.goto(url)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not troubles


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def first_fill(page):
    return page.evaluate("getComputedStyle(document.querySelector('#compute .wide text')).fill")


def test_both_colour_schemes(open_page):
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert background(light) != background(dark)
    assert first_fill(light) != first_fill(dark)
    for page in (light, dark):
        page.get_by_role("button", name="Dark").click()
        assert background(page) == background(dark)
        assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="Light").click()
        assert first_fill(page) == "rgb(93, 102, 112)"  # the light scheme's muted ink
        page.get_by_role("button", name="Auto").click()
    assert background(light) != background(dark)


def test_the_choice_of_scheme_outlives_a_reload(open_page):
    page = open_page(color_scheme="light")
    page.get_by_role("button", name="Dark").click()
    chosen = background(page)
    page.reload()
    assert background(page) == chosen


def column(page, index):
    cells = page.locator(f"table.sortable tbody td:nth-child({index})")
    return cells.evaluate_all("cells => cells.map(c => c.dataset.order ?? c.textContent)")


def test_the_table_sorts_by_mouse_and_by_keyboard(open_page):
    page = open_page()
    head = page.locator("table.sortable th", has_text="Loss")
    assert head.get_attribute("aria-sort") == "ascending"

    def finite(values):
        return [float(v) for v in values if v != ""]

    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    losses = column(page, 8)
    assert losses[-2:] == ["", ""]  # the diverged and the failed stay last
    assert finite(losses) == sorted(finite(losses), reverse=True)
    size = page.locator("table.sortable th", has_text="Nparameters")
    size.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert size.get_attribute("aria-sort") == "ascending"
    assert head.get_attribute("aria-sort") == "none"
    assert finite(column(page, 4)) == sorted(finite(column(page, 4)))
    page.keyboard.press("Space")
    assert finite(column(page, 4)) == sorted(finite(column(page, 4)), reverse=True)
    page.locator("table.sortable th", has_text="Family").get_by_role("button").click()
    assert column(page, 1) == sorted(column(page, 1))


@pytest.mark.parametrize("width", [320, 360, 768, 1440])
def test_the_page_never_scrolls_sideways(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = "narrow" if width < 640 else "wide"
    assert page.locator(f"#compute .picture.{shown}").is_visible()
    assert page.locator("#compute .picture:visible").count() == 1


def test_marks_have_tooltips(open_page):
    page = open_page(viewport={"width": 1200, "height": 900})
    mark = page.locator("#laws [aria-roledescription='point'][aria-label*='held out']").first
    mark.scroll_into_view_if_needed()
    # Scrolling hides the tooltip, and the page scrolls smoothly: wait for its end.
    page.wait_for_function(
        "() => new Promise((done) => { const y = scrollY;"
        " setTimeout(() => done(y === scrollY), 150); })"
    )
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#tip")
    tip.wait_for(state="visible")  # the pointer's event comes when the page gets to it
    assert "held out of the fit: transformer" in tip.inner_text()
    assert "nats per character" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_planner_of_a_study_agrees_with_python(open_page, study):
    """12 days of 8 accelerators, far beyond the runs: the numbers, and the warning."""
    _, analysis = study
    law = analysis.families[0].law
    machine = hardware.parse("8xH100", price=2.5)
    page = open_page()
    fill(page, "Price of one accelerator", "2.5")
    page.get_by_label("Days", exact=True).check()
    fill(page, "Budget", "12")
    compute, unique = machine.compute_in(days=12), analysis.D_unique
    assert same(facts(page), answers(law, machine, compute, unique=unique))
    assert "times the largest run" in page.locator("#planner-notes").inner_text()
    assert "nats per character" in page.locator("[data-fact='Loss']").inner_text()


def test_it_prints(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator(".scheme").is_hidden()


APART = """() => {
  const trouble = [];
  for (const picture of document.querySelectorAll(".picture")) {
    if (getComputedStyle(picture).display === "none") continue;
    const frame = picture.querySelector("svg").getBoundingClientRect();
    const boxes = [...picture.querySelectorAll(".role-legend-label text")]
      .map((e) => [e.textContent, e.getBoundingClientRect()]);
    for (const [name, a] of boxes) {
      if (a.right > frame.right + 1 || a.bottom > frame.bottom + 1) trouble.push(`clips: ${name}`);
      for (const [other, b] of boxes)
        if (name < other && a.left < b.right - 1 && b.left < a.right - 1 &&
            a.top < b.bottom - 2 && b.top < a.bottom - 2) trouble.push(`${name} on ${other}`);
    }
  }
  return [document.querySelectorAll(".role-legend-label text").length, trouble];
}"""


@pytest.mark.parametrize("width", [1100, 420])
def test_legends_neither_collide_nor_clip(browser, tmp_path, width):
    runs = KINDS["dyck"]
    path = write(tmp_path / "dyck.html", runs, analysis=analyse(runs, bootstrap=20))
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(path.as_uri())
    labels, trouble = page.evaluate(APART)
    page.close()
    assert labels > 20
    assert trouble == []
