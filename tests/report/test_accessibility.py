"""axe-core finds no serious fault in the pages, light and dark, wide and narrow.

axe-core is not part of the project: `npm pack axe-core`, unpack it, and name its `axe.min.js` in
the variable AXE_CORE.
"""

import os

import numpy as np
import pytest

import allometry as al
from allometry.report import law_page, write
from tests.report.planner_page import settled
from tests.report.planner_queries import grid
from tests.report.synthetic import analysis, synthetic_runs

pytestmark = pytest.mark.browser

AXE = os.environ.get("AXE_CORE", "")
RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


@pytest.mark.skipif(not AXE, reason="AXE_CORE does not name axe.min.js")
@pytest.mark.parametrize("width", [1200, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["law", "study"])
def test_no_serious_fault(browser, tmp_path, kind, scheme, width):
    if kind == "law":
        law = al.laws.fit(grid(np.random.default_rng(0)), bootstrap=20)
        path = law_page.write(tmp_path / "page.html", law, law.plan(1e21))
    else:
        path = write(tmp_path / "page.html", synthetic_runs(), analysis=analysis())
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page.goto(path.as_uri())
    settled(page)
    page.add_script_tag(path=AXE)
    found = page.evaluate(RUN)["violations"]
    page.close()
    faults = [(f["impact"], f["id"], [n["html"][:120] for n in f["nodes"]]) for f in found]
    assert [fault for fault in faults if fault[0] in ("serious", "critical")] == []
