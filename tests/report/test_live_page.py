"""The page of `allometry serve` in a real browser: it follows runs and takes a dropped table."""

import threading

import pytest

from allometry.report.live_runs import LiveRuns
from allometry.report.live_server import LiveServer
from tests.report.planner_page import facts, fill
from tests.report.test_live_server import fit, table

pytestmark = pytest.mark.browser

DROP = """([name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name, { type: "text/csv" }));
  dispatchEvent(new DragEvent("dragover", { dataTransfer: carried, cancelable: true }));
  dispatchEvent(new DragEvent("drop", { dataTransfer: carried, cancelable: true }));
}"""


@pytest.fixture
def served(tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text(table())
    live = LiveRuns(runs, fit, "token-of-the-page")
    live.refresh()
    with LiveServer(live) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield runs, live, server
        server.shutdown()
        thread.join()
    live.close()


def test_a_page_follows_the_runs_and_takes_a_table(browser, served):
    runs, live, server = served
    page, troubles = browser.new_page(), []
    page.on("pageerror", lambda e: troubles.append(str(e)))
    page.on("request", lambda r: r.url.startswith(server.address) or troubles.append(r.url))
    page.goto(server.address)
    fill(page, "Budget", "3e21")
    before = facts(page)
    assert before["Compute"] == 3e21
    page.locator("#planner-budget").focus()

    runs.write_text(table(16, seed=5))
    live.refresh()
    page.get_by_role("heading", name="Scaling law of 16 runs").wait_for(timeout=20_000)
    after = facts(page)
    assert after["Compute"] == 3e21  # the state outlives the new fit, and so does the focus
    assert after["Loss"] != before["Loss"]
    assert page.evaluate("document.activeElement.id") == "planner-budget"

    page.evaluate(DROP, ["none.csv", "a,b\n1,2\n"])
    page.locator("#live-note", has_text="none.csv must").wait_for()
    page.evaluate(DROP, ["other.csv", table(13, seed=7)])
    page.get_by_role("heading", name="Scaling law of 13 runs").wait_for(timeout=20_000)
    assert facts(page)["Compute"] == 3e21
    page.get_by_role("link", name="Back to the watched runs").click()
    page.get_by_role("heading", name="Scaling law of 16 runs").wait_for(timeout=20_000)
    page.close()
    assert troubles == []
