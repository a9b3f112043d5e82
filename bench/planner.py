"""The planner's evaluator against Python at full size: `python bench/planner.py`.

9,000 predictions of a law with 4,000 draws and 1,000 plans of one with 300 draws, in Chromium.
Prints the largest relative difference, the time of a query in the page, and the size of the page.
"""

import sys
import tempfile
import time
from pathlib import Path

import needs
import numpy as np
from playwright.sync_api import sync_playwright

import allometry as al
from allometry.report import law_page

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.report.conftest import ARGUMENTS, CHROMIUM
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


def timed(page, script: str, queries: list) -> tuple[list, float]:
    """The page's answers, and milliseconds for each."""
    begin = time.perf_counter()
    found = page.evaluate(script, queries)
    return found, 1e3 * (time.perf_counter() - begin) / len(queries)


def main() -> None:
    """Print the figures."""
    rng = np.random.default_rng(0)
    law = al.laws.fit(grid(rng), bootstrap=4000)
    fewer = al.laws.fit(grid(rng), bootstrap=300)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        queries = points(rng, law, 9000)
        found, each = timed(page_with(browser, law), PREDICT, queries)
        worst = np.abs(np.array(found) / expected(law, queries) - 1).max()
        print(f"predict: {len(queries)} queries, largest difference {worst:.1e}, {each:.1f} ms")
        asked = budgets(rng, 1000)
        got, each = timed(page_with(browser, fewer), PLAN, asked)
        (numbers, missing), (reference, absent) = flat(got), flat(planned(fewer, asked))
        assert missing == absent
        zero = reference == 0  # an interval of D may begin at no data
        worst = np.abs(numbers[~zero] / reference[~zero] - 1).max()
        assert not numbers[zero].any()
        print(f"plan: {len(asked)} queries, largest difference {worst:.1e}, {each:.1f} ms")
        _, each = timed(page_with(browser, law), PLAN, asked[:20])
        print(f"plan with 4000 draws: {each:.0f} ms")
        browser.close()
    with tempfile.TemporaryDirectory() as folder:
        path = law_page.write(Path(folder) / "law.html", law)
        print(f"page with 4000 draws: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    needs.run(main)
